"""Merge of record blocks, which arrive by their first times, into records in the order of event time.

Theory. A record may be emitted once no later block can contain an older one: the first time of the newest block is a
lower bound for all that follow. Younger records are held. Blocks of an ordered history do not overlap and are emitted
unchanged; overlapping ones are sorted together once enough records are held, so that each record is sorted a few times
at most. A block spans a bounded time, so the number of held records is bounded too.

Records of equal time are ordered by input, then by the place of their block, then by their order in it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Final, TypeAlias

from aflow.backfill.blocks import ExchangedRows
from aflow.backfill.exchange import DecodedBlock
from aflow.model.time import Timestamp

#: Minimum number of records that are sorted together.
_MIN_SORTED: Final = 4096
#: Maximum number of records emitted at once.
_MAX_EMITTED: Final = 2048

_Row: TypeAlias = tuple[Timestamp, int, int, int, Any, Any]
"""Time, input, place of the block, unique number, key, value."""


@dataclass(slots=True)
class _Run:
    """A record block that was not emitted yet."""

    input: int
    place: int
    decode_block: DecodedBlock


class BlockMerger:
    """Merges the record blocks of one partition."""

    def __init__(self) -> None:
        self._runs: list[_Run] = []
        #: Number of records sorted so far.
        self._numbered = 0
        #: Number of records in ``_runs``.
        self._new = 0
        #: Sorted records that could not be emitted yet.
        self._rest: list[_Row] = []

    @property
    def held(self) -> int:
        """Number of records that were added and not emitted."""
        return self._new + len(self._rest)

    def add(
        self, time: Timestamp, input: int, place: int, decode_block: DecodedBlock
    ) -> Iterator[ExchangedRows]:
        """Add a block whose first record is of ``time``; emit records that no later block can precede."""
        # Hot path (benchmark `spark`).
        runs = self._runs
        if len(runs) == 1 and not self._rest and runs[0].decode_block.times[-1] < time:
            yield from self._whole(runs.pop())
            self._new = 0
        elif self._new >= max(_MIN_SORTED, len(self._rest)):
            yield from self._before(time)
        runs.append(_Run(input, place, decode_block))
        self._new += len(decode_block.times)

    def end(self) -> Iterator[ExchangedRows]:
        """Emit all remaining records."""
        if len(self._runs) == 1 and not self._rest:
            yield from self._whole(self._runs.pop())
        else:
            self._sort()
            yield from _in_batches(self._rest)
        self._new, self._rest = 0, []

    def _whole(self, run: _Run) -> Iterator[ExchangedRows]:
        """Emit a run unchanged that no other overlaps."""
        decode_block = run.decode_block
        count = len(decode_block.times)
        yield ExchangedRows(
            inputs=bytes(count) if not run.input else [run.input] * count,
            times=decode_block.times,
            keys=decode_block.keys,
            values=decode_block.values,
        )

    def _before(self, time: Timestamp) -> Iterator[ExchangedRows]:
        """Emit the records older than ``time``, in order."""
        self._sort()
        rest = self._rest
        # A tuple of one item compares only the time.
        stop = bisect_left(rest, (time,))
        self._rest = rest[stop:]
        yield from _in_batches(rest[:stop])

    def _sort(self) -> None:
        """Sort all held records."""
        rows = self._rest
        for run in self._runs:
            decode_block = run.decode_block
            numbers = range(self._numbered, self._numbered + len(decode_block.times))
            self._numbered = numbers.stop
            rows += zip(
                decode_block.times,
                repeat(run.input),
                repeat(run.place),
                numbers,
                decode_block.keys,
                decode_block.values,
                strict=False,
            )
        # Numbers are unique, so keys and values are never compared. The input is mostly long sorted runs.
        rows.sort()
        self._runs.clear()
        self._new = 0


def _in_batches(rows: list[_Row]) -> Iterator[ExchangedRows]:
    for at in range(0, len(rows), _MAX_EMITTED):
        times, inputs, _, _, keys, values = zip(*rows[at : at + _MAX_EMITTED], strict=True)
        yield ExchangedRows(inputs=inputs, times=times, keys=list(keys), values=list(values))
