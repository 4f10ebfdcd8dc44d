"""One start of the program, and the moment at which it is killed."""

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

from bench.crashing.program import Note
from bench.crashing.settings import Settings

_PROJECT: Final = Path(__file__).parents[2]
#: Seconds between two looks at a program.
_LOOK: Final = 0.002
#: Seconds after which a program hangs that neither ends nor gets to where it is to be killed.
_PATIENCE: Final = 120.0


class ProgramFailed(Exception):
    """The program ended with an error, or not at all: nobody killed it, so the engine is to blame."""


class From(Enum):
    """What the delay of a kill is counted from."""

    START = "the start of the process"
    RUNNING = "the moment when the job runs"
    CHECKPOINT = "a checkpoint that has completed"


@dataclass(frozen=True, slots=True)
class Kill:
    """When to kill: ``delay`` seconds from something; of checkpoints from the ``nth`` of this attempt."""

    counted_from: From
    delay: float
    nth: int = 1


@dataclass(frozen=True, slots=True)
class Attempt:
    """What became of one start."""

    parallelism: int
    killed: bool
    notes: tuple[Note, ...]

    @property
    def ran(self) -> bool:
        """True if the job ran when the program was killed."""
        return any(note.running for note in self.notes)

    @property
    def restored(self) -> int | None:
        """The checkpoint that the job went on from."""
        return next((note.restored for note in self.notes if note.restored is not None), None)

    @property
    def in_flight(self) -> dict[int, int]:
        """The checkpoints that have completed, and how many records in flight each of them holds."""
        return {note.completed: note.in_flight for note in self.notes if note.completed is not None}

    @property
    def failed_checkpoints(self) -> list[str]:
        """Why checkpoints failed."""
        return [note.failed for note in self.notes if note.failed is not None]


def random_kill(random: Random, *, longest: float) -> Kill:
    """Some moment: while the program starts, while the job runs, right behind a checkpoint."""
    draw = random.random()
    if draw < 0.15:
        return Kill(From.START, random.uniform(0.0, 0.6))
    if draw < 0.7:
        return Kill(From.RUNNING, random.uniform(0.0, longest))
    return Kill(From.CHECKPOINT, random.uniform(0.0, 0.03), random.randint(1, 6))


def attempt(settings: Settings, log: Path, kill: Kill | None) -> Attempt:
    """Start the program, kill it at the moment, or let it come to its end. ``log`` gets what it says.

    Raises ``ProgramFailed``.
    """
    errors = log.with_suffix(".err")
    with log.open("wb") as out, errors.open("wb") as err:
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.crashing.program", settings.as_json()],
            cwd=_PROJECT,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
        )
        try:
            _come_to_the_end(process, log, kill)
        finally:
            process.kill()
            process.wait()
    if process.returncode not in (0, -signal.SIGKILL):
        raise ProgramFailed(f"it ended with {process.returncode}:\n{errors.read_text()[-3000:]}")
    return Attempt(settings.parallelism, process.returncode == -signal.SIGKILL, notes(log))


def notes(log: Path) -> tuple[Note, ...]:
    """What a program has said so far."""
    lines = log.read_bytes().split(b"\n")[:-1]
    return tuple(msgspec.json.decode(line, type=Note) for line in lines)


def _come_to_the_end(process: subprocess.Popen[bytes], log: Path, kill: Kill | None) -> None:
    """Return when the process has ended, or is to be killed. Raises ``ProgramFailed`` if neither comes."""
    deadline = time.monotonic() + _PATIENCE
    while process.poll() is None:
        if kill is not None and _is_there(kill, log):
            _wait(process, kill.delay)
            return
        if time.monotonic() > deadline:
            raise ProgramFailed(f"it hangs; it has said {notes(log)[-5:]}")
        time.sleep(_LOOK)


def _is_there(kill: Kill, log: Path) -> bool:
    """True if that has happened from which the delay is counted."""
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
