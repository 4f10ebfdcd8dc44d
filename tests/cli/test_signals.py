"""Ctrl-C and SIGTERM, sent to a real process; its output shows when it is ready for them."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from tests.architecture.rooms import PROJECT
from tests.cli.conftest import Write

#: A source that emits three records and then waits for ever; an hourly window that only the end of event time closes.
#: A slow sink opens when it has read a line from stdin.
FOREVER = """
    import asyncio
    import sys
    from datetime import timedelta
    import aflow as af

    async def forever():
        for number in range(3):
            yield number
        await asyncio.Event().wait()

    def seen(number):
        print("seen", number, flush=True)
        return number

    class Slow(af.CallbackSink):
        async def writer(self, context):
            print("opening", flush=True)
            await asyncio.to_thread(sys.stdin.readline)
            return await super().writer(context)

    def build(stuck: bool = False, fails: bool = False, slow: bool = False) -> af.Flow:
        async def write(total):
            print("total", total.value // (0 if fails else 1), flush=True)
            if stuck:
                await asyncio.Event().wait()

        flow = af.Flow("forever")
        (flow.source(forever(), name="forever").event_time(lambda number: number).map(seen).key_by(lambda number: "all")
         .window(af.Tumbling(timedelta(hours=1))).fold(int, lambda total, number: total + number, name="totals")
         .to((Slow if slow else af.CallbackSink)(write), name="out"))
        return flow
"""

#: A sink that never returns from its first record and prints each signal: the system merges two pending signals.
ENDLESS = """
    import os
    import signal
    import aflow as af
    from aflow_connectors.files import JsonLinesSink

    def endless(number):
        handle = signal.getsignal(signal.SIGINT)

        def tell(*signal):
            os.write(1, b"interrupted\\n")  # a second signal may come in the middle of a print
            handle(*signal)

        signal.signal(signal.SIGINT, tell)
        print("endless", flush=True)
        while True:
            pass

    flow = af.Flow("endless")
    numbers = flow.source([1, 2])
    numbers.to(JsonLinesSink("numbers.jsonl"))
    numbers.to(af.CallbackSink(endless))
"""

#: Longer than any machine needs, so a process that hangs fails its test only.
LIMIT_S = 300

Start: TypeAlias = Callable[..., "subprocess.Popen[str]"]

pytestmark = pytest.mark.parametrize("loop", [(), ("--no-uvloop",)], ids=["uvloop", "asyncio"])


@pytest.fixture
def start(write: Write, tmp_path: Path, loop: tuple[str, ...]) -> Iterator[Start]:
    """Start ``aflow run`` with options for the target; kill the processes that still run at the end of the test."""
    write("forever", FOREVER)
    started: list[subprocess.Popen[str]] = []

    def run(*options: str, target: str = "forever:build") -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "aflow", "run", *loop, target, *options],
            cwd=tmp_path,
            env={"PYTHONPATH": str(PROJECT), "PATH": ""},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield run

    for process in started:
        process.kill()
        process.communicate()


def wait_for(line: str, process: subprocess.Popen[str]) -> None:
    """Read the output of ``process`` up to ``line``."""
    assert process.stdout is not None
    for printed in process.stdout:
        if printed == f"{line}\n":
            return
    raise AssertionError(f"{process.args!r} ended without printing {line!r}")


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM], ids=lambda one: one.name)
def test_the_first_signal_drains_and_says_so(start: Start, sent: signal.Signals) -> None:
    process = start()
    wait_for("seen 2", process)

    process.send_signal(sent)
    printed, stderr = process.communicate(timeout=LIMIT_S)

    assert printed == "total 3\n"
    assert [line.partition(":")[0] for line in stderr.splitlines()] == ["draining", "drained"]
    assert process.returncode == 0


def test_a_second_ctrl_c_stops_a_job_that_does_not_drain(start: Start) -> None:
    process = start("--stuck")
    wait_for("seen 2", process)
    process.send_signal(signal.SIGINT)
    wait_for("total 3", process)

    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=LIMIT_S)

    assert [line.partition(":")[0] for line in stderr.splitlines()] == [
        "draining",
        "stopping at once",
    ]
    assert process.returncode == 130


def test_ctrl_c_after_sigterm_stops_at_once_and_a_second_sigterm_does_not(start: Start) -> None:
    process = start("--stuck")
    wait_for("seen 2", process)
    process.send_signal(signal.SIGTERM)
    wait_for("total 3", process)

    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=LIMIT_S)

    assert [line.partition(":")[0] for line in stderr.splitlines()] == [
        "draining",
        "stopping at once",
    ]
    assert process.returncode == 130


def test_a_failure_during_a_drain_fails_the_run(start: Start) -> None:
    process = start("--fails")
    wait_for("seen 2", process)

    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=LIMIT_S)

    assert process.returncode == 1
    assert "drained" not in stderr
    assert "Traceback" not in stderr
    assert "step 'out' failed" in stderr
    assert "at forever.py:24 in write" in stderr


def test_ctrl_c_twice_interrupts_a_function_that_never_returns(
    write: Write, start: Start, tmp_path: Path
) -> None:
    write("endless", ENDLESS)
    process = start(target="endless:flow")
    wait_for("endless", process)

    process.send_signal(signal.SIGINT)
    wait_for("interrupted", process)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=LIMIT_S)

    assert [line.partition(":")[0] for line in stderr.splitlines()] == [
        "draining",
        "stopping at once",
    ]
    assert process.returncode == 130
    assert not list(tmp_path.glob(".*.inprogress"))


def test_a_signal_during_the_start_drains_the_job_after_it(start: Start) -> None:
    process = start("--slow")
    wait_for("opening", process)
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    assert process.stderr.readline().startswith("draining")

    _, stderr = process.communicate("continue\n", timeout=LIMIT_S)

    assert stderr.startswith("drained")
    assert process.returncode == 0


def test_a_second_ctrl_c_stops_a_job_that_does_not_start(start: Start) -> None:
    process = start("--slow")
    wait_for("opening", process)
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    process.stderr.readline()

    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(
        "the thread that waits for a line keeps the process\n", timeout=LIMIT_S
    )

    assert stderr.startswith("stopping at once")
    assert process.returncode == 130
