"""Buffered records of an interval join, for more records than fit in memory.

Theory. ``SlicedRecords`` has the records of both inputs in rows, one for each key and slice of event time. Slices are
twice as long as the interval of partners, so those of a record are in one row or two; most often they include its own.
All rows of a batch are read at once. A slice is dropped when no record in it can have a partner.

An outer join emits a record without a partner at the first watermark that excludes one. For that, ``RecordQueue`` has
another copy of each such record, in time order: it is written when the record arrives, and removed when a partner does.
A record has a number in both, 0 in its row if it has had a partner.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import repeat
from typing import Any, Final, TypeVar

import msgspec

from aflow.errors import OperatorError, shown
from aflow.model.codecs import PLAIN, Codec, CodecError
from aflow.model.time import MAX_TIMESTAMP, Timestamp
from aflow.operators.changed_keys import ChangedKeys
from aflow.operators.joins.buffered_records import TimedRecord, TimedRecords
from aflow.operators.joins.interval_side import Unpaired
from aflow.state.disk.record_queue import Queued, RecordQueue
from aflow.state.disk.scratch import Scratch
from aflow.state.disk.sliced_records import CapturedSlices, Part, Row, SlicedRecords, Touched
from aflow.state.keyed_entries import KeyGroupCodec, KeyRow

T = TypeVar("T")

#: Least width of a slice (ms): narrower ones would be many.
_NARROWEST: Final = 64

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(tuple[bytes, bytes]).decode


class DiskSide:
    """Records of one input that may still have partners; as ``IntervalSide``.

    ``touch`` returns the rows for ``add`` and ``partners``.
    """

    def __init__(
        self,
        number: int,
        records: SlicedRecords,
        queue: RecordQueue | None,
        key_codec: KeyGroupCodec,
        codec: Codec[Any],
        first: int,
        last: int,
    ) -> None:
        self.first = first
        self.last = last
        self.outer = queue is not None
        self.queue: Final = queue
        self.from_left: Final = number == 0
        self.number: Final = number
        self.what: Final = ("left", "right")[number]
        self._records = records
        self._key_codec = key_codec
        self._codec = codec
        self._encode = codec.encode
        #: The number of the last record of an outer side.
        self._last_number = 0

    def expired_until(self, watermark: Timestamp) -> Timestamp:
        """Return the largest timestamp that has expired at ``watermark``."""
        return MAX_TIMESTAMP if watermark == MAX_TIMESTAMP else watermark - self.last

    def touch(self, keys: Sequence[Hashable], times: Sequence[Timestamp]) -> list[Touched]:
        """Return the row of each record of this side, and the rows of its partners."""
        return self._records.touch(keys, times, self.first, self.last)

    def touch_own(self, keys: Sequence[Hashable], times: Sequence[Timestamp]) -> list[Touched]:
        """Return the row of each record of this side."""
        return self._records.touch(keys, times, 0, 0)

    def partners(
        self, row: Row, part: Part, low: Timestamp, high: Timestamp
    ) -> Sequence[tuple[Timestamp, Any]]:
        """Return the records from ``low`` to ``high``, inclusive, in ``part`` of ``row``, and mark them as matched."""
        times = part.times
        begin = bisect_left(times, low)
        end = bisect_right(times, high, begin)
        if begin == end:
            return ()
        if part.numbers:
            self._match(row, part, begin, end)
        decode, values = self._codec.decode, part.values
        return [(times[index], decode(values[index])) for index in range(begin, end)]

    def add(self, row: Row, key: Hashable, at: Timestamp, value: object, *, matched: bool) -> None:
        """Buffer a record in its touched ``row``. Raises ``OperatorError`` for one that cannot be encoded."""
        # Hot path: once for each record.
        try:
            data = self._encode(value)
        except CodecError as exc:
            raise unstorable(self._key_codec.operator, self.what, exc, key, at, value) from exc
        number = 0
        if self.queue is not None and not matched:
            number = self._last_number = self._last_number + 1
            self.queue.add(at, number, _encode((self._records.stored_key(key), data)))
        part = row.parts[self.number]
        if part is None:
            part = Part((at,), (data,), (number,) if self.outer else ())
        else:
            times = part.times
            index = len(times) if times[-1] <= at else bisect_right(times, at)
            part = Part(
                inserted(times, index, at),
                inserted(part.values, index, data),
                inserted(part.numbers, index, number) if self.outer else (),
            )
        self._replace(row, part)

    def _replace(self, row: Row, part: Part) -> None:
        row.changed = True
        row.parts = (part, row.parts[1]) if self.from_left else (row.parts[0], part)

    def _match(self, row: Row, part: Part, begin: int, end: int) -> None:
        assert self.queue is not None
        found = [index for index in range(begin, end) if part.numbers[index]]
        if found:
            numbers = list(part.numbers)
            for index in found:
                self.queue.discard(part.times[index], numbers[index])
                numbers[index] = 0
            self._replace(row, Part(part.times, part.values, tuple(numbers)))

    def unpaired(self, watermark: Timestamp, changed: ChangedKeys) -> Iterator[Unpaired]:
        """Remove and yield the records that expire at ``watermark`` without a partner, in time order.

        The keys are added to ``changed``.
        """
        if self.queue is None:
            return
        for some in self.queue.due(self.expired_until(watermark)):
            found = [self._record(one) for one in some]
            changed.add([key for _, key, _ in found])
            yield from found

    def _record(self, queued: Queued) -> Unpaired:
        at, data = queued
        stored, value = _decode(data)
        return Unpaired(at, self._key_codec.key(stored), self._codec.decode(value))

    def peek(self, key: Hashable, watermark: Timestamp) -> TimedRecords:
        """Return the records of ``key`` that have not expired at ``watermark``, without moving any row."""
        expired = self.expired_until(watermark)
        return [
            TimedRecord(at, self._codec.decode(data))
            for parts in self._records.peek(key)
            if (part := parts[self.number]) is not None
            for at, data in zip(part.times, part.values, strict=True)
            if at > expired
        ]

    def is_due(self, watermark: Timestamp) -> bool:
        """Return True if ``unpaired`` yields records."""
        earliest = None if self.queue is None else self.queue.earliest
        return earliest is not None and earliest <= self.expired_until(watermark)

    def captured(self, rows: CapturedSlices, watermark: Timestamp) -> CapturedSide:
        """Return the records in ``rows`` that may still have partners."""
        return CapturedSide(rows, self.number, self.expired_until(watermark))


@dataclass(frozen=True, slots=True)
class CapturedSide:
    """The records of one input in ``rows`` after timestamp ``expired``, as rows of a snapshot."""

    rows: CapturedSlices
    number: int
    expired: Timestamp

    def __iter__(self) -> Iterator[KeyRow]:
        for key, parts in self.rows.rows():
            part = parts[self.number]
            if part is None or part.times[-1] <= self.expired:
                continue
            begin = bisect_right(part.times, self.expired)
            stored: list[object] = [list(part.times[begin:]), list(part.values[begin:])]
            if part.numbers:
                stored.append([number == 0 for number in part.numbers[begin:]])
            yield key, PLAIN.encode(stored)


class DiskRecords:
    """The records of both inputs. ``first`` and ``last`` are the bounds (ms) of the partners of a left record."""

    def __init__(
        self,
        scratch: Scratch,
        resident: int,
        key_codec: KeyGroupCodec,
        changed: ChangedKeys,
        codecs: tuple[Codec[Any], Codec[Any]],
        bounds: tuple[int, int],
        outer: tuple[bool, bool],
    ) -> None:
        first, last = bounds
        width = max(2 * (last - first), max(abs(first), abs(last)) // 2, _NARROWEST)
        self._scratch = scratch
        self._changed = changed
        self._records: Final = SlicedRecords(key_codec, scratch, resident, width, changed.kinds)
        queues = [
            RecordQueue(scratch, prefix) if kept else None
            for prefix, kept in zip((b"w", b"x"), outer, strict=True)
        ]
        self.left: Final = DiskSide(0, self._records, queues[0], key_codec, codecs[0], first, last)
        self.right: Final = DiskSide(
            1, self._records, queues[1], key_codec, codecs[1], -last, -first
        )

    def sides(self, side: str) -> tuple[DiskSide, DiskSide]:
        """Return the side of the input named ``side``, and the other one."""
        return (self.left, self.right) if side == "left" else (self.right, self.left)

    def is_due(self, watermark: Timestamp) -> bool:
        """Return True if records have expired."""
        return (
            self.left.is_due(watermark)
            or self.right.is_due(watermark)
            or self._records.drops(self._expired_until(watermark))
        )

    def unpaired(self, watermark: Timestamp) -> Iterator[tuple[Unpaired, DiskSide]]:
        """Remove and yield the records that expire without a partner, in time order."""
        return merge(
            *(
                zip(side.unpaired(watermark, self._changed), repeat(side))
                for side in (self.left, self.right)
            ),
            key=_time,
        )

    def drop(self, watermark: Timestamp) -> Iterator[None]:
        """Drop expired slices, in pieces; call ``unpaired`` before."""
        return self._records.drop(self._expired_until(watermark))

    def capture(self, keys: set[Hashable] | None) -> tuple[CapturedSlices, set[Hashable] | None]:
        """Return the rows of ``keys``, and ``keys``; None in place of them if the rows are those of all keys."""
        if self._records.outlived:
            keys = None
        return self._records.captured(keys), keys

    def on_restored(self) -> None:
        """Record that all records are restored."""
        self._records.on_restored()

    def scan(self) -> Iterator[Sequence[Hashable]]:
        """Yield the keys with records, as ``ReadableState.scan`` does."""
        return self._records.scan()

    def size(self) -> int:
        """Count the records, with expired ones that have not been removed. Reads all of them."""
        return sum(self._records.count())

    def close(self) -> None:
        """Remove the database."""
        self._scratch.clear()

    def _expired_until(self, watermark: Timestamp) -> Timestamp:
        return min(self.left.expired_until(watermark), self.right.expired_until(watermark))


def unstorable(
    operator: str, what: str, cause: CodecError, key: Hashable, at: Timestamp, value: object
) -> OperatorError:
    """Return the error for a record of the ``what`` input of step ``operator`` that cannot be encoded."""
    return OperatorError(
        f"step {operator!r} cannot keep {what} record {shown(value)} of key {shown(key)} on disk: {cause}",
        operator=operator,
        record=value,
        key=key,
        timestamp=at,
    )


def inserted(items: tuple[T, ...], index: int, item: T) -> tuple[T, ...]:
    """Return ``items`` with ``item`` at ``index``."""
    return (*items[:index], item, *items[index:])


def _time(unpaired: tuple[Unpaired, DiskSide]) -> Timestamp:
    return unpaired[0].at
