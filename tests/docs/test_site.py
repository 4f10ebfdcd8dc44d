"""The site of guides and API reference, as ``make docs`` builds it."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import aflow
from tests.architecture.public_names import DOORS, promised
from tests.docs.test_snippets import PROJECT


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_documents_each_public_name(tmp_path: Path) -> None:
    """A broken link, a page that no other links to and bad markup in a docstring are warnings."""
    pytest.importorskip("sphinx", reason="'make docs' needs sphinx and myst-parser")
    command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-b", "html"]

    done = subprocess.run(
        [*command, "docs", str(tmp_path)], cwd=PROJECT, capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")
    missing = [
        f"{door}.{name}"
        for door in DOORS
        for name in promised(door)
        if not _is_documented(door, name, tmp_path)
    ]
    assert missing == []
    page = (tmp_path / "reference" / "api" / "aflow.html").read_text(encoding="utf-8")
    assert 'id="aflow.Stream.map_async"' in page  # of a base class


def _is_documented(door: str, name: str, site: Path) -> bool:
    """Return True if the page of ``door``, or that of ``aflow`` for a name that both have, describes a class."""
    value = getattr(import_module(door), name)
    if not isinstance(value, type):
        return True
    page = "aflow" if name in aflow.__all__ and getattr(aflow, name) is value else door
    text = (site / "reference" / "api" / f"{page}.html").read_text(encoding="utf-8")
    return f'id="{page}.{name}"' in text
