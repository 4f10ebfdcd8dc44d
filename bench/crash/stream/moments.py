"""Times of kills, and what is killed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from random import Random
from typing import Final

from bench.crash.stream.pipeline import FOLDERS

#: Most seconds from a moment to a kill.
_LONGEST: Final = 0.03
#: The same from the start of the process, and from that of the query.
_STARTING: Final = 2.5
_RUNNING: Final = 2.0
#: Share of kills at a gate, and number of the call at which the program stops there.
_GATES: Final = 0.4
_NTH: Final = 3


class Victim(Enum):
    """Processes that are killed."""

    PYTHON = "Python of the driver"
    DRIVER = "Python and JVM of the driver"
    JVM = "JVM of the driver"


class Moment(Enum):
    """An event, seen from outside of the program, from which the delay of a kill is counted."""

    START = "start of the process"
    RUNNING = "start of the query"
    BATCH = "Spark has recorded a batch"
    ROWS = "an executor has written rows"
    PART = "an executor has written state"
    PREPARED = "output is prepared"
    COMMITTED = "an epoch is committed"
    SHOWN = "output is visible"
    DONE = "Spark has recorded the end of a batch"
    GATE = "a gate between two steps"


#: Folder and pattern of the files by which a moment is seen.
_SEEN: Final = {
    Moment.BATCH: ("state/spark/offsets", "[0-9]*"),
    Moment.ROWS: ("state/staging", "*/*/fragment-*/_SUCCESS"),
    Moment.PART: ("state/parts", "*.part"),
    Moment.PREPARED: (f"out/{next(iter(FOLDERS))}", ".*.pending"),
    Moment.COMMITTED: ("state", "checkpoint-*.json"),
    Moment.SHOWN: (f"out/{next(iter(FOLDERS))}", "part-*.parquet"),
    Moment.DONE: ("state/spark/commits", "[0-9]*"),
}


@dataclass(frozen=True, slots=True)
class StreamKill:
    """A kill ``delay`` seconds after the ``nth`` time of a moment, counted from the start of the process."""

    victim: Victim
    moment: Moment
    delay: float = 0.0
    nth: int = 1
    gate: str | None = None
    """Name of the gate, for ``Moment.GATE``."""

    @property
    def name(self) -> str:
        """The moment or the gate, for tables."""
        return f"gate {self.gate}" if self.gate is not None else self.moment.value


def random_stream_kill(random: Random, gates: list[str], weights: tuple[float, ...]) -> StreamKill:
    """Return a kill at a random moment; ``weights`` are those of the victims."""
    victim = random.choices(list(Victim), weights)[0]
    nth = random.randint(1, _NTH)
    if random.random() < _GATES:
        return StreamKill(victim, Moment.GATE, 0.0, nth, random.choice(gates))
    moment = random.choice([one for one in Moment if one is not Moment.GATE])
    longest = {Moment.START: _STARTING, Moment.RUNNING: _RUNNING}.get(moment, _LONGEST)
    return StreamKill(victim, moment, random.uniform(0.0, longest), nth)


class Observation:
    """The files of a round by which a moment is seen."""

    def __init__(self, folder: Path, moment: Moment) -> None:
        self._place = None
        if (seen := _SEEN.get(moment)) is not None:
            self._place = folder / seen[0], seen[1]
        self._files = self._found()
        #: Number of files that have appeared.
        self.count = 0

    def look(self) -> None:
        """Count the files that have appeared since the last look."""
        found = self._found()
        self.count += len(found - self._files)
        self._files |= found

    def _found(self) -> set[str]:
        if self._place is None:
            return set()
        folder, pattern = self._place
        # Files are removed meanwhile.
        try:
            return {str(path) for path in folder.glob(pattern)}
        except OSError:
            return set()
