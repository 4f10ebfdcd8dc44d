"""The base of the test suite: requirements, the check of leftovers, and the processes that run it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import pytest

from tests import processes
from tests.processes import group_of, longest_group_first

CONFTEST = Path(__file__).with_name("conftest.py")
#: Hypothesis computes the characters of text once, not in each folder: it takes 2 s.
HYPOTHESIS = {"HYPOTHESIS_STORAGE_DIRECTORY": str(CONFTEST.parents[1] / ".hypothesis")}
NEEDS_WHAT_IS_NOT_THERE = """
import pytest

@pytest.mark.slow
def test_it(require):
    require("no-such-program", "apt-get install it")
"""
LEAVES_A_THREAD = """
import threading

class Endless(threading.Thread):
    def run(self):
        threading.Event().wait()

    def join(self, timeout=None):
        assert timeout is not None  # the test of this file does not wait for so long

def test_it():
    Endless(daemon=True).start()
"""


WRITES_ITS_PROCESS = """
import os
import pytest

@pytest.mark.parametrize("number", range(6))
def test_it(number):
    with open(__file__ + ".processes", "a") as file:
        print(os.environ["PYTEST_XDIST_WORKER"], number, file=file)
"""

#: Tests with each outcome. Those that fail print in their setup and in their teardown.
OUTCOMES = """
import pytest

def test_passes(): ...

@pytest.fixture
def printing():
    print("before the failure")
    yield
    print("after the failure")

def test_fails(printing):
    raise AssertionError("on purpose")

@pytest.fixture
def skipping():
    pytest.skip("on purpose")

def test_is_skipped(skipping): ...

@pytest.fixture
def broken():
    yield
    raise ValueError("on purpose")

def test_fails_in_its_teardown(broken): ...
"""

#: Tests that take processor time of their process or of one that they start, and tests that need no line in the list.
BUSY = """
import subprocess
import sys
import time
import pytest

WORK = "import time; end = time.process_time() + 1.2\\nwhile time.process_time() < end: pass"

def test_a_busy_process():
    exec(WORK)

def test_a_busy_child():
    subprocess.run([sys.executable, "-c", WORK], check=True)

@pytest.mark.slow
def test_a_marked_one():
    exec(WORK)

def test_one_that_waits():
    time.sleep(1.2)

@pytest.fixture
def spark(): ...

def test_on_spark(spark): ...
"""


#: Properties that count their examples or exceed their limit on time, and a synchronization of a file that is not open.
COSTLY = """
import os
import time
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

examples = {"function": 0, "rules": 0}

@settings(max_examples=80)
@given(st.integers())
def test_a_function(number):
    examples["function"] += 1

@pytest.mark.parametrize("parameter", ["a", "b", "c"])
@settings(max_examples=72)
@given(st.integers())
def test_a_function_with_parameters(parameter, number):
    examples[parameter] = examples.get(parameter, 0) + 1

