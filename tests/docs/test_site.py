"""The site of guides and API reference, as ``make docs`` builds it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import aflow
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
    page = (tmp_path / "reference" / "api" / "aflow.html").read_text(encoding="utf-8")
    classes = [name for name in aflow.__all__ if isinstance(getattr(aflow, name), type)]
    assert [name for name in classes if f'id="aflow.{name}"' not in page] == []
