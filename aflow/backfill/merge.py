"""Parcels that come by their first times, as records in the order of event time.

Theory. A record may be handed on once no parcel can come any more with an older one: that is what the first time of the
parcel that has just come says of all that follow. What is younger is held. Parcels of a history that is in order do not
overlap, and are handed on as they are; where they do, what is held is sorted together, once there is enough of it, so
that each record is sorted a few times at most. As a parcel spans a bounded time, so does what is held.

Records of one moment go by the input, then by the place of their parcel, then by their order in it.
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

#: Records that are sorted together, at least.
_TOGETHER: Final = 4096
#: Records that are handed on at once, at most.
_AT_ONCE: Final = 2048

_Row: TypeAlias = tuple[Timestamp, int, int, int, Any, Any]
"""Time, input, place of the parcel, a number of its own, key, value."""


@dataclass(slots=True)
class _Run:
    """A parcel, or what is left of several."""

    input: int
    place: int
    decode_block: DecodedBlock


class BlockMerger:
    """Puts the parcels of one partition together."""

    def __init__(self) -> None:
        self._runs: list[_Run] = []
        #: Records that were sorted so far.
        self._numbered = 0
        #: Of the runs, how many records they have.
        self._new = 0
        #: What was sorted and could not be handed on yet, in order.
        self._rest: list[_Row] = []

    @property
    def held(self) -> int:
        """Records that were taken, and not handed on."""
        return self._new + len(self._rest)

    def add(
        self, time: Timestamp, input: int, place: int, decode_block: DecodedBlock
    ) -> Iterator[ExchangedRows]:
        """Take a parcel, of which the first record is of ``time``; hand on what can have nothing older behind it."""
        # Hot path (benchmark `spark`).
        runs = self._runs
        if len(runs) == 1 and not self._rest and runs[0].decode_block.times[-1] < time:
            yield from self._whole(runs.pop())
            self._new = 0
        elif self._new >= max(_TOGETHER, len(self._rest)):
            yield from self._before(time)
        runs.append(_Run(input, place, decode_block))
        self._new += len(decode_block.times)

    def end(self) -> Iterator[ExchangedRows]:
        """Nothing comes any more: hand on all that is left."""
        if len(self._runs) == 1 and not self._rest:
            yield from self._whole(self._runs.pop())
        else:
            self._sort()
            yield from _handed(self._rest)
        self._new, self._rest = 0, []

    def _whole(self, run: _Run) -> Iterator[ExchangedRows]:
        """A run that nothing else overlaps, as it is."""
        decode_block = run.decode_block
        count = len(decode_block.times)
        yield ExchangedRows(
            inputs=bytes(count) if not run.input else [run.input] * count,
            times=decode_block.times,
            keys=decode_block.keys,
            values=decode_block.values,
        )

    def _before(self, time: Timestamp) -> Iterator[ExchangedRows]:
        """What is older than ``time``, in order."""
        self._sort()
        rest = self._rest
        # Only the time is compared, since there is no second item to go on with.
        stop = bisect_left(rest, (time,))
        self._rest = rest[stop:]
        yield from _handed(rest[:stop])

    def _sort(self) -> None:
        """Put all that is held into one order."""
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
        # No two rows have the same number, so keys and values are never compared. What is sorted is long runs, mostly.
        rows.sort()
        self._runs.clear()
        self._new = 0


def _handed(rows: list[_Row]) -> Iterator[ExchangedRows]:
    for at in range(0, len(rows), _AT_ONCE):
        times, inputs, _, _, keys, values = zip(*rows[at : at + _AT_ONCE], strict=True)
        yield ExchangedRows(inputs=inputs, times=times, keys=list(keys), values=list(values))
