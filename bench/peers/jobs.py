"""The jobs of the comparison, and their input."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.events import make_events
from bench.peers.programs.protocol import RATE, Task


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job that each peer does in its own way."""

    name: str
    description: str
    records: int
    in_flight: int = 0
    """Calls at once."""
    program: str = ""
    """Function of the programs; default: ``name``."""
    from_file: bool = False
    """True if the input is a file of JSON lines."""
    timed: bool = True
    """True if the figure is records/s, False if it is the latency at a fixed rate."""

    def task(self, folder: Path, records: int, events: Path) -> Task:
        """Return the task of one run in the empty ``folder``; ``events`` is the input file."""
        return Task(
            job=self.program or self.name,
            records=records,
            folder=str(folder),
            events=str(events) if self.from_file else "",
            in_flight=self.in_flight,
        )


def _calls(in_flight: int, records: int) -> Job:
    return Job(
        name=f"calls_{in_flight}",
        description=f"an awaited call of 10 ms for each record, {in_flight:,} at once",
        records=records,
        in_flight=in_flight,
        program="calls",
    )


JOBS: Final = (
    Job(name="stateless", description="map → filter → map → sum", records=500_000),
    Job(
        name="keyed_window",
        description="10 s windows of event time, 1,000 keys, 1 s disorder",
        records=500_000,
    ),
    Job(
        name="files",
        description="JSON lines → the same windows → JSON lines",
        records=500_000,
        from_file=True,
    ),
    Job(
        name="checkpoints",
        description="`files` with a checkpoint each second",
        records=1_000_000,
        from_file=True,
    ),
    _calls(100, 50_000),
    _calls(1_000, 100_000),
    _calls(5_000, 200_000),
    Job(
        name="latency",
        description=f"{RATE:,} events/s through three functions, from the intended time of sending",
        records=50_000,
        timed=False,
    ),
)


def write_events(path: Path, records: int) -> None:
    """Write the input of the jobs that read a file."""
    with path.open("w") as out:
        out.writelines(json.dumps(event) + "\n" for event in make_events(records))
