"""The unit of exchange: a batch of records as parallel columns.

A Python call for each batch costs nothing for each record, list comprehensions run at the speed of a hand-written loop,
and one hop of the event loop is shared by all records of the batch. Batches form naturally: no source waits to fill
one.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any, Final, Generic, TypeVar, cast

from aflow.model.codecs import Codec
from aflow.model.questions import Correlation
from aflow.model.time import Timestamp

T = TypeVar("T")

#: Maximum of records in a batch of results, and of records that a task with calls takes at once.
BATCH_RECORDS: Final = 1024

#: Default maximum of records that a task without calls takes at once.
LARGE_BATCH_RECORDS: Final = 4096


class Batch(Generic[T]):
    """Records of one stream, in order.

    ``values``, ``timestamps`` (epoch ms; None before event time is assigned) and ``keys`` (None unless downstream of
    ``key_by``) are columns of equal length. A batch is shared by all its readers, so neither it nor its columns may be
    changed. It is never empty in transit.

    ``watermarks`` is a column too: the watermark that each record meets (epoch ms), which never decreases. None, the
    usual case, means that all records meet the last watermark that was emitted before the batch. Only the records of
    steps whose results depend on watermarks between records have it (docs/decisions/045).
    """

    __slots__ = ("correlation", "keys", "timestamps", "values", "watermarks")

    def __init__(
        self,
        values: list[T],
        timestamps: list[Timestamp] | None = None,
        keys: Sequence[Hashable] | None = None,
        watermarks: list[Timestamp] | None = None,
    ) -> None:
        self.values = values
        self.timestamps = timestamps
        self.keys = keys
        self.watermarks = watermarks
        #: The question that the records belong to, while the batch is in a channel or a queue; nearly always None.
        self.correlation: Correlation | None = None

    def __len__(self) -> int:
        return len(self.values)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Batch):
            return NotImplemented
        batch = cast("Batch[object]", other)
        return (
            self.values == batch.values
            and self.timestamps == batch.timestamps
            and self.keys == batch.keys
            and self.watermarks == batch.watermarks
        )

    __hash__ = None  # type: ignore[assignment]  # its columns are lists

    def __repr__(self) -> str:
        met = "" if self.watermarks is None else f", watermarks={self.watermarks!r}"
        return f"Batch({self.values!r}, timestamps={self.timestamps!r}, keys={self.keys!r}{met})"

    def slice(self, start: int, stop: int) -> Batch[T]:
        """Return the records from ``start`` up to ``stop`` (exclusive), as for a list."""
        return Batch(
            self.values[start:stop],
            None if self.timestamps is None else self.timestamps[start:stop],
            None if self.keys is None else self.keys[start:stop],
            None if self.watermarks is None else self.watermarks[start:stop],
        )

    def without_watermarks(self) -> Batch[T]:
        """Return the same records, which meet the last watermark that was emitted before them."""
        if self.watermarks is None:
            return self
        return Batch(self.values, self.timestamps, self.keys)

    def pick(self, indexes: Sequence[int]) -> Batch[T]:
        """Return the records at ``indexes`` without their keys, for a side output, which has none."""
        times, met = self.timestamps, self.watermarks
        return Batch(
            [self.values[index] for index in indexes],
            None if times is None else [times[index] for index in indexes],
            None,
            None if met is None else [met[index] for index in indexes],
        )

    def pick_keyed(self, indexes: Sequence[int]) -> Batch[T]:
        """Return the records at ``indexes`` with their keys."""
        picked, keys = self.pick(indexes), self.keys
        if keys is not None:
            picked.keys = [keys[index] for index in indexes]
        return picked


def in_batches(values: list[T], timestamps: list[Timestamp] | None) -> Iterator[Batch[T]]:
    """Yield any number of results as batches of at most ``BATCH_RECORDS``; no batch for no results."""
    if 0 < len(values) <= BATCH_RECORDS:
        yield Batch(values, timestamps)
        return
    for at in range(0, len(values), BATCH_RECORDS):
        stop = at + BATCH_RECORDS
        yield Batch(values[at:stop], None if timestamps is None else timestamps[at:stop])


def can_join(one: Batch[Any], following: Batch[Any]) -> bool:
    """Return True if the batches have the same columns, and belong to no question."""
    return (
        (one.timestamps is None) == (following.timestamps is None)
        and (one.keys is None) == (following.keys is None)
        and (one.watermarks is None) == (following.watermarks is None)
        and one.correlation is None
        and following.correlation is None
    )


def joined_batches(batches: Sequence[Batch[T]]) -> Batch[T]:
    """Return the records of ``batches``, of which ``can_join`` is true, in order."""
    return Batch(
        [value for one in batches for value in one.values],
        _joined_column([one.timestamps for one in batches]),
        _joined_column([one.keys for one in batches]),
        _joined_column([one.watermarks for one in batches]),
    )


def _joined_column(parts: Sequence[Sequence[T] | None]) -> list[T] | None:
    return None if parts[0] is None else [entry for part in parts for entry in part or ()]


def encode_batch(batch: Batch[Any], codec: Codec[object]) -> bytes:
    """Return the columns of ``batch`` as bytes. Raises ``CodecError`` for values or keys that ``codec`` refuses."""
    keys = None if batch.keys is None else list(batch.keys)
    columns: list[object] = [batch.values, batch.timestamps, keys]
    if batch.watermarks is not None:
        columns.append(batch.watermarks)
    return codec.encode(columns)


def decode_batch(data: bytes, codec: Codec[object]) -> Batch[Any]:
    """Return the batch that ``data`` was made from. Raises ``CodecError``."""
    values, timestamps, keys, *more = cast("list[Any]", codec.decode(data))
    return Batch(values, timestamps, keys, more[0] if more else None)