class Rules(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        examples["rules"] += 1

    @rule()
    def step(self): ...

Rules.TestCase.settings = settings(max_examples=80, stateful_step_count=2)
TestRules = Rules.TestCase

@settings(max_examples=2, deadline=1, suppress_health_check=[])
@given(st.integers())
def test_slow_examples(number):
    time.sleep(0.01)

def test_the_numbers_of_examples():
    print(sorted(examples.items()))

def test_the_constants_of_imported_modules():
    from hypothesis.internal.conjecture import providers
    print("constants of modules:", len(providers._get_local_constants()) > 0)

def test_a_file_that_is_closed():
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fsync(10_000)
"""


def outcome(folder: Path, source: str | Mapping[str, str], *options: str, ci: str = "") -> str:
    """Return the output of pytest for ``source`` with our conftest, in a process of its own.

    ``source`` is the code of a file, or of several by name.
    """
    (folder / "conftest.py").write_text(CONFTEST.read_text(encoding="utf-8"), encoding="utf-8")
    for name, code in ({"test_it": source} if isinstance(source, str) else source).items():
        (folder / f"{name}.py").write_text(code, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", *options, "."]
    env = {"CI": ci, **HYPOTHESIS}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    return done.stdout


#: Files that are run together, since starting pytest takes longer than their tests.
TOGETHER = {
    "test_needs": NEEDS_WHAT_IS_NOT_THERE,
    "test_thread": LEAVES_A_THREAD,
    "test_busy": BUSY,
}


@pytest.fixture(scope="module")
def of_a_developer(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The output of ``TOGETHER`` on the machine of a developer."""
    return outcome(tmp_path_factory.mktemp("together"), TOGETHER)


@pytest.fixture(scope="module")
def slow_in_ci(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The output of the slow tests of ``TOGETHER`` in CI."""
    folder = tmp_path_factory.mktemp("together")
    return outcome(folder, TOGETHER, "-m", "slow", "-rA", ci="true")


@pytest.mark.slow
def test_a_missing_requirement_skips_a_test_on_the_machine_of_a_developer(
    of_a_developer: str,
) -> None:
    assert re.search(r"6 passed, 1 skipped,.* 1 error", of_a_developer)
    assert "no-such-program is neither" in of_a_developer
    assert "apt-get install it" in of_a_developer


@pytest.mark.slow
def test_a_missing_requirement_fails_a_test_in_ci(slow_in_ci: str) -> None:
    assert "1 failed, 2 passed" in slow_in_ci
    assert "FAILED test_needs.py::test_it - Failed: no-such-program is neither" in slow_in_ci


@pytest.mark.slow
def test_a_test_that_leaves_a_thread_running_does_not_pass(of_a_developer: str) -> None:
    assert "ERROR at teardown of test_it" in of_a_developer
    assert "the test left <Endless" in of_a_developer


@pytest.mark.slow
def test_a_test_of_more_than_a_second_that_lacks_the_mark_slow_is_listed(
    of_a_developer: str,
) -> None:
    _, _, listed = of_a_developer.partition("tests of more than a second that lack the mark slow")
    names = re.findall(r"^\d\.\d s test_busy\.py::(\w+)$", listed, re.MULTILINE)
    assert sorted(names) == ["test_a_busy_child", "test_a_busy_process"]


@pytest.mark.slow
def test_a_test_with_a_session_of_spark_has_the_mark_slow(slow_in_ci: str) -> None:
    names = re.findall(r"^PASSED test_busy\.py::(\w+)$", slow_in_ci, re.MULTILINE)
    assert sorted(names) == ["test_a_marked_one", "test_on_spark"]


@pytest.mark.slow
def test_properties_have_no_limit_on_time_and_as_many_examples_as_the_profile_says(
    tmp_path: Path,
) -> None:
    few = outcome(tmp_path, COSTLY, "--hypothesis-profile=unit", "-rP")
    a_quarter_of_them = outcome(tmp_path, COSTLY, "-rP")
    all_of_them = outcome(tmp_path, COSTLY, "--hypothesis-profile=all", "-rP")

    for said in (few, a_quarter_of_them, all_of_them):
        assert "9 passed" in said
    assert "constants of modules: False" in few
    assert "constants of modules: False" in a_quarter_of_them
    assert "constants of modules: True" in all_of_them
    assert "[('a', 10), ('b', 10), ('c', 10), ('function', 10), ('rules', 10)]" in few
    assert "[('a', 18), ('b', 18), ('c', 18), ('function', 20), ('rules', 20)]" in a_quarter_of_them
    assert "[('a', 72), ('b', 72), ('c', 72), ('function', 80), ('rules', 80)]" in all_of_them


def checked(folder: Path, code: int, *options: str) -> subprocess.CompletedProcess[str]:
    """Run the tests in ``folder`` with ``--type-checks``. The checkers print "checked types" and end with ``code``."""
    (folder / "conftest.py").write_text(CONFTEST.read_text(encoding="utf-8"), encoding="utf-8")
    make = folder / "make"
    make.write_text(f"#!/bin/sh\necho checked $2; exit {code}\n", encoding="utf-8")
    make.chmod(0o755)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--type-checks"]
    return subprocess.run(
        [*command, *options, "."],
        cwd=folder,
        env={"PATH": f"{folder}:{os.environ['PATH']}", **HYPOTHESIS},
        capture_output=True,
        text=True,
    )


@pytest.mark.slow
def test_the_tests_of_a_file_run_in_one_process_in_order_beside_the_type_checkers(
    tmp_path: Path,
) -> None:
    pytest.importorskip("xdist", reason="'make test' needs pytest-xdist")
    files = [tmp_path / f"test_{name}.py" for name in "abc"]
    for file in files:
        file.write_text(WRITES_ITS_PROCESS, encoding="utf-8")

    done = checked(tmp_path, 0, "-n", "2")

    assert "checked types\n18 passed" in done.stdout, done.stdout + done.stderr
    assert done.returncode == 0
    for file in files:
        lines = Path(f"{file}.processes").read_text(encoding="utf-8").split()
        assert len(set(lines[::2])) == 1
        assert lines[1::2] == list("012345")


@pytest.mark.slow
def test_each_outcome_of_a_process_is_reported_with_its_output(tmp_path: Path) -> None:
    pytest.importorskip("xdist", reason="'make test' needs pytest-xdist")

    said = outcome(tmp_path, OUTCOMES, "-n", "1")
    times = outcome(tmp_path, OUTCOMES, "-n", "1", "--durations=0", "--durations-min=0")

    for one in (said, times):
        assert re.search(r"1 failed, 2 passed, 1 skipped, 1 error", one), one
        assert "before the failure" in one
        assert "after the failure" in one
    assert re.search(r"s teardown test_it.py::test_passes", times), times


@pytest.mark.slow
def test_a_failure_of_the_type_checkers_fails_a_run_that_passes(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("def test_it(): ...", encoding="utf-8")

    done = checked(tmp_path, 2)

    assert done.returncode == 1, done.stdout + done.stderr
    assert "checked types\n1 passed" in done.stdout


class Collected:
    """Attributes of a collected test that the distribution reads."""

    def __init__(self, nodeid: str, *, slow: bool = False) -> None:
        self.nodeid = nodeid
        self._marks = {"slow": pytest.mark.slow.mark} if slow else {}

    def get_closest_marker(self, name: str) -> pytest.Mark | None:
        return self._marks.get(name)


def test_the_tests_of_spark_are_first_and_then_files_with_many_slow_tests() -> None:
    found = [
        Collected("tests/api/test_many.py::test_one"),
        Collected("tests/api/test_many.py::test_two"),
        Collected("tests/crash/test_slow.py::test_one", slow=True),
        Collected("tests/model/test_few.py::test_one"),
        Collected("tests/spark/test_calls.py::test_one[a/b::c]"),
        Collected("tests/crash/test_slow.py::test_two"),
        Collected("tests/spark/test_source.py::test_one"),
    ]

    items = cast("list[pytest.Item]", found)
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


@pytest.mark.parametrize("folder", ["spark", "examples/flights"])
def test_all_tests_that_share_fixtures_are_one_group(folder: str) -> None:
    one, other = f"tests/{folder}/test_a.py::test_one", f"tests/{folder}/x/test_b.py::test_two"

    assert group_of(one) == group_of(other) == f"tests/{folder}"


def test_the_tests_of_another_file_are_another_group() -> None:
    assert group_of("tests/spark_like/test_a.py::test_one") == "tests/spark_like/test_a.py"
    assert group_of("tests/api/test_a.py::test_one[tests/spark/b]") == "tests/api/test_a.py"


@pytest.mark.slow
def test_logical_is_as_many_processes_as_there_are_processors_and_auto_one_more() -> None:
    command = [sys.executable, "-m", "pytest", "-n", "logical", "tests/model/test_key_groups.py"]

    done = subprocess.run(
        command, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=True
    )

    assert processes.number("auto") in (processes.number("logical") + 1, processes.MOST)
    assert re.search(rf"\b{processes.number('logical')} workers? \[", done.stdout)
