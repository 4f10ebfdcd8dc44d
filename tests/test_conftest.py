"""The base of the test suite: requirements, and the check of leftovers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

CONFTEST = Path(__file__).with_name("conftest.py")
NEEDS_WHAT_IS_NOT_THERE = """
def test_it(require):
    require("no-such-program", "apt-get install it")
"""
LEAVES_A_THREAD = """
import threading

def test_it():
    threading.Thread(target=threading.Event().wait, daemon=True).start()
"""


def outcome(folder: Path, source: str, *, ci: str) -> str:
    """Return the output of pytest for ``source`` with our conftest, in a process of its own."""
    (folder / "conftest.py").write_text(CONFTEST.read_text(encoding="utf-8"), encoding="utf-8")
    (folder / "test_it.py").write_text(source, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", "."]
    done = subprocess.run(command, cwd=folder, env={"CI": ci}, capture_output=True, text=True)
    return done.stdout


@pytest.mark.slow
def test_a_missing_requirement_skips_a_test_on_the_machine_of_a_developer(tmp_path: Path) -> None:
    said = outcome(tmp_path, NEEDS_WHAT_IS_NOT_THERE, ci="")

    assert "1 skipped" in said
    assert "no-such-program is neither" in said
    assert "apt-get install it" in said


@pytest.mark.slow
def test_a_missing_requirement_fails_a_test_in_ci(tmp_path: Path) -> None:
    said = outcome(tmp_path, NEEDS_WHAT_IS_NOT_THERE, ci="true")

    assert "1 failed" in said
    assert "no-such-program is neither" in said


@pytest.mark.slow
def test_a_test_that_leaves_a_thread_running_does_not_pass(tmp_path: Path) -> None:
    said = outcome(tmp_path, LEAVES_A_THREAD, ci="")

    assert "1 error" in said
    assert "the test left <Thread" in said
