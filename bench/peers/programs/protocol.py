"""The form of a program of a peer: functions by job, the task that they get, and the outcome that is written as JSON.

Only the standard library is used, here and in ``bench.harness``: they are imported in the environment of each peer.
"""

from __future__ import annotations

import gc
import hashlib
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from bench.harness import percentile

#: Seconds of a call of the jobs ``calls_…``.
CALL = 0.01
#: Events per second of the job ``latency``.
RATE = 5_000


@dataclass(frozen=True)
class Task:
    """A job, and its input."""

    job: str
    records: int
    folder: str
    """An empty folder for files of this run."""
    events: str = ""
    """A file of JSON lines for the jobs ``files`` and ``checkpoints``."""
    in_flight: int = 0
    """Calls at once."""

    @property
    def place(self) -> Path:
        """The folder as a path."""
        return Path(self.folder)


@dataclass
class Outcome:
    """Result of a program, and its time."""

    result: Any
    """An integer, or rows ``(key, start of the window, count, sum)``; equal for all peers."""
    seconds: float = 0.0
    """Time of the run. 0: that of the whole function, which ``main`` measures."""
    delays: Sequence[float] = field(default_factory=list[float])
    """Seconds from the intended sending of each event to its arrival: job ``latency``."""
    settings: str = ""
    """Settings that are not the defaults of the peer."""

    @classmethod
    def of_delays(cls, delays: Sequence[float], settings: str = "") -> Outcome:
        """Return the outcome of the job ``latency``, whose result is the number of events that have arrived."""
        return cls(len(delays), delays=delays, settings=settings)


Run = Callable[[], Outcome]
Prepare = Callable[[Task], Run]
"""Makes the input of a job, which is not timed, and returns the function that is."""


def main(package: str, programs: Mapping[str, Prepare]) -> None:
    """Run the task in the file ``sys.argv[1]`` and write the outcome to the file ``sys.argv[2]``."""
    task = Task(**json.loads(Path(sys.argv[1]).read_text()))
    run = programs[task.job](task)
    gc.collect()
    began = time.perf_counter()
    outcome = run()
    seconds = outcome.seconds or time.perf_counter() - began
    Path(sys.argv[2]).write_text(
        json.dumps(
            {
                "seconds": seconds,
                "digest": digest(outcome.result),
                "delays": _percentiles(list(outcome.delays)),
                "settings": outcome.settings,
                "version": version(package) if package else sys.version.split()[0],
            }
        )
    )


def digest(result: Any) -> str:
    """Return a short text that is equal for equal results, integers or rows; the order of rows does not count."""
    if isinstance(result, int):
        return str(result)
    rows = sorted(
        [str(key), int(start), int(count), int(total)] for key, start, count, total in result
    )
    return f"{len(rows)} rows {hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16]}"


def _percentiles(delays: list[float]) -> dict[str, float]:
    """Return percentiles in milliseconds."""
    if not delays:
        return {}
    return {f"p{share}": round(percentile(delays, share / 100) * 1000, 3) for share in (50, 99)}


def write_task(task: Task, path: Path) -> None:
    """Write the task to a file that ``main`` reads."""
    path.write_text(json.dumps(asdict(task)))
