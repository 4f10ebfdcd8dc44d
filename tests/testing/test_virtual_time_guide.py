"""The guide's section on virtual time runs as it is written."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

_GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "testing.md"
_SECTION = _GUIDE.read_text("utf-8").split("\n## Virtual time\n")[1].split("\n## ")[0]
_SNIPPETS = re.findall(r"^```python\n(.*?)^```$", _SECTION, re.DOTALL | re.MULTILINE)


def test_the_section_has_snippets() -> None:
    assert len(_SNIPPETS) == 3


@pytest.mark.parametrize("snippet", _SNIPPETS, ids=["reminder", "deadlock", "seeds"])
def test_a_snippet_runs_as_written(snippet: str, tmp_path: Path) -> None:
    # From a file: tracebacks (and the message of a deadlock) quote its lines.
    file = tmp_path / "snippet.py"
    file.write_text(snippet, "utf-8")
    namespace: dict[str, object] = {}

    exec(compile(snippet, file, "exec"), namespace)
    tests = [thing for name, thing in namespace.items() if name.startswith("test_")]

    assert tests or "\n    assert" in snippet or "\nassert" in snippet
    for test in tests:
        assert callable(test)
        test()
