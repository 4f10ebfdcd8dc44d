"""The epochs of a step with handlers: the parts of the stream between two fences.

Theory. Fences (watermarks, idleness) cut the stream into *epochs*. The results of an epoch are emitted as its handlers
complete, but only in the first epoch: its fence follows once nothing of it is left, and then the next epoch is the
first one. So far that is ``UnorderedCalls``. But what is left of an epoch is not known before its handlers took effect:
one may register a timer that has to fire before the watermark that follows. So an epoch ends only when its calls are
*emitted*, not when they are settled, and ``take`` yields one run at a time: calls of the same epoch can be put between
two runs.

Each call has its epoch, and each epoch the next one. So a key proceeds from epoch to epoch by itself, while other keys
are in other epochs. Restored keys proceed so too: the epochs in which they were in the snapshot are created again for
them alone, and lead to the first new one. Their results are emitted with the epoch that is their *home*.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from aflow.machines.calls.call import Call
from aflow.machines.calls.queues import HELD, Fence
from aflow.model.elements import Watermark
from aflow.model.time import Timestamp


class Epoch:
    """The part of the stream between two fences."""

    __slots__ = ("before", "ends", "fence", "home", "left", "next", "settled")

    def __init__(self, before: Timestamp, home: Epoch | None = None) -> None:
        #: The last watermark before it (epoch ms).
        self.before = before
        #: The watermark that ends it; None while it is open, and if another fence ends it.
        self.ends: Timestamp | None = None
        #: None while it is open.
        self.next: Epoch | None = None
        self.home: Final = home or self
        #: The fence that ends it; only in homes.
        self.fence: Fence | None = None
        #: The number of calls that were not emitted; only in homes, as the next attribute.
        self.left = 0
        #: Settled calls, in the order of settling.
        self.settled: list[Call] = []


class WatermarkEpochs:
    """The epochs from the first that has not ended to the last, which is open. A ``CallQueue``."""

    def __init__(self, watermark: Timestamp) -> None:
        self._first = self.last = Epoch(watermark)
        #: As an ordered set.
        self._calls: dict[Call, None] = {}
        self._fences = 0
        #: The number of settled calls that wait for the fence of an earlier epoch.
        self._held = 0

    def __len__(self) -> int:
        return len(self._calls) + self._fences

    def full(self, most: int) -> bool:
        """Return True if the step is full, as in ``UnorderedCalls``."""
        held = self._held
        return len(self._calls) - held >= most or held >= HELD * most or self._fences >= HELD * most

    @property
    def calls(self) -> list[Call]:
        return list(self._calls)

    @property
    def fences(self) -> list[tuple[int, Fence]]:
        found: list[tuple[int, Fence]] = []
        preceding = 0
        epoch: Epoch | None = self._first
        while epoch is not None and epoch.fence is not None:
            preceding += epoch.left
            found.append((preceding, epoch.fence))
            epoch = epoch.next
        return found

    def put(self, calls: Sequence[Call]) -> None:
        for call in calls:
            self.put_in(call, self.last)

    def put_in(self, call: Call, epoch: Epoch) -> None:
        """Put a call into ``epoch``, which has not ended."""
        call.segment = epoch
        epoch.home.left += 1
        self._calls[call] = None

    def withdraw(self, call: Call) -> None:
        """Remove ``call``, which is not settled and has no result."""
        call.done = True
        call.segment.home.left -= 1
        del self._calls[call]

    def put_fence(self, fence: Fence) -> None:
        closed = self.last
        closed.fence = fence
        if isinstance(fence, Watermark):
            closed.ends = fence.timestamp
        self.last = closed.next = Epoch(closed.before if closed.ends is None else closed.ends)
        self._fences += 1

    def passed(self, watermark: Timestamp) -> None:
        """Record a watermark that was emitted while the queue was empty."""
        self.last.before = watermark

    def settle(self, call: Call) -> None:
        call.done = True
        home: Epoch = call.segment.home
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

    def take(self) -> Iterator[list[Call] | Fence]:
        """Remove and yield what may be emitted. Calls may be put into the first epoch between two steps."""
        while True:
            first = self._first
            if first.settled:
                run, first.settled = first.settled, []
                first.left -= len(run)
                for call in run:
                    del self._calls[call]
                yield run
            elif first.left or first.fence is None or first.next is None:
                return
            else:
                self._first = first.next
                self._held -= len(self._first.settled)
                self._fences -= 1
                yield first.fence
