"""The site of guides and API reference, as ``make docs`` builds it, but without writing its pages."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import aflow
from tests.architecture.public_names import DOORS, promised
from tests.docs.test_snippets import PROJECT

#: Build without output: the pages are read, and their references resolved, which finds all defects but those of
#: highlighting. Writing HTML, and the source code of all modules, took half of the time. Then print the page of each
#: described name. Few garbage collections: the trees of pages stay in memory. No pages of source code: they are not
#: written, but all modules are read for them.
BUILD = """
import gc, json, pickle, sys
gc.set_threshold(100_000, 50, 100)
from sphinx.cmd.build import main
folder = sys.argv[1]
extensions = "extensions=myst_parser,sphinx.ext.autodoc"
if status := main(["-q", "-W", "--keep-going", "-b", "dummy", "-D", extensions, "docs", folder]):
    sys.exit(status)
with open(f"{folder}/.doctrees/environment.pickle", "rb") as file:
    objects = pickle.load(file).domaindata["py"]["objects"]
print(json.dumps({name: entry.docname for name, entry in objects.items()}))
"""

#: A block of code with a language.
_BLOCK = re.compile(r"^ *```(\w+)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_documents_each_public_name(tmp_path: Path) -> None:
    """A broken link, a page that no other links to and bad markup in a docstring are warnings."""
    pytest.importorskip("sphinx", reason="'make docs' needs sphinx and myst-parser")

    done = subprocess.run(
        [sys.executable, "-c", BUILD, str(tmp_path)],
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")
    pages: dict[str, str] = json.loads(done.stdout)
    missing = [
        f"{door}.{name}"
        for door in DOORS
        for name in promised(door)
        if not _is_documented(door, name, pages)
    ]
    assert missing == []
    assert pages["aflow.Stream.map_async"] == "reference/api/aflow"  # of a base class


def test_code_in_the_guides_can_be_highlighted() -> None:
    """Sphinx warns about an unknown language, and about code that is not of its language, as it writes pages."""
    pytest.importorskip("sphinx", reason="'make docs' needs sphinx and myst-parser")
    lexers = import_module("pygments.lexers")
    error = import_module("pygments.token").Error
    found = [
        (path, language, code)
        for path in (PROJECT / "docs").rglob("*.md")
        for language, code in _BLOCK.findall(path.read_text(encoding="utf-8"))
    ]

    wrong = [
        f"{path}: {text!r} is not {language}"
        for path, language, code in found
        for kind, text in lexers.get_lexer_by_name(language).get_tokens(code)
        if kind is error
    ]

    assert len(found) > 100
    assert wrong == []


def _is_documented(door: str, name: str, pages: dict[str, str]) -> bool:
    """Return True if the page of ``door``, or that of ``aflow`` for a name that both have, describes a class."""
    value = getattr(import_module(door), name)
    if not isinstance(value, type):
        return True
    page = "aflow" if name in aflow.__all__ and getattr(aflow, name) is value else door
    return pages.get(f"{page}.{name}") == f"reference/api/{page}"
