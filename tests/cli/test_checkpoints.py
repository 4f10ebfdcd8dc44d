"""``aflow run`` with checkpoints: killed, interrupted and failed runs, and the runs that continue from them."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import orjson
import pytest

from tests.architecture.rooms import PROJECT
from tests.cli.conftest import Aflow, Write

#: Numbers from a file, slowly; if a file "wait" exists the source waits at its end for ever. Sums by the last digit
#: are written to a file, and the count of an hourly window, which only the end of event time closes, to another.
SUMS = """
    import asyncio
    from collections.abc import Sequence
    from datetime import timedelta
    from pathlib import Path
    import aflow as af
    from aflow.connect import Chunk, Reader, Source, Split
    from aflow_connectors.files import JsonLinesSink

    class Numbers(Source[int]):
        async def splits(self):
            return [Split("numbers")]

        async def reader(self, split, position):
            return Lines(position or 0)

    class Lines(Reader[int]):
        def __init__(self, at):
            self.at = at

        async def read(self, limit):
            lines = Path("numbers.txt").read_text().split()
            if self.at == len(lines):
                if Path("wait").exists():
                    print("waiting", flush=True)
                    await asyncio.Event().wait()
                return None
            await asyncio.sleep(0.002)
            self.at += 1
            return Chunk([int(lines[self.at - 1])], self.at)

    def seen(number):
        print("seen", number, flush=True)
        if number == 50 and Path("fail").exists():
            Path("fail").unlink()
            raise ValueError("fifty")
        return number

    def build(step: str = "sum") -> af.Flow:
        flow = af.Flow("sums")
        numbers = flow.source(Numbers(), name="numbers").event_time(lambda number: number, name="time").map(seen)
        sums = numbers.key_by(lambda number: number % 10).fold(int, lambda total, number: total + number, name=step)
        sums.to(JsonLinesSink("sums.jsonl"), name="sums")
        windows = numbers.key_by(lambda number: "all").window(af.Tumbling(timedelta(hours=1)))
        counts = windows.fold(int, lambda count, _: count + 1, name="count").map(lambda one: one.value, name="value")
        counts.to(JsonLinesSink("counts.jsonl"), name="counts")
        return flow
