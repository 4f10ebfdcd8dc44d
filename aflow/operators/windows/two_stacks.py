"""Aggregates of a stretch of panes that slides forwards: the two-stacks algorithm, for all keys of a step at once.

Theory. To know the aggregate of the newest n of a row of parts, one would merge n of them each time the row moves on.
Two stacks do it with two merges a step on average: the *front* holds, for each of the older parts, the aggregate from
it up to the end of the front, so that the oldest part leaves by a pop; the *back* is the running aggregate of the
newer parts, so that a part enters by one merge. Their sum is asked for by one more merge. When the front is used up,
it is made anew from all that is there. It needs no inverse, and it keeps the order of the parts. (Tangwongsan,
Hirzel, Schneider, Wu: "General incremental sliding-window aggregation", VLDB 2015; the queue made of two stacks is
folklore.)

Here the parts are panes, dicts of accumulators by key. The front is a stack for each key, with an aggregate for each
pane that has the key, so a pane leaves at the cost of its own keys and aggregates are as many as accumulators.

The aggregates are made from the panes and can be made again from them at any time. They are nowhere given away, and
never changed once made, except for those of the back, which belong to it alone.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterable
from typing import Any

from aflow.model.time import MIN_TIMESTAMP, Timestamp
from aflow.operators.accumulation import Accumulation
from aflow.operators.windows.incremental_windows import Accumulators


class Panes(dict[Timestamp, Accumulators]):
    """Accumulators by key, by the start of their pane; ``order`` has the starts in the order of time."""

    __slots__ = ("order",)

    def __init__(self) -> None:
        super().__init__()
        self.order: list[Timestamp] = []

    def __missing__(self, start: Timestamp) -> Accumulators:
        """Make a pane."""
        self.order.insert(bisect_left(self.order, start), start)
        contents = self[start] = {}
        return contents

    def between(self, low: Timestamp, high: Timestamp) -> list[Timestamp]:
        """The starts from ``low`` up to ``high`` (exclusive)."""
        order = self.order
        return order[bisect_left(order, low) : bisect_left(order, high)]

    def drop_before(self, bound: Timestamp) -> list[Accumulators]:
        """Forget the panes that start before ``bound``; returns what was in them."""
        count = bisect_left(self.order, bound)
        dropped = [self.pop(start) for start in self.order[:count]]
        del self.order[:count]
        return dropped


class TwoStacks:
    """The aggregates, by key, of the panes that start from ``low`` up to ``high`` (exclusive); both only grow."""

    def __init__(self, panes: Panes, accumulation: Accumulation) -> None:
        assert accumulation.merge is not None
        self._panes = panes
        self._merge = accumulation.merge
        self._fresh = accumulation.fresh
        # Before all panes: that of the first timestamp may begin before it.
        self._low = self._high = 2 * MIN_TIMESTAMP
        #: Panes before it are in the front, the others in the back.
        self._middle = self._low
        #: For each key the aggregates from each pane that has it to the end of the front, that of the oldest pane last.
        self._front: dict[Hashable, list[Any]] = {}
        self._back: Accumulators = {}
        #: Keys with records that came into panes which are aggregated already.
        self._stale: set[Hashable] = set()
        #: The key at work, for whoever has to say where ``merge`` failed.
        self.key: Hashable = None

    def __len__(self) -> int:
        """How many aggregates are kept."""
        return sum(map(len, self._front.values())) + len(self._back)

    def came(self, start: Timestamp, key: Hashable) -> None:
        """A record of ``key`` has come into the pane that begins at ``start``."""
        if self._low <= start < self._high:
            self._stale.add(key)

    def move(self, low: Timestamp, high: Timestamp) -> Accumulators:
        """Slide on, and give the aggregates of all keys, which the caller may change."""
        self.leave(low)
        if self._middle < low:
            self._front = self._suffixes(low, high)
            self._back = {}
            self._middle = high
        else:
            self._enter(self._panes.between(max(self._high, low), high))
        self._high = high
        return self._sums()

    def leave(self, low: Timestamp) -> None:
        """Let go of the panes that start before ``low``. To be called before they are dropped."""
        self._refresh()
        if low > self._middle:
            # The back cannot lose its oldest pane: what is left of it is taken up again by the next move.
            self._front, self._back = {}, {}
            self._high = low
        else:
            front = self._front
            for start in self._panes.between(self._low, low):
                for key in self._panes[start]:
                    stack = front[key]
                    stack.pop()
                    if not stack:
                        del front[key]
        self._low = max(self._low, low)

    def _enter(self, starts: Iterable[Timestamp]) -> None:
        back, merge = self._back, self._merge
        for start in starts:
            for key, held in self._panes[start].items():
                self.key = key
                back[key] = merge(back[key], held) if key in back else self._copy(held)

    def _suffixes(self, low: Timestamp, high: Timestamp) -> dict[Hashable, list[Any]]:
        front: dict[Hashable, list[Any]] = {}
        merge, copy = self._merge, self._copy
        for start in reversed(self._panes.between(low, high)):
            for key, held in self._panes[start].items():
                stack = front.get(key)
                if stack is None:
                    front[key] = [held]
                else:
                    self.key = key
                    stack.append(merge(copy(held), stack[-1]))
        return front

    def _sums(self) -> Accumulators:
        front, back, merge, copy = self._front, self._back, self._merge, self._copy
        sums: Accumulators = {}
        for key, stack in front.items():
            self.key = key
            held = copy(stack[-1])
            sums[key] = merge(held, back[key]) if key in back else held
        for key, held in back.items():
            if key not in front:
                self.key = key
                sums[key] = copy(held)
        return sums

    def _refresh(self) -> None:
        """Make the aggregates of the stale keys anew."""
        if not self._stale:
            return
        older = self._panes.between(self._low, self._middle)
        newer = self._panes.between(self._middle, self._high)
        for key in self._stale:
            self.key = key
            self._front.pop(key, None)
            self._back.pop(key, None)
            stack: list[Any] = []
            for start in reversed(older):
                if key in (contents := self._panes[start]):
                    held = contents[key]
                    stack.append(self._merge(self._copy(held), stack[-1]) if stack else held)
            if stack:
                self._front[key] = stack
            for start in newer:
                if key in (contents := self._panes[start]):
                    held, back = contents[key], self._back
                    back[key] = self._merge(back[key], held) if key in back else self._copy(held)
        self._stale = set()

    def _copy(self, held: Any) -> Any:
        fresh = self._fresh
        return held if fresh is None else self._merge(fresh(), held)
