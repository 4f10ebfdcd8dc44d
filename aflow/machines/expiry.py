"""Keys by the time at which to check them, so that their state expires although they have no further records.

Theory. Checking all keys whenever the watermark advances costs time proportional to the number of keys; a timer for
each record costs as much as a record. In between: time is divided into intervals of ``width`` ms, and each interval has
a list of the keys to check once the watermark has reached its end. Adding a key is an append, and the heap has one
entry for each interval. A key is checked at or up to ``width`` ms of event time after its time, never before. It may be
added several times; the second check must be harmless.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from heapq import heappop, heappush

from aflow.model.time import Timestamp


class Expiry:
    """Keys by the time at which to check them; a ``width`` of 1 ms is exact."""

    __slots__ = ("_heap", "_keys", "_width")

    def __init__(self, width: int) -> None:
        self._width = width
        #: The keys to check, by the end of their interval, counted in widths.
        self._keys: dict[int, list[Hashable]] = {}
        #: The keys of `_keys`.
        self._heap: list[int] = []

    def __len__(self) -> int:
        """Return the number of intervals with keys, each of which waits for the watermark."""
        return len(self._heap)

    def add(self, key: Hashable, at: Timestamp) -> None:
        """Have ``key`` checked once the watermark has reached ``at`` (epoch ms), or up to one width later."""
        interval = -(-at // self._width)
        keys = self._keys.get(interval)
        if keys is None:
            self._keys[interval] = [key]
            heappush(self._heap, interval)
        else:
            keys.append(key)

    def due(self, watermark: Timestamp) -> Iterator[Hashable]:
        """Remove and yield the keys to check now. Keys may be added meanwhile for times after ``watermark``."""
        heap, width = self._heap, self._width
        while heap and heap[0] * width <= watermark:
            keys = self._keys.pop(heappop(heap))
            keys.reverse()
            while keys:
                yield keys.pop()  # one by one, so that a million keys are not freed at once

    def is_due(self, watermark: Timestamp) -> bool:
        """Return True if there are keys to check now."""
        return bool(self._heap) and self._heap[0] * self._width <= watermark

    def clear(self) -> None:
        """Remove all keys."""
        self._keys.clear()
        self._heap.clear()
