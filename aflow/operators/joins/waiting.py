"""Records that wait for the watermark to reach their timestamp: columns for each moment, and a heap of the moments."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from heapq import heappop, heappush
from typing import Any

from aflow.model.time import Timestamp
from aflow.operators.joins.columns import Columns


class Waiting:
    """Keys and values by timestamp (epoch ms); those of one timestamp in the order in which they came."""

    __slots__ = ("_heap", "_moments")

    def __init__(self) -> None:
        #: Keys and values of the records of a moment; never empty.
        self._moments: dict[Timestamp, tuple[list[Hashable], list[Any]]] = {}
        #: The keys of `_moments`.
        self._heap: list[Timestamp] = []

    def add(self, at: Timestamp, key: Hashable, value: object) -> None:
        """Let a record wait."""
        # Hot path: once for each left record of an as-of join.
        try:
            keys, values = self._moments[at]
        except KeyError:
            self._moments[at] = ([key], [value])
            heappush(self._heap, at)
        else:
            keys.append(key)
            values.append(value)

    def due(self, watermark: Timestamp) -> Iterator[tuple[Timestamp, list[Hashable], list[Any]]]:
        """Take the records up to ``watermark``, moment by moment."""
        heap = self._heap
        while heap and heap[0] <= watermark:
            at = heappop(heap)
            yield at, *self._moments.pop(at)

    def by_key(self, among: set[Hashable] | None = None) -> dict[Hashable, Columns]:
        """The records of some keys, or of all, for a snapshot.

        Passes over all that waits, which is what came since the last watermark or little more.
        """
        found: dict[Hashable, Columns] = {}
        for at in sorted(self._moments):
            keys, some = self._moments[at]
            if among is not None and among.isdisjoint(keys):
                continue
            for key, value in zip(keys, some, strict=True):
                if among is not None and key not in among:
                    continue
                times, values = found.setdefault(key, ([], []))
                times.append(at)
                values.append(value)
        return found

    def moments(self) -> int:
        """How many moments are waited for."""
        return len(self._heap)

    def __len__(self) -> int:
        """How many records wait."""
        return sum(len(values) for _, values in self._moments.values())
