"""One call for several records: who goes together, and when.

Theory. Calls that may be made *come* (``add``), and wait in line. A slot that is free asks for a group (``take``): the
first ``size`` of the line, in the order in which they came. It gets them at once if there are that many. If there are
fewer, they wait for company until the first of them has waited for ``delay``, and go with as many as there are then. So
a group is made when it goes, not before: while all slots are busy it grows, however long that takes, and a ``delay`` of
zero means whatever is there when a slot is free.

Company may be impossible: the input has ended, the stream is idle, or the step takes no more records before it has
results, and no call is under way that could bring some. Then waiting is time lost, and where ``size`` is more than the
step has room for, each group would lose it. Whoever knows that says so (``more_may_come``), and the line does not wait.
Watermarks do not hurry it: records behind them may go with those before them.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

from aflow.model.time import Timestamp

C = TypeVar("C")


class Grouping(Generic[C]):
    """Calls that wait to be made together, by identity. Moments are epoch ms."""

    __slots__ = ("_delay", "_line", "_size", "more_may_come")

    def __init__(self, size: int, delay: int) -> None:
        #: The most calls in a group.
        self._size = size
        #: How long a call waits for others (ms).
        self._delay = delay
        #: False while nobody can come who is not here: then nobody waits.
        self.more_may_come = True
        #: By identity: the calls, and from when on they wait for nobody (epoch ms); in the order in which they came.
        self._line: OrderedDict[int, tuple[C, Timestamp]] = OrderedDict()

    def __len__(self) -> int:
        """How many wait."""
        return len(self._line)

    def add(self, call: C, now: Timestamp) -> None:
        """``call`` may be made. It must not be here already."""
        # Hot path: once for each attempt of a step that calls for groups.
        self._line[id(call)] = (call, now + self._delay)

    def discard(self, call: C) -> bool:
        """``call`` waits no more; False if it did not."""
        return self._line.pop(id(call), None) is not None

    @property
    def earliest(self) -> Timestamp | None:
        """From when on (epoch ms) there is a group to take, if nothing happens before; None if nobody waits.

        It is a moment that has passed if there is one already.
        """
        if not self._line:
            return None
        _, at = next(iter(self._line.values()))
        return at if self._waits else at - self._delay

    @property
    def _waits(self) -> bool:
        return self.more_may_come and len(self._line) < self._size

    def is_due(self, now: Timestamp) -> bool:
        """Whether there is a group to take."""
        if not self._waits:
            return bool(self._line)
        return bool(self._line) and next(iter(self._line.values()))[1] <= now

    def take(self, now: Timestamp) -> list[C] | None:
        """The calls that go together now, in order; they are not here any more. None if nobody is to go yet."""
        if not self.is_due(now):
            return None
        line = self._line
        return [line.popitem(last=False)[1][0] for _ in range(min(self._size, len(line)))]
