"""The base of the test suite: requirements, the check of leftovers, and the processes that run it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from tests.processes import group_of, longest_group_first

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


WRITES_ITS_PROCESS = """
import os
import pytest

@pytest.mark.parametrize("number", range(6))
def test_it(number):
    with open(__file__ + ".processes", "a") as file:
        print(os.environ["PYTEST_XDIST_WORKER"], number, file=file)
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


@pytest.mark.slow
def test_the_tests_of_a_file_run_in_one_process_in_order(tmp_path: Path) -> None:
    pytest.importorskip("xdist", reason="'make test' needs pytest-xdist")
    (tmp_path / "conftest.py").write_text(CONFTEST.read_text(encoding="utf-8"), encoding="utf-8")
    files = [tmp_path / f"test_{name}.py" for name in "abc"]
    for file in files:
        file.write_text(WRITES_ITS_PROCESS, encoding="utf-8")

    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "2", "."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)

    assert "18 passed" in done.stdout, done.stdout + done.stderr
    for file in files:
        lines = Path(f"{file}.processes").read_text(encoding="utf-8").split()
        assert len(set(lines[::2])) == 1
        assert lines[1::2] == list("012345")


def item(nodeid: str, *, slow: bool = False) -> pytest.Item:
    """Return a stand-in for a collected test, with what the distribution reads."""
    mark = pytest.mark.slow.mark if slow else None
    stand_in = SimpleNamespace(nodeid=nodeid, get_closest_marker=lambda name: mark)
    return cast(pytest.Item, stand_in)


def test_the_tests_of_spark_are_first_and_then_files_with_many_slow_tests() -> None:
    items = [
        item("tests/api/test_many.py::test_one"),
        item("tests/api/test_many.py::test_two"),
        item("tests/crash/test_slow.py::test_one", slow=True),
        item("tests/model/test_few.py::test_one"),
        item("tests/spark/test_calls.py::test_one[a/b::c]"),
        item("tests/crash/test_slow.py::test_two"),
        item("tests/spark/test_source.py::test_one"),
    ]

    longest_group_first(items)

    assert [one.nodeid.removeprefix("tests/") for one in items] == [
        "spark/test_calls.py::test_one[a/b::c]",
        "spark/test_source.py::test_one",
        "crash/test_slow.py::test_one",
        "crash/test_slow.py::test_two",
        "api/test_many.py::test_one",
        "api/test_many.py::test_two",
        "model/test_few.py::test_one",
    ]


def test_all_tests_of_spark_are_one_group_and_those_of_another_file_are_another() -> None:
    assert group_of("tests/spark/test_calls.py::test_one") == group_of("tests/spark/x/test_b.py::t")
    assert group_of("tests/spark_like/test_a.py::test_one") == "tests/spark_like/test_a.py"
    assert group_of("tests/api/test_a.py::test_one[tests/spark/b]") == "tests/api/test_a.py"
