"""Left records of an as-of join that wait for the watermark, in memory.

Theory. The records of one timestamp are columns to which later ones are appended, so a capture need not copy them: it
lists the timestamps, and records how many records each had if more are added. ``due`` removes records, and must not be
called before the captures are complete.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from heapq import heappop, heappush
from itertools import chain
from typing import Any, Final, TypeAlias

from aflow.model.time import Timestamp
from aflow.operators.joins.columns import Columns
from aflow.operators.pieces import CHUNK, drained_slices
from aflow.state.gradual_capture import GradualCaptures, ObservedRows
from aflow.state.keyed_entries import KeyRow

Encode: TypeAlias = Callable[[list[tuple[Hashable, list[Timestamp], list[Any]]]], Iterable[KeyRow]]
"""Returns rows for keys with timestamps and values of their records. Raises ``CheckpointError``."""

_AtTime: TypeAlias = tuple[list[Hashable], list[Any]]


class PendingRecords:
    """Keys and values by timestamp (epoch ms); those of equal timestamps are in the order of arrival."""

    __slots__ = ("_heap", "_records", "captures")

    def __init__(self) -> None:
        #: Keys and values of the records of a timestamp; never empty.
        self._records: dict[Timestamp, _AtTime] = {}
        #: The timestamps in `_records`.
        self._heap: list[Timestamp] = []
        self.captures: Final = GradualCaptures()
        """To be saved with the timestamps of records before these are added, and gathered before ``due``."""

    def add(self, at: Timestamp, key: Hashable, value: object) -> None:
        """Buffer a record."""
        # Hot path: once for each left record of an as-of join.
        try:
            keys, values = self._records[at]
        except KeyError:
            self._records[at] = ([key], [value])
            heappush(self._heap, at)
        else:
            keys.append(key)
            values.append(value)

    def due(self, watermark: Timestamp) -> Iterator[tuple[Timestamp, list[Hashable], list[Any]]]:
        """Take the records up to ``watermark``, by timestamp; many of one timestamp in parts."""
        heap = self._heap
        while heap and heap[0] <= watermark:
            at = heappop(heap)
            keys, values = self._records.pop(at)
            parts = zip(drained_slices(keys), drained_slices(values), strict=True)
            for some_keys, some_values in parts:
                yield at, some_keys, some_values

    def by_key(self, among: set[Hashable] | None = None) -> dict[Hashable, Columns]:
        """Return the records of some keys, or of all, for a snapshot.

        Passes over all buffered records: those since the last watermark or few more.
        """
        found: dict[Hashable, Columns] = {}
        for at in sorted(self._records):
            keys, some = self._records[at]
            if among is not None and among.isdisjoint(keys):
                continue
            for key, value in zip(keys, some, strict=True):
                if among is not None and key not in among:
                    continue
                times, values = found.setdefault(key, ([], []))
                times.append(at)
                values.append(value)
        return found

    def captured(self, encode: Encode, names: Mapping[Hashable, Hashable] | None) -> PendingCapture:
        """Capture the records, to be collected in pieces: of all keys, or those of ``names`` under these."""
        capture = PendingCapture(self._records, encode, names)
        self.captures.follow(capture)
        return capture

    def timestamps(self) -> int:
        """Count the distinct timestamps."""
        return len(self._heap)

    def __len__(self) -> int:
        """Count the records."""
        return sum(len(values) for _, values in self._records.values())


class PendingCapture(ObservedRows):
    """The records at one moment as rows of a snapshot. Iteration collects what is missing first."""

    __slots__ = (
        "__weakref__",
        "_counts",
        "_encode",
        "_names",
        "_records",
        "_rows",
        "_start",
        "_times",
    )

    def __init__(
        self,
        records: Mapping[Timestamp, _AtTime],
        encode: Encode,
        names: Mapping[Hashable, Hashable] | None,
    ) -> None:
        self._records = records
        self._encode = encode
        self._names = names
        #: The timestamps whose records are not collected, and the number of records of the last one that are.
        self._times = list(records)
        self._start = 0
        #: The number of records at the moment of the capture, by timestamps that records were added to since.
        self._counts: dict[Timestamp, int] = {}
        self._rows: list[Iterable[KeyRow]] = []

    def __iter__(self) -> Iterator[KeyRow]:
        for _ in self.gather():
            pass
        return chain.from_iterable(self._rows)

    @property
    def is_complete(self) -> bool:
        """True once all records are collected."""
        return not self._times

    def save(self, keys: Iterable[Any]) -> None:
        """Record how many records there are, since records with the timestamps ``keys`` may be added now."""
        for at in set(keys):
            held = self._records.get(at)
            if held is not None:
                self._counts.setdefault(at, len(held[0]))

    def gather(self) -> Iterator[None]:
        """Collect all records, in pieces. Raises ``CheckpointError`` for one that cannot be encoded."""
        while self._times:
            self._collect_some()
            yield

    def _collect_some(self) -> None:
        found: list[tuple[Hashable, list[Timestamp], list[Any]]] = []
        left = CHUNK
        times, start = len(self._times), self._start
        while times and left > 0:
            at = self._times[times - 1]
            keys, values = self._records[at]
            count = self._counts.get(at, len(keys))
            stop = min(start + left, count)
            found += self._by_key(at, keys[start:stop], values[start:stop])
            left -= stop - start
            if stop < count:
                start = stop
            else:
                times, start = times - 1, 0
        self._rows.append(self._encode(found))
        # Only now: a piece that cannot be encoded fails all uses of the capture.
        del self._times[times:]
        self._start = start

    def _by_key(
        self, at: Timestamp, keys: list[Hashable], values: list[Any]
    ) -> Iterator[tuple[Hashable, list[Timestamp], list[Any]]]:
        names = self._names
        found: dict[Hashable, list[Any]] = {}
        for key, value in zip(keys, values, strict=True):
            if names is None:
                found.setdefault(key, []).append(value)
            elif key in names:
                found.setdefault(names[key], []).append(value)
        return ((key, [at] * len(some), some) for key, some in found.items())
