"""Faults of tasks: which attempt at a task gets which fault at which point. This is decided by a seed alone.

``faulty_worker`` applies them on executors. It records attempts in files, which the rig counts.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from enum import Enum
from pathlib import Path
from random import Random
from typing import Final

import msgspec

#: The file with the ``TaskFaults`` of a round, in its folder.
_SETTINGS: Final = "faults.json"
#: The folder with a file for each fault and each repeated attempt, and that with one for each attempt that runs.
_RECORDS: Final = "faults"
_RUNNING: Final = "running"
#: The kind of the record of an attempt that is not the first one of its task.
REPEATED: Final = "REPEATED"
#: Seconds between two looks at attempts that run.
_LOOK: Final = 0.02


class Fault(Enum):
    """A fault of an attempt at a task."""

    WORKER = "Python worker killed"
    DAEMON = "parent of the Python workers killed"
    EXECUTOR = "executor killed"
    ORPHANED = "executor killed, its worker continues"
    DELAY = "task delayed"

    @property
    def is_kill(self) -> bool:
        """True if processes are killed."""
        return self is not Fault.DELAY


class Point(Enum):
    """A point of a task."""

    START = "before the task"
    INPUT = "rows are read"
    RESULTS = "results are written"
    STATE = "state is written"
    REPORT = "all rows are sent"
    TIME = "a random time"


class PlannedFault(msgspec.Struct, frozen=True):
    """A fault of one attempt."""

    fault: Fault
    point: Point
    seconds: float
    """Delay, of the task or of the kill at a random time."""


class TaskFaults(msgspec.Struct, frozen=True, kw_only=True):
    """Faults of the attempts of a round."""

    seed: str
    shares: dict[Fault, float]
    """Share of the attempts that get a fault."""
    longest: float
    """Longest delay in seconds."""
    most: int = 2
    """Most faults of one task: Spark gives up after a number of failures."""

    def planned(self, place: str, struck: int) -> PlannedFault | None:
        """Return the fault of an attempt at the task ``place``, which had ``struck`` faults; None if it has none."""
        if struck >= self.most:
            return None
        random = Random(f"{self.seed} {place} {struck}")
        draw = random.random()
        for fault, share in self.shares.items():
            draw -= share
            if draw < 0.0:
                point = random.choice(list(Point))
                return PlannedFault(fault, point, random.uniform(0.0, self.longest))
        return None


def write_faults(folder: Path, faults: TaskFaults) -> None:
    """Let the tasks of the round in ``folder`` have ``faults``."""
    for name in (_RECORDS, _RUNNING):
        (folder / name).mkdir()
    (folder / _SETTINGS).write_bytes(msgspec.json.encode(faults))


def faults_of(folder: Path) -> TaskFaults | None:
    """Return the faults of the round in ``folder``; None if it has none."""
    try:
        return msgspec.json.decode((folder / _SETTINGS).read_bytes(), type=TaskFaults)
    except FileNotFoundError:
        return None


def record(folder: Path, kind: str, attempt: str) -> None:
    """Record an event of an attempt, whose name begins with its task and a blank."""
    (folder / _RECORDS / f"{kind} {attempt}").touch()


def strikes_at(folder: Path, place: str) -> int:
    """Return the number of faults that the task ``place`` has had."""
    found = (path.name.split(" ") for path in (folder / _RECORDS).iterdir())
    return sum(name[1] == place and name[0] != REPEATED for name in found)


def running_mark(folder: Path, process: int) -> Path:
    """Return the path of the file that shows that a process runs an attempt."""
    return folder / _RUNNING / str(process)


def counted_faults(folder: Path) -> Counter[str]:
    """Return the number of faults by kind and by point, and of repeated attempts."""
    found = Counter[str]()
    if (folder / _RECORDS).is_dir():
        for path in (folder / _RECORDS).iterdir():
            found[path.name.partition(" ")[0]] += 1
    return found


def wait_for_attempts(folder: Path, seconds: float) -> None:
    """Wait until no attempt runs: one may outlive the stream. Raises ``TimeoutError`` after ``seconds``."""
    deadline = time.monotonic() + seconds
    while running := list(_alive(folder)):
        if time.monotonic() > deadline:
            raise TimeoutError(f"attempts at tasks still run in processes {running}")
        time.sleep(_LOOK)


def _alive(folder: Path) -> Iterator[int]:
    if not (folder / _RUNNING).is_dir():
        return
    for path in (folder / _RUNNING).iterdir():
        with suppress(OSError):
            state = Path("/proc", path.name, "stat").read_text().rpartition(")")[2].split()[0]
            if state not in "ZX":
                yield int(path.name)