"""

#: Longer than any machine needs, so a process that hangs fails its test only.
LIMIT_S = 300

COUNT = 200

CHECKPOINTS = ("--checkpoint-dir", "state", "--checkpoint-every", "20ms")

Start: TypeAlias = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(write: Write, tmp_path: Path) -> Iterator[Start]:
    """Start ``aflow run sums:build`` with options; kill the processes that still run at the end of the test."""
    write("sums", SUMS)
    started: list[subprocess.Popen[str]] = []

    def run(*options: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "aflow", "run", "sums:build", *options],
            cwd=tmp_path,
            env={"PYTHONPATH": str(PROJECT), "PATH": ""},
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


def numbers(folder: Path, count: int = COUNT) -> None:
    (folder / "numbers.txt").write_text("\n".join(map(str, range(count))))


def wait_for(line: str, process: subprocess.Popen[str]) -> None:
    """Read the output of ``process`` up to ``line``."""
    assert process.stdout is not None
    for printed in process.stdout:
        if printed == f"{line}\n":
            return
    raise AssertionError(f"{process.args!r} ended without printing {line!r}")


def ended(process: subprocess.Popen[str]) -> str:
    """Return the stderr of ``process`` after its successful end."""
    _, stderr = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0, stderr
    return stderr


def rows(folder: Path, name: str) -> list[int]:
    """Return the rows in all files of a sink, which writes one for each checkpoint."""
    files = [path.read_text() for path in folder.glob(f"{name}*.jsonl")]
    return sorted(orjson.loads(line) for lines in files for line in lines.splitlines())


def sums(count: int = COUNT) -> list[int]:
    totals = [0] * 10
    found: list[int] = []
    for number in range(count):
        totals[number % 10] += number
        found.append(totals[number % 10])
    return sorted(found)


@pytest.mark.slow
@pytest.mark.parametrize("barriers", ["aligned", "unaligned", "5ms"])
def test_a_killed_run_has_no_effect_on_the_results_of_the_next_one(
    start: Start, tmp_path: Path, barriers: str
) -> None:
    options = (*CHECKPOINTS, "--barriers", barriers, "--parallelism", "2")
    (tmp_path / "wait").touch()
    for seen in (60, 130):
        numbers(tmp_path, seen + 40)  # the end of them is no end of the run
        killed = start(*options)
        wait_for(f"seen {seen}", killed)
        killed.kill()
        killed.wait(LIMIT_S)

    (tmp_path / "wait").unlink()
    numbers(tmp_path)
    ended(start(*options))

    assert rows(tmp_path, "sums") == sums()
    assert rows(tmp_path, "counts") == [COUNT]


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM], ids=lambda one: one.name)
def test_ctrl_c_pauses_and_the_next_run_continues(
    start: Start, tmp_path: Path, sent: signal.Signals
) -> None:
    numbers(tmp_path, 30)
    (tmp_path / "wait").touch()
    paused = start(*CHECKPOINTS)
    wait_for("waiting", paused)
    paused.send_signal(sent)
    stderr = ended(paused)
    assert [line.partition(":")[0] for line in stderr.splitlines()] == ["stopping", "stopped"]
    assert rows(tmp_path, "counts") == []
    assert rows(tmp_path, "sums") == sums(30)

    (tmp_path / "wait").unlink()
    numbers(tmp_path, 60)
    stderr = ended(start(*CHECKPOINTS))

    assert stderr.startswith("continuing from checkpoint")
    assert rows(tmp_path, "sums") == sums(60)
    assert rows(tmp_path, "counts") == [60]


@pytest.mark.slow
def test_from_fresh_starts_at_the_beginning(start: Start, tmp_path: Path) -> None:
    numbers(tmp_path, 20)
    ended(start(*CHECKPOINTS))
    for written in tmp_path.glob("*.jsonl"):
        written.unlink()

    stderr = ended(start(*CHECKPOINTS, "--from", "fresh"))

    assert stderr == ""
    assert rows(tmp_path, "sums") == sums(20)


@pytest.mark.slow
def test_a_failed_run_restarts_and_says_so(start: Start, tmp_path: Path) -> None:
    numbers(tmp_path)
    (tmp_path / "fail").touch()

    stderr = ended(start(*CHECKPOINTS, "--restarts", "1", "--metrics"))

    assert "failed, restarting in 1 s: " in stderr
    assert "restarts: 1; the numbers of steps are since the last one" in stderr
    assert re.search(r"waited \d+ ms for the first barrier and \d+ ms for the others", stderr)
    assert "fifty" in stderr
    assert rows(tmp_path, "sums") == sums()
    assert rows(tmp_path, "counts") == [COUNT]


@pytest.mark.slow
def test_without_restarts_a_failure_ends_the_run_and_the_next_one_continues(
    start: Start, tmp_path: Path
) -> None:
    numbers(tmp_path)
    (tmp_path / "fail").touch()
    failed = start(*CHECKPOINTS)
    _, stderr = failed.communicate(timeout=LIMIT_S)
    assert failed.returncode == 1
    assert "fifty" in stderr
    assert "Traceback" not in stderr

    ended(start(*CHECKPOINTS))

    assert rows(tmp_path, "sums") == sums()


@pytest.mark.slow
def test_state_of_a_removed_step_is_dropped_only_on_demand(start: Start, tmp_path: Path) -> None:
    numbers(tmp_path, 20)
    (tmp_path / "wait").touch()
    paused = start(*CHECKPOINTS)
    wait_for("waiting", paused)
    paused.send_signal(signal.SIGINT)
    ended(paused)
    (tmp_path / "wait").unlink()

    refused = start(*CHECKPOINTS, "--step", "total")
    _, stderr = refused.communicate(timeout=LIMIT_S)
    assert refused.returncode == 1
    assert "sum" in stderr
    assert "allow_dropped_state" in stderr
    assert "Traceback" not in stderr

    ended(start(*CHECKPOINTS, "--step", "total", "--allow-dropped-state"))
    assert rows(tmp_path, "counts") == [20]


@pytest.mark.slow
def test_two_runs_cannot_share_a_folder_and_the_second_names_the_first(
    start: Start, tmp_path: Path
) -> None:
    numbers(tmp_path, 5)
    (tmp_path / "wait").touch()
    first = start(*CHECKPOINTS)
    wait_for("waiting", first)

    second = start(*CHECKPOINTS)
    _, stderr = second.communicate(timeout=LIMIT_S)

    assert second.returncode == 1
    assert f"process {first.pid}" in stderr
    assert "Traceback" not in stderr


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--barriers", "sideways"], "--barriers takes aligned, unaligned or a duration"),
        (["--barriers", "0x"], "--barriers takes aligned, unaligned or a duration"),
        (["--checkpoint-every", "banana"], "banana"),
        (["--checkpoint-every", "0s"], "Checkpointing.every"),
        (["--restarts", "-1"], "-1"),
        (["--from", "no such folder"], "no such folder"),
    ],
)
def test_wrong_values_get_one_clear_sentence(
    write: Write, aflow: Aflow, tmp_path: Path, options: list[str], sentence: str
) -> None:
    write("sums", SUMS)
    numbers(tmp_path, 3)

    result = aflow("run", "sums:build", "--checkpoint-dir", "state", *options)

    assert result.exit_code != 0
    assert sentence in result.output
    assert "Traceback" not in result.output
    assert len(result.output.split("Error: ")) == 2


@pytest.mark.parametrize(
    "options",
    [
        ["--from", "savepoint"],
        ["--barriers", "unaligned"],
        ["--checkpoint-every", "1s"],
        ["--allow-dropped-state"],
    ],
)
def test_options_about_checkpoints_need_a_folder(
    write: Write, aflow: Aflow, tmp_path: Path, options: list[str]
) -> None:
    write("sums", SUMS)
    numbers(tmp_path, 3)

    before, after = aflow("run", *options, "sums:build"), aflow("run", "sums:build", *options)

    for result in (before, after):
        assert result.exit_code == 2
        assert f"{options[0]}" in result.output
        assert "needs --checkpoint-dir FOLDER as well" in result.output
