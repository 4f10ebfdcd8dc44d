"""Each example runs alone, without a warning, and prints the output in its docstring."""

from __future__ import annotations

import ast
import inspect
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from tests.checkpointed import EVERY, checkpointed

FOLDER = Path(__file__).parents[2] / "examples"
#: Examples that need Java; tests/spark runs them.
WITH_SPARK = [FOLDER / "backfill_on_spark.py"]
EXAMPLES = sorted(set(FOLDER.glob("*.py")) - set(WITH_SPARK))
SECONDS = 300
#: Examples with a different output with checkpoints every few milliseconds, and the reasons.
WITHOUT_CHECKPOINTS = {
    "csv_to_jsonl": "with checkpoints a sink writes one file for each checkpoint",
    "testing_a_pipeline": "a month of virtual time would have a hundred million checkpoints",
}


def documented_output(source: str) -> str | None:
    """Return the last section of the docstring, "Prints:"; None if there is none."""
    docstring = ast.get_docstring(ast.parse(source)) or ""
    _, found, output = docstring.partition("\nPrints:\n")
    return inspect.cleandoc(output).strip() if found else None


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=[path.stem for path in EXAMPLES])
def test_an_example_prints_its_documented_output(path: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", str(path)]

    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS)

    assert done.returncode == 0, done.stderr
    expected = documented_output(path.read_text(encoding="utf-8"))
    assert expected in {None, done.stdout.strip()}, f"it printed\n{done.stdout}"


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    [path for path in EXAMPLES if path.stem not in WITHOUT_CHECKPOINTS],
    ids=lambda path: path.stem,
)
def test_an_example_prints_the_same_lines_with_checkpoints(
    path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Compare sorted lines: two sinks prepare for a checkpoint independently."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(path)])

    with checkpointed(every=EVERY):  # in this process, which has imported aflow
        runpy.run_path(str(path), run_name="__main__")

    expected = documented_output(path.read_text(encoding="utf-8"))
    if expected is not None:
        printed = capsys.readouterr().out.strip()
        assert sorted(printed.splitlines()) == sorted(expected.splitlines())


def test_the_documented_output_is_the_last_section_of_the_docstring_without_its_indent() -> None:
    source = '"""Words.\n\nMore words.\n\nPrints:\n\n    a\n      b\n\n    c\n"""\n'

    assert documented_output(source) == "a\n  b\n\nc"


def test_a_docstring_without_the_section_documents_no_output() -> None:
    assert documented_output('"""It prints: something."""\n') is None
