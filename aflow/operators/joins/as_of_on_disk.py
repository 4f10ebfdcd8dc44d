"""Left records and versions of an as-of join, for more of them than fit in memory.

Theory. Left records wait for the watermark in a ``RecordQueue``, in the order in which they are emitted. Versions are
``SlicedRecords`` of one input. With a tolerance, the version of a time is in one slice or two, and older slices are
dropped. Without one, a key has a single row: its newest version may have any age.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from aflow.model.codecs import PLAIN, Codec, CodecError
from aflow.model.time import MAX_TIMESTAMP, MIN_TIMESTAMP, Timestamp
from aflow.operators.changed_keys import ChangedKeys
from aflow.operators.joins.buffered_records import TimedRecord, TimedRecords
from aflow.operators.joins.interval_on_disk import CapturedSide, inserted, unstorable
from aflow.operators.joins.versions import outdated_count
from aflow.state.disk.record_queue import Queued, RecordQueue
from aflow.state.disk.scratch import Scratch
from aflow.state.disk.sliced_records import Part, Row, SlicedRecords, Touched
from aflow.state.keyed_entries import KeyGroupCodec, KeyRow

#: Least width of a slice (ms): narrower ones would be many.
_NARROWEST: Final = 64

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(tuple[bytes, bytes]).decode

Waiting = tuple[Timestamp, Hashable, Any]
"""Timestamp, key and value of a left record."""


class DiskPendingRecords:
    """Left records in time order; those of equal timestamps are in the order of arrival."""

    def __init__(self, scratch: Scratch, key_codec: KeyGroupCodec, codec: Codec[Any]) -> None:
        self._queue = RecordQueue(scratch, b"w")
        self._key_codec = key_codec
        self._codec = codec
        #: The number of the last record.
        self._last = 0

    def add(self, at: Timestamp, key: Hashable, value: object) -> None:
        """Buffer a record. Raises ``OperatorError`` for one that cannot be encoded."""
        try:
            data = _encode((self._key_codec.stored(key), self._codec.encode(value)))
        except CodecError as exc:
            raise unstorable(self._key_codec.operator, "left", exc, key, at, value) from exc
        self._last += 1
        self._queue.add(at, self._last, data)

    def due(self, watermark: Timestamp) -> Iterator[list[Waiting]]:
        """Take the records up to ``watermark`` in order, many at a time."""
        for some in self._queue.due(watermark):
            yield list(map(self._record, some))

    def _record(self, queued: Queued) -> Waiting:
        at, data = queued
        stored, value = _decode(data)
        return at, self._key_codec.key(stored), self._codec.decode(value)

    def captured(self, keys: Set[Hashable] | None) -> CapturedPending:
        """Return the records of ``keys``, or of all keys, as they are now, to be read later."""
        return CapturedPending(self._queue.captured(), self._key_codec.key, keys)

    def __len__(self) -> int:
        """Count the records. Reads all of them."""
        return sum(1 for _ in self._queue.captured())


@dataclass(frozen=True, slots=True)
class CapturedPending:
    """Left records as rows of a snapshot, one for each."""

    records: Iterable[Queued]
    key_of: Callable[[bytes], Hashable]
    keys: Set[Hashable] | None

    def __iter__(self) -> Iterator[KeyRow]:
        for at, data in self.records:
            stored, value = _decode(data)
            key = self.key_of(stored)
            if self.keys is None or key in self.keys:
                yield key, PLAIN.encode([[at], [value]])


class DiskVersions:
    """Versions by key. ``tolerance`` in ms; None: a version is valid for any time."""

    def __init__(
        self,
        scratch: Scratch,
        resident: int,
        key_codec: KeyGroupCodec,
        changed: ChangedKeys,
        codec: Codec[Any],
        tolerance: int | None,
    ) -> None:
        width = 1 if tolerance is None else max(2 * tolerance, _NARROWEST)
        self._records: Final = SlicedRecords(key_codec, scratch, resident, width, changed.kinds)
        self._operator: Final = key_codec.operator
        self._codec = codec
        self._tolerance = tolerance

    def put_all(
        self,
        records: Sequence[Waiting],
        watermark_of: Callable[[Hashable], Timestamp],
    ) -> list[int]:
        """Add versions, or replace those of the same timestamps; return the indexes of those that cannot matter.

        Raises ``OperatorError`` for a version that cannot be encoded.
        """
        useless: list[int] = []
        tolerance = self._tolerance
        touched = self._touched(
            [key for _, key, _ in records], [at for at, _, _ in records], after=True
        )
        for index, ((at, key, value), (row, rows)) in enumerate(zip(records, touched, strict=True)):
            watermark = watermark_of(key)
            if at <= watermark and (
                (tolerance is not None and at + tolerance <= watermark)
                or _newest(rows, watermark)[0] > at
            ):
                useless.append(index)
                continue
            try:
                data = self._codec.encode(value)
            except CodecError as exc:
                raise unstorable(self._operator, "right", exc, key, at, value) from exc
            _put(row, at, data)
            if tolerance is None:
                _drop_outdated(row, watermark)
        return useless

    def at_all(self, records: Sequence[Waiting]) -> list[tuple[bool, Any]]:
        """Return for each left record True and the version valid at its time; False and None if there is none."""
        touched = self._touched([key for _, key, _ in records], [at for at, _, _ in records])
        tolerance = self._tolerance
        found: list[tuple[bool, Any]] = []
        for (moment, _, _), (_, rows) in zip(records, touched, strict=True):
            at, data = _newest(rows, moment)
            if data is None or (tolerance is not None and moment - at > tolerance):
                found.append((False, None))
            else:
                found.append((True, self._codec.decode(data)))
        return found

    def peek(self, key: Hashable, watermark: Timestamp) -> TimedRecords:
        """Return the versions of ``key`` that matter for times after ``watermark``, without moving any row."""
        parts = [part for part, _ in self._records.peek(key) if part is not None]
        found = [one for part in parts for one in zip(part.times, part.values, strict=True)]
        count = outdated_count([at for at, _ in found], watermark, self._tolerance)
        return [TimedRecord(at, self._codec.decode(data)) for at, data in found[count:]]

    def scan(self) -> Iterator[Sequence[Hashable]]:
        """Yield the keys with versions, as ``ReadableState.scan`` does."""
        return self._records.scan()

    def drop(self, watermark: Timestamp) -> Iterator[None]:
        """Drop versions that do not matter for times after ``watermark``, in pieces."""
        if watermark == MAX_TIMESTAMP:
            return self._records.drop(MAX_TIMESTAMP)
        if self._tolerance is not None:
            return self._records.drop(watermark - self._tolerance)
        return iter(())

    def on_restored(self) -> None:
        """Record that all versions are restored."""
        self._records.on_restored()

    @property
    def outlived(self) -> bool:
        """True if the next capture should be complete; see ``SlicedRecords``."""
        return self._records.outlived

    def captured(self, keys: Set[Hashable] | None, watermark: Timestamp) -> Iterable[KeyRow]:
        """Return the versions of ``keys``, or of all keys, as they are now, to be read later."""
        expired = MIN_TIMESTAMP if self._tolerance is None else watermark - self._tolerance
        return CapturedSide(self._records.captured(keys), 0, expired)

    def size(self) -> int:
        """Count the versions, with some that do not matter. Reads all of them."""
        return self._records.count()[0]

    def _touched(
        self, keys: Sequence[Hashable], times: Sequence[Timestamp], *, after: bool = False
    ) -> list[Touched]:
        """Return the row of each time, and the rows of the versions valid then, or ``after`` it at the watermark."""
        tolerance = self._tolerance
        if tolerance is None:
            return self._records.touch(keys, [0] * len(keys), 0, 0)
        first, last = (0, tolerance) if after else (-tolerance, 0)
        return self._records.touch(keys, times, first, last)


def _newest(rows: Sequence[Row], moment: Timestamp) -> tuple[Timestamp, bytes | None]:
    """Return the newest version up to ``moment``; the smallest timestamp and None without one."""
    for row in reversed(rows):
        part = row.parts[0]
        if part is not None and (index := bisect_right(part.times, moment)):
            return part.times[index - 1], part.values[index - 1]
    return MIN_TIMESTAMP, None


def _put(row: Row, at: Timestamp, data: bytes) -> None:
    row.changed = True
    part = row.parts[0]
    if part is None:
        row.parts = Part((at,), (data,)), None
        return
    times, values = part.times, part.values
    index = bisect_left(times, at)
    if index < len(times) and times[index] == at:
        values = (*values[:index], data, *values[index + 1 :])
    else:
        times, values = inserted(times, index, at), inserted(values, index, data)
    row.parts = Part(times, values), None


def _drop_outdated(row: Row, watermark: Timestamp) -> None:
    """Drop all versions before the newest one up to ``watermark``."""
    part = row.parts[0]
    if part is not None and (count := bisect_right(part.times, watermark) - 1) > 0:
        row.parts = Part(part.times[count:], part.values[count:]), None
