"""The next handler of each key.

Theory. A key with something to do has a *queue*: one call that is running (or waits for a slot, or for the emission of
its results), and records that wait for it. The queue is in one epoch. When the results of its call were emitted, the
next handler is

1. the first waiting record, if it belongs to the epoch of the queue;
2. else, if a watermark ends the epoch, the earliest timer of the key that is due at it;
3. else the same in the next epoch. If the epoch is open, nothing is left and the queue is removed.

A step that never waits has the same order: the records before a watermark, the timers that are due at it with those
that they register, the records after it. Timers that are registered for an earlier moment are due at the next
watermark.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable
from typing import TypeAlias

from aflow.machines.calls.call import Call
from aflow.model.time import Timestamp
from aflow.operators.calls.handlers.epochs import Epoch

Due: TypeAlias = Callable[[Hashable], Timestamp | None]
"""Return the earliest event timer of a key that is due and has not fired."""


class _KeyQueue:
    __slots__ = ("epoch", "waiting")

    def __init__(self, epoch: Epoch) -> None:
        #: The epoch of the running call.
        self.epoch = epoch
        #: Records that wait; None for none.
        self.waiting: deque[Call] | None = None


class KeyQueues:
    """The queues of all keys with something to do."""

    def __init__(self, due: Due) -> None:
        self._due = due
        self._queues: dict[Hashable, _KeyQueue] = {}

    def __contains__(self, key: Hashable) -> bool:
        return key in self._queues

    def __len__(self) -> int:
        return len(self._queues)

    def admit(self, calls: Iterable[Call]) -> list[Call]:
        """Return the calls that may start at once; the others wait. All were put into their epochs."""
        # Hot path: once for each record.
        queues, admitted = self._queues, list[Call]()
        for call in calls:
            queue = queues.get(call.key)
            if queue is None:
                queues[call.key] = _KeyQueue(call.segment)
                admitted.append(call)
            elif queue.waiting is None:
                queue.waiting = deque((call,))
            else:
                queue.waiting.append(call)
        return admitted

    def begin(self, key: Hashable, epoch: Epoch) -> bool:
        """Create a queue without a call, to call ``next`` for; False if the key has a queue."""
        if key in self._queues:
            return False
        self._queues[key] = _KeyQueue(epoch)
        return True

    def next(self, key: Hashable) -> Call | tuple[Timestamp, Epoch] | None:
        """Return what follows the emitted call of ``key``: a call, or a timer and its epoch; None for nothing."""
        queue = self._queues[key]
        while True:
            epoch, waiting = queue.epoch, queue.waiting
            if waiting and waiting[0].segment is epoch:
                return waiting.popleft()
            if epoch.ends is not None:
                at = self._due(key)
                if at is not None and at <= epoch.ends:
                    return at, epoch
            if epoch.next is None:
                del self._queues[key]
                return None
            queue.epoch = epoch.next
