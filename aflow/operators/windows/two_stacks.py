"""Aggregates of a sliding sequence of panes: the two-stacks algorithm, for all keys of a step at once.

Theory. The aggregate of the newest n parts of a sequence would take n merges for each part that is added. Two stacks
take two merges on average. The *front* has, for each of the older parts, the aggregate from it to the end of the front,
so the oldest part is removed by a pop. The *back* is the running aggregate of the newer parts, so a part is added by
one merge. One more merge yields their sum. When the front is empty, it is rebuilt from all parts. The algorithm needs
no inverse, and it keeps the order of the parts. (Tangwongsan, Hirzel, Schneider, Wu: "General incremental
sliding-window aggregation", VLDB 2015; the queue made of two stacks is folklore.)

Here the parts are panes, dicts of accumulators by key. The front is a stack for each key, with an aggregate for each
pane that has the key. So removing a pane costs as much as it has keys, and there are as many aggregates as
accumulators.

The aggregates are made from the panes and can be made again from them at any time. They are not emitted, and not
changed once made, except for those of the back, which belong to it alone.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, Final

from aflow.model.time import MIN_TIMESTAMP, Timestamp
from aflow.operators.accumulation import Accumulation
from aflow.operators.pieces import slices
from aflow.operators.windows.incremental_windows import Accumulators
from aflow.operators.windows.split_dict import SplitDict
from aflow.state.readable_state import ABSENT


class Panes(dict[Timestamp, Accumulators]):
    """Accumulators by key, by the start of their pane; ``order`` has the starts in time order."""

    __slots__ = ("order",)

    def __init__(self) -> None:
        super().__init__()
        self.order: list[Timestamp] = []

    def __missing__(self, start: Timestamp) -> Accumulators:
        """Add an empty pane."""
        self.order.insert(bisect_left(self.order, start), start)
        contents = self[start] = {}
        return contents

    def between(self, low: Timestamp, high: Timestamp) -> list[Timestamp]:
        """Return the starts from ``low`` up to ``high`` (exclusive)."""
        order = self.order
        return order[bisect_left(order, low) : bisect_left(order, high)]

    def drop_before(self, bound: Timestamp) -> list[tuple[Timestamp, Accumulators]]:
        """Remove the panes that start before ``bound``, and return their starts and contents."""
        count = bisect_left(self.order, bound)
        dropped = [(start, self.pop(start)) for start in self.order[:count]]
        del self.order[:count]
        return dropped


class TwoStacks:
    """The aggregates, by key, of the panes that start from ``low`` up to ``high`` (exclusive); both only grow."""

    def __init__(self, panes: Panes, accumulation: Accumulation) -> None:
        self._panes = panes
        self._accumulation = accumulation
        # Before all panes: the pane of the first timestamp may start before it.
        self._low = self._high = 2 * MIN_TIMESTAMP
        #: The front has the panes before it, the back the others.
        self._middle = self._low
        #: For each key the aggregates from each of its panes to the end of the front, that of the oldest pane last.
        self._front: Final = SplitDict[list[Any]]()
        self._back: Final = SplitDict[Any]()
        #: Keys with new records in panes that are aggregated already.
        self._stale: set[Hashable] = set()
        #: The current key, for a message about a failed ``merge``.
        self.key: Hashable = None

    def __len__(self) -> int:
        """Count the aggregates."""
        return sum(len(stack) for _, stack in self._front.items()) + len(self._back)

    def on_record(self, start: Timestamp, key: Hashable) -> None:
        """Mark ``key`` as stale: the pane that starts at ``start`` has a new record of it."""
        if self._low <= start < self._high:
            self._stale.add(key)

    def slide_to(self, low: Timestamp, high: Timestamp) -> Iterator[int]:
        """Slide to panes from ``low`` to ``high``, in pieces."""
        yield from self.release_before(low)
        if self._middle < low:
            yield from self._rebuild(low, high)
            self._middle = high
        else:
            yield from self._enter(self._panes.between(max(self._high, low), high))
        self._high = high

    def sums(self) -> Iterator[tuple[Hashable, Any]]:
        """Yield each key with its aggregate, which the caller may change. Nothing else may be called meanwhile."""
        older, newer = self._front.getter(), self._back.getter()
        merge, copy = self._merge, self._accumulation.copy
        for key, stack in self._front.items():
            self.key = key
            held = copy(stack[-1])
            back = newer(key, ABSENT)
            yield key, held if back is ABSENT else merge(held, back)
        for key, held in self._back.items():
            if older(key, None) is None:
                self.key = key
                yield key, copy(held)

    def release_before(self, low: Timestamp) -> Iterator[int]:
        """Release the panes that start before ``low``, in pieces; called before they are dropped."""
        yield from self._refresh()
        if low > self._middle:
            # The back cannot release its oldest pane: the next move adds its remaining panes again.
            yield from self._front.cleared()
            yield from self._back.cleared()
            self._high = low
        else:
            front = self._front
            for start in self._panes.between(self._low, low):
                part: dict[Hashable, list[Any]] = {}
                for keys in slices(self._panes[start]):
                    for key in keys:
                        if key not in part:
                            part = front.part_of(key)
                        stack = part[key]
                        stack.pop()
                        if not stack:
                            del part[key]
                    yield 0
        self._low = max(self._low, low)

    @property
    def _merge(self) -> Callable[[Any, Any], Any]:
        """The present merge function: read it once for a pass over keys."""
        merge = self._accumulation.merge
        assert merge is not None
        return merge

    def _enter(self, starts: Iterable[Timestamp]) -> Iterator[int]:
        back, merge, copy = self._back, self._merge, self._accumulation.copy
        for start in starts:
            part: Accumulators = {}
            for some in slices(self._panes[start].items()):
                for key, held in some:
                    self.key = key
                    if key not in part:
                        part = back.part_of(key)
                    part[key] = merge(part[key], held) if key in part else copy(held)
                yield 0

    def _rebuild(self, low: Timestamp, high: Timestamp) -> Iterator[int]:
        """Fill the front, which is empty, from all panes."""
        front = self._front
        merge, copy = self._merge, self._accumulation.copy
        for start in reversed(self._panes.between(low, high)):
            part: dict[Hashable, list[Any]] = {}
            for some in slices(self._panes[start].items()):
                for key, held in some:
                    if key not in part:
                        part = front.part_of(key)
                    stack = part.get(key)
                    if stack is None:
                        part[key] = [held]
                    else:
                        self.key = key
                        stack.append(merge(copy(held), stack[-1]))
                yield 0

    def _refresh(self) -> Iterator[int]:
        """Rebuild the aggregates of stale keys."""
        if not self._stale:
            return
        older = self._panes.between(self._low, self._middle)
        newer = self._panes.between(self._middle, self._high)
        for keys in slices(self._stale):
            for key in keys:
                self._refresh_key(key, older, newer)
            yield 0
        self._stale = set()

    def _refresh_key(
        self, key: Hashable, older: Sequence[Timestamp], newer: Sequence[Timestamp]
    ) -> None:
        merge, copy = self._merge, self._accumulation.copy
        self.key = key
        self._front.discard(key)
        self._back.discard(key)
        stack: list[Any] = []
        for start in reversed(older):
            if key in (contents := self._panes[start]):
                held = contents[key]
                stack.append(merge(copy(held), stack[-1]) if stack else held)
        if stack:
            self._front.part_of(key)[key] = stack
        for start in newer:
            if key in (contents := self._panes[start]):
                held, back = contents[key], self._back.part_of(key)
                back[key] = merge(back[key], held) if key in back else copy(held)


def sums_around(
    panes: Panes,
    accumulation: Accumulation,
    at: tuple[Hashable, Timestamp],
    windows: range,
    size: int,
    *,
    known: bool,
) -> list[tuple[Timestamp, Any, bool]]:
    """Return start and accumulator of a key for each of ``windows``, and True if it has several records.

    ``at`` is the key and the start of a pane that all windows contain, which had the key before if ``known``. With the
    aggregates from each window's start to the pane, and those from the pane on, this takes as many merges as there are
    panes.
    """
    key, pane = at
    merge, copy = accumulation.merged, accumulation.copy
    until_pane, has_others = panes[pane][key], known
    older = [start for start in panes.between(windows[0], pane) if key in panes[start]]
    heads: list[tuple[Timestamp, Any, bool]] = []
    for start in reversed(windows):
        while older and older[-1] >= start:
            until_pane, has_others = merge(copy(panes[older.pop()][key]), until_pane), True
        heads.append((start, until_pane, has_others))
    newer = [start for start in panes.between(pane + 1, windows[-1] + size) if key in panes[start]]
    newer.reverse()
    sums: list[tuple[Timestamp, Any, bool]] = []
    tail: list[Any] = []  # one aggregate, or none yet
    for start, until_pane, has_others in reversed(heads):
        while newer and newer[-1] < start + size:
            held = panes[newer.pop()][key]
            tail = [merge(tail[0], held) if tail else copy(held)]
        whole = copy(until_pane)
        sums.append((start, merge(whole, tail[0]) if tail else whole, has_others or bool(tail)))
    return sums
