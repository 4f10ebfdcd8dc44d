"""Layout of the rows that executors and driver exchange."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Final

import msgspec

from aflow.backfill.epochs import EpochPart
from aflow.backfill.fragments import Exit, Fragment
from aflow.backfill.step_totals import StepCount

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

#: ``exit``: number of the exit by which a record leaves its fragment, or one of the markers below. ``part``: partition
#: of the reader that receives the row, or the partition that it reports on. ``input``: input of the reader's head.
#: ``ts``: event time (epoch ms), or the number of a chunk. ``place``: order of rows with equal times. ``payload``:
#: records as ``aflow.backfill.exchange`` encodes them.
LAYOUT: Final = {
    "exit": "integer",
    "part": "integer",
    "input": "integer",
    "ts": "long",
    "place": "long",
    "payload": "binary",
}

#: Chunk of the state of a partition of a keyed fragment, unless state is in a file.
STATE: Final = -1
#: Report of a partition: ``StepCounts`` as JSON.
REPORT: Final = -2


@cache
def layout() -> StructType:
    """Return ``LAYOUT`` as a schema of Spark, which the JVM need not parse."""
    from pyspark.sql.types import StructType

    schema = StructType()
    for name, kind in LAYOUT.items():
        schema.add(name, kind)
    return schema


class StepCounts(msgspec.Struct, frozen=True):
    """Records into and out of each step of a fragment in one partition."""

    fragment: int
    subtask: int
    steps: dict[str, tuple[int, int]]
    exits: dict[int, int]
    """Number of records emitted, by exit."""
    left_out: int
    """Records at or after the end of the history."""
    skipped: int = 0
    """Records before its beginning."""
    files: dict[int, str] = {}
    """Names of the files that the partition wrote, by exit."""
    state: str = ""
    """Name of the file with its state; empty if there is none."""
    part: EpochPart | None = None
    """State of the partition at the end of an epoch of a stream."""
    state_read: int = 0
    """Bytes of stored state that it read from files."""
    newest: dict[str, int] = {}
    """Newest timestamp (epoch ms), by the step that assigns timestamps to records of a source."""
    splits: dict[str, dict[str, int]] = {}
    """The same by split of the source."""
    counted: dict[str, StepCount] = {}
    """All counters of each step, in an epoch of a stream."""
    entries: tuple[int, int] = (0, 0)
    """Number of values in the state of the partition, before and after an epoch of a stream."""


def records_into(exits: Sequence[tuple[Fragment, Exit]], counts: Iterable[StepCounts]) -> int:
    """Return the number of records that left by ``exits``."""
    numbers = _numbers(exits)
    return sum(n for one in counts for exit, n in one.exits.items() if exit in numbers)


def files_into(exits: Sequence[tuple[Fragment, Exit]], counts: Iterable[StepCounts]) -> list[str]:
    """Return the names of the files that partitions wrote for ``exits``."""
    numbers = _numbers(exits)
    return [name for one in counts for exit, name in one.files.items() if exit in numbers]


def _numbers(exits: Sequence[tuple[Fragment, Exit]]) -> set[int]:
    return {exit.number for _, exit in exits}
