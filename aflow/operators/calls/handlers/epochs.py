"""Where handlers stand among watermarks.

Theory. Fences cut the stream into *stages*. The results of a stage leave as its handlers complete, but only while it is
the first one: its fence follows once nothing of it is left, and then the next stage is the first one. So far that is
``UnorderedCalls``. But what is left of a stage is not known before its handlers have taken effect: one may set a timer
that has to ring before the watermark behind it. So a stage is over only when its calls *have left*, not when they are
settled, and what leaves is handed out piece by piece, with room between the pieces for more calls of the same stage.

Each call knows its stage, and each stage the next one; so a key can go from stage to stage by itself, while other keys
are elsewhere. That is also how keys go on that were restored: the stages in which they stood in the snapshot are made
again for them alone, and lead to the first new one. Their results leave with the stage that is their *home*.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aflow.machines.calls.call import Call
from aflow.machines.calls.queues import HELD, Fence, Out
from aflow.model.elements import Watermark
from aflow.model.time import Timestamp


class Stage:
    """What is between two fences."""

    __slots__ = ("before", "ends", "fence", "home", "left", "next", "settled")

    def __init__(self, before: Timestamp, home: Stage | None = None) -> None:
        #: The watermark in front of it, or of an earlier stage if the fence in front is none (epoch ms).
        self.before = before
        #: The watermark that ends it; None while it is open, and if something else ends it.
        self.ends: Timestamp | None = None
        #: None while it is open.
        self.next: Stage | None = None
        self.home: Final = home or self
        #: What ends it; of homes only.
        self.fence: Fence | None = None
        #: Calls that have not left; of homes only, as the next one is.
        self.left = 0
        #: Those that are settled, in the order in which they were.
        self.settled: list[Call] = []


class Stages:
    """The stages from the first that is not over to the last, which is open. A ``CallQueue``."""

    def __init__(self, watermark: Timestamp) -> None:
        self._first = self.last = Stage(watermark)
        #: As an ordered set.
        self._calls: dict[Call, None] = {}
        self._fences = 0
        #: How many settled calls wait for the fence of an earlier stage.
        self._held = 0

    def __len__(self) -> int:
        return len(self._calls) + self._fences

    def full(self, most: int) -> bool:
        """As ``UnorderedCalls`` does."""
        held = self._held
        return len(self._calls) - held >= most or held >= HELD * most or self._fences >= HELD * most

    @property
    def calls(self) -> list[Call]:
        return list(self._calls)

    @property
    def fences(self) -> list[tuple[int, Fence]]:
        found: list[tuple[int, Fence]] = []
        preceding = 0
        stage: Stage | None = self._first
        while stage is not None and stage.fence is not None:
            preceding += stage.left
            found.append((preceding, stage.fence))
            stage = stage.next
        return found

    def put(self, calls: Sequence[Call]) -> None:
        for call in calls:
            self.put_in(call, self.last)

    def put_in(self, call: Call, stage: Stage) -> None:
        """A call that belongs to ``stage``, which is not over."""
        call.segment = stage
        stage.home.left += 1
        self._calls[call] = None

    def withdraw(self, call: Call) -> None:
        """There is nothing to be made of ``call``, which is not settled."""
        call.done = True
        call.segment.home.left -= 1
        del self._calls[call]

    def put_fence(self, fence: Fence) -> None:
        closed = self.last
        closed.fence = fence
        if isinstance(fence, Watermark):
            closed.ends = fence.timestamp
        self.last = closed.next = Stage(closed.before if closed.ends is None else closed.ends)
        self._fences += 1

    def passed(self, watermark: Timestamp) -> None:
        """It came while nothing was here, and is gone."""
        self.last.before = watermark

    def settle(self, call: Call) -> None:
        call.done = True
        home: Stage = call.segment.home
        home.settled.append(call)
        if home is not self._first:
            self._held += 1

    def settle_all(self, calls: Sequence[Call]) -> None:
        for call in calls:
            self.settle(call)

    @property
    def has_out(self) -> bool:
        first = self._first
        return bool(first.settled) or (not first.left and first.fence is not None)

    def take(self) -> Out:
        """One run, or one fence: whoever takes it may put more into the first stage before asking for the next one."""
        first = self._first
        if first.settled:
            run, first.settled = first.settled, []
            first.left -= len(run)
            for call in run:
                del self._calls[call]
            return [run]
        if first.left or first.fence is None or first.next is None:
            return []
        self._first = first.next
        self._held -= len(self._first.settled)
        self._fences -= 1
        return [first.fence]
