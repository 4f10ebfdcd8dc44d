"""One start of the program, and the time of its kill."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from random import Random
from typing import Final

import msgspec

from bench.crash.cpu import Stopwatch
from bench.crash.program import Note
from bench.crash.settings import Settings

_PROJECT: Final = Path(__file__).parents[2]
#: Seconds between two checks of a program.
_CHECK_EVERY: Final = 0.002
#: Timeout in seconds of a program that neither ends nor reaches the point of its kill, without those in which it waits
#: for a CPU.
_TIMEOUT: Final = 120.0


class ProgramFailed(Exception):
    """The program ended with an error or hangs, without a kill: a bug of aflow."""


class From(Enum):
    """Start of the delay of a kill."""

    START = "start of the process"
    RUNNING = "start of the job"
    CHECKPOINT = "completion of a checkpoint"


@dataclass(frozen=True, slots=True)
class Kill:
    """Time of a kill: ``delay`` seconds after ``counted_from``; for checkpoints, after the ``nth`` of this
    attempt."""

    counted_from: From
    delay: float
    nth: int = 1


@dataclass(frozen=True, slots=True)
class Attempt:
    """Result of one start."""

    parallelism: int
    killed: bool
    notes: tuple[Note, ...]

    @property
    def ran(self) -> bool:
        """True if the program was killed while the job ran."""
        return any(note.running for note in self.notes)

    @property
    def restored(self) -> int | None:
        """Checkpoint that the job restored."""
        return next((note.restored for note in self.notes if note.restored is not None), None)

    @property
    def in_flight(self) -> dict[int, int]:
        """Completed checkpoints, and the number of records in flight in each."""
        return {note.completed: note.in_flight for note in self.notes if note.completed is not None}

    @property
    def failed_checkpoints(self) -> list[str]:
        """Reasons of failed checkpoints."""
        return [note.failed for note in self.notes if note.failed is not None]


def random_kill(random: Random, *, longest: float) -> Kill:
    """Return a random time: while the program starts, while the job runs, or right after a checkpoint."""
    draw = random.random()
    if draw < 0.15:
        return Kill(From.START, random.uniform(0.0, 0.6))
    if draw < 0.7:
        return Kill(From.RUNNING, random.uniform(0.0, longest))
    return Kill(From.CHECKPOINT, random.uniform(0.0, 0.03), random.randint(1, 6))


def attempt(settings: Settings, log: Path, kill: Kill | None) -> Attempt:
    """Start the program and kill it, or let it end if ``kill`` is None. ``log`` receives its output.

    Raises ``ProgramFailed``.
    """
    errors = log.with_suffix(".err")
    with log.open("wb") as out, errors.open("wb") as err:
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.crash.program", settings.as_json()],
            cwd=_PROJECT,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
        )
        try:
            _wait_for_kill(process, log, kill)
        finally:
            process.kill()
            process.wait()
    if process.returncode not in (0, -signal.SIGKILL):
        raise ProgramFailed(f"it ended with {process.returncode}:\n{errors.read_text()[-3000:]}")
    return Attempt(settings.parallelism, process.returncode == -signal.SIGKILL, notes(log))


def notes(log: Path) -> tuple[Note, ...]:
    """Return the notes of a program so far."""
    lines = log.read_bytes().split(b"\n")[:-1]
    return tuple(msgspec.json.decode(line, type=Note) for line in lines)


def _wait_for_kill(process: subprocess.Popen[bytes], log: Path, kill: Kill | None) -> None:
    """Return when the process has ended or has to be killed. Raises ``ProgramFailed`` after a timeout."""
    watch = Stopwatch(process.pid)
    size = -1
    while process.poll() is None:
        # The whole log is decoded only if it has grown.
        before, size = size, log.stat().st_size
        if kill is not None and size != before and _is_reached(kill, log):
            _wait(process, kill.delay)
            return
        if watch.elapsed > _TIMEOUT and watch.seconds > _TIMEOUT:
            raise ProgramFailed(
                f"it hangs: {watch.elapsed:.0f} s, of which it waited {watch.without_cpu:.0f} s for a CPU; "
                f"its last notes: {notes(log)[-5:]}"
            )
        time.sleep(_CHECK_EVERY)


def _is_reached(kill: Kill, log: Path) -> bool:
    """Return True if the delay has started."""
    match kill.counted_from:
        case From.START:
            return True
        case From.RUNNING:
            return any(note.running for note in notes(log))
        case From.CHECKPOINT:
            return sum(note.completed is not None for note in notes(log)) >= kill.nth


def _wait(process: subprocess.Popen[bytes], seconds: float) -> None:
    with suppress(subprocess.TimeoutExpired):
        process.wait(seconds)
