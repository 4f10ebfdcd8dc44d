"""Numbers of the firings of kept windows that have fired more than once."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from functools import partial
from heapq import heappop, heappush

from aflow.model.codecs import PLAIN
from aflow.model.time import Timestamp
from aflow.operators.changed_keys import ChangedKeys
from aflow.state.gradual_capture import WaitingRows, waiting_rows
from aflow.state.keyed_entries import KeyRow


class FiringCounts:
    """Numbers above 1 by the start of a window and key; ``name`` is that of their rows in snapshots."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._counts: dict[Timestamp, dict[Hashable, int]] = {}
        #: The starts in ``_counts``, as a heap.
        self._starts: list[Timestamp] = []

    def get(self, start: Timestamp, key: Hashable) -> int:
        """Return the number of firings of a window that has fired for ``key``."""
        counts = self._counts.get(start)
        return 1 if counts is None else counts.get(key, 1)

    def record(self, start: Timestamp, key: Hashable, count: int) -> None:
        """Set the number of firings of a window for ``key``."""
        counts = self._counts.get(start)
        if counts is None:
            counts = self._counts[start] = {}
            heappush(self._starts, start)
        counts[key] = count

    def drop_until(self, last: Timestamp, changed: ChangedKeys) -> Iterator[int]:
        """Drop the windows that start at or before ``last``, in pieces, and add their keys to ``changed``."""
        while self._starts and self._starts[0] <= last:
            yield from changed.discarded(self._counts.pop(heappop(self._starts)))

    def rows(self, keys: set[Hashable] | None) -> dict[str, list[KeyRow]]:
        """Return the rows of ``keys``, or of all keys, for a snapshot."""
        rows: list[KeyRow] = []
        for start, counts in self._counts.items():
            some = counts if keys is None else keys & counts.keys()
            rows += _encoded(start, [(key, counts[key]) for key in some])
        return {self._name: rows}

    def parts(self) -> Iterator[WaitingRows]:
        """Yield all rows as parts of a gradual capture."""
        for start, counts in self._counts.items():
            yield waiting_rows(counts, partial(self._collected, start))

    def _collected(
        self, start: Timestamp, counts: list[tuple[Hashable, int]]
    ) -> dict[str, list[KeyRow]]:
        return {self._name: _encoded(start, counts)}


def _encoded(start: Timestamp, counts: list[tuple[Hashable, int]]) -> list[KeyRow]:
    return [(key, PLAIN.encode([start, count])) for key, count in counts]
