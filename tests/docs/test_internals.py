"""The page of internals names files of this tree."""

from __future__ import annotations

import re

from tests.docs.test_snippets import PROJECT

_TEXT = (PROJECT / "docs" / "internals.md").read_text(encoding="utf-8")

#: Paths between backticks: words with a slash.
_PATHS = re.findall(r"`([\w.-]+/[\w./-]*)`", _TEXT)


def test_each_path_on_the_page_of_internals_exists() -> None:
    missing = [path for path in _PATHS if not (PROJECT / path).exists()]

    assert missing == []
    assert len(_PATHS) > 40
