"""Timers of one time domain, and when to wake for them.

Theory. A timer is its identity: (time, key, namespace). Registering the same again is no second timer. It is due
when its time is at or before now (the watermark, or the clock). Due timers leave in time order, those of one time
in the order in which they were registered. They leave one by one: what handles one may register and delete others,
and a new one that is due leaves in the same pass.

``TimerQueue`` keeps a heap and, as the truth, a dict of the live timers with the number of their registration.
Deleting removes from the dict only; an entry of the heap whose number is not the one in the dict is dead and is
dropped when it comes to the top. When the dead outnumber the living, the heap is made anew, so deleted timers cost
at most as much memory as live ones.

``Alarm`` decides when the clock has to wake us: at the earliest timer and at no other, however many there are. (One
physical timer for each would cost a million entries in the event loop for a million idle keys.)
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Final, Generic, NamedTuple, TypeVar

from aflow.model.time import Timestamp

K = TypeVar("K", bound=Hashable)
N = TypeVar("N", bound=Hashable)

#: Dead entries that are never worth making a heap anew.
_FEW: Final = 64


class Timer(NamedTuple, Generic[K, N]):
    """Something to do for ``key`` at ``time`` (epoch ms); ``namespace`` tells timers of one key apart (a window, say).

    A tuple and no dataclass: it is made and hashed for each registration, which a tuple does in C, 2.4 times as fast.
    """

    time: Timestamp
    key: K
    namespace: N


class TimerQueue(Generic[K, N]):
    """The timers of one domain. Registering, deleting and firing cost O(log n), spread over many calls."""

    __slots__ = ("_heap", "_live", "_next")

    def __init__(self) -> None:
        #: The timers there are, with the number of their registration, in the order of registration.
        self._live: dict[Timer[K, N], int] = {}
        #: (time, number, timer) for each live timer, and for dead ones: those whose number is not in `_live`.
        self._heap: list[tuple[Timestamp, int, Timer[K, N]]] = []
        self._next = 0

    def __len__(self) -> int:
        return len(self._live)

    @property
    def earliest(self) -> Timestamp | None:
        """The time of the timer that is due first (epoch ms); None if there is none."""
        heap, live = self._heap, self._live
        while heap and live.get(heap[0][2]) != heap[0][1]:
            heappop(heap)
        return heap[0][0] if heap else None

    def register(self, time: Timestamp, key: K, namespace: N) -> bool:
        """Add a timer; False if it is there already."""
        # Hot path: once for each record that sets a timer.
        timer = Timer(time, key, namespace)
        live = self._live
        number = self._next
        if live.setdefault(timer, number) != number:
            return False
        self._next = number + 1
        heappush(self._heap, (time, number, timer))
        return True

    def delete(self, time: Timestamp, key: K, namespace: N) -> bool:
        """Remove a timer; False if it is not there."""
        if self._live.pop(Timer(time, key, namespace), None) is None:
            return False
        if len(self._heap) > 2 * len(self._live) + _FEW:
            # In place: a pass of `due` may be looking at it.
            self._heap[:] = [(timer.time, number, timer) for timer, number in self._live.items()]
            heapify(self._heap)
        return True

    def due(self, now: Timestamp) -> Iterator[Timer[K, N]]:
        """Take the timers with a time at or before ``now``, one by one; a timer is gone once it is handed out.

        Timers registered or deleted meanwhile are heeded. Those that were not asked for are still there.
        """
        heap, live = self._heap, self._live
        while heap and heap[0][0] <= now:
            _, number, timer = heappop(heap)
            if live.get(timer) == number:
                del live[timer]
                yield timer

    def count(self, namespace: N) -> int:
        """How many timers ``namespace`` has. Looks at all timers."""
        return sum(timer.namespace == namespace for timer in self._live)

    def entries(self) -> Iterator[Timer[K, N]]:
        """All timers, for a snapshot; registering them in this order restores the queue. Do not change it meanwhile."""
        return iter(self._live)


@dataclass(frozen=True, slots=True)
class Arm:
    """Ring at ``at`` (epoch ms), and not at whatever was armed before."""

    at: Timestamp


@dataclass(frozen=True, slots=True)
class Disarm:
    """Do not ring."""


class Alarm:
    """Decides when the clock has to ring, so that it rings for the earliest timer and nothing else is armed."""

    __slots__ = ("_at",)

    def __init__(self) -> None:
        #: What is armed now (epoch ms); None if nothing is. There is never more than one.
        self._at: Timestamp | None = None

    def update(self, earliest: Timestamp | None) -> Arm | Disarm | None:
        """What to do now that the earliest timer is at ``earliest``; None: as it is, it is right."""
        if earliest == self._at:
            return None
        self._at = earliest
        return Disarm() if earliest is None else Arm(earliest)

    def rang(self) -> None:
        """Take note that the clock rang: nothing is armed any more."""
        self._at = None
