"""When to look at a key again, so that what it holds goes in time although none of its records comes any more.

Theory. Looking at all keys whenever the watermark advances costs as much as there are keys; a timer for each record
costs as much as a record. In between: the moments are cut into stretches of ``width`` ms, and each stretch has a list
of the keys to look at once the watermark has reached its end. Noting a key is an append, and there is one entry of the
heap for each stretch. A key is looked at up to ``width`` ms of event time after the moment that was noted, never before
it. It may be noted several times, and holds nothing any more at the second look; that must do no harm.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from heapq import heappop, heappush

from aflow.model.time import Timestamp


class Expiry:
    """Keys by the moment at which to look at them; a ``width`` of 1 ms is exact."""

    __slots__ = ("_heap", "_keys", "_width")

    def __init__(self, width: int) -> None:
        self._width = width
        #: The keys to look at, by the end of their stretch, counted in widths.
        self._keys: dict[int, list[Hashable]] = {}
        #: The keys of `_keys`.
        self._heap: list[int] = []

    def __len__(self) -> int:
        """How many stretches there are: what waits for the watermark."""
        return len(self._heap)

    def note(self, key: Hashable, at: Timestamp) -> None:
        """Have ``key`` looked at once the watermark has reached ``at`` (epoch ms), or a little later."""
        stretch = -(-at // self._width)
        keys = self._keys.get(stretch)
        if keys is None:
            self._keys[stretch] = [key]
            heappush(self._heap, stretch)
        else:
            keys.append(key)

    def due(self, watermark: Timestamp) -> Iterator[Hashable]:
        """Take the keys to look at now. Those noted meanwhile, for a later moment than ``watermark``, stay."""
        heap, width = self._heap, self._width
        while heap and heap[0] * width <= watermark:
            yield from self._keys.pop(heappop(heap))

    def clear(self) -> None:
        """Look at nothing any more."""
        self._keys.clear()
        self._heap.clear()
