"""Timers of one time domain, and when to wake for them.

Theory. A timer is its identity: (time, key, namespace). Registering the same again is no second timer. It is due
when its time is at or before now (the watermark, or the clock). Due timers leave in time order, those of one time
in the order in which they were registered. They leave one by one: what handles one may register and delete others,
and a new one that is due leaves in the same pass.

``TimerQueue`` keeps, as the truth, a dict from each time to the timers there are at it, and a heap of the times alone:
timers that share a moment (windows do) share an entry of the heap, and plain ints are compared, which is the fastest
thing that a heap can do. Most moments have one timer only, which then stands in the dict itself; a second one makes a
dict of the two. Deleting removes from the dicts only; a time of the heap that has no timers is dead and is dropped when
it comes to the top. When the dead outnumber the living, the heap is made anew, so deleted timers cost less memory than
live ones.

Once ``take_changes`` was called, the queue notes which timers come and go, net: one that comes and goes between two
calls was never there. Before that nothing is noted, and it costs nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from aflow.model.time import Timestamp

K = TypeVar("K", bound=Hashable)
N = TypeVar("N", bound=Hashable)

#: Dead entries that are never worth making a heap anew.
_FEW: Final = 64


class Timer(NamedTuple, Generic[K, N]):
    """Something to do for ``key`` at ``time`` (epoch ms); ``namespace`` tells timers of one key apart (a window, say).

    A tuple and no dataclass: one is made for each timer that is due, which a tuple does in C.
    """

    time: Timestamp
    key: K
    namespace: N


_Identity: TypeAlias = tuple[Timestamp, K, N]
"""A timer where it need not be a ``Timer``, which takes longer to make."""

_At: TypeAlias = tuple[K, N] | dict[tuple[K, N], int]
"""The timers of one moment: key and namespace of the only one; or of each, with the number of its registration."""


class TimerQueue(Generic[K, N]):
    """The timers of one domain. Registering, deleting and firing cost O(log n), spread over many calls."""

    __slots__ = ("_at", "_changes", "_count", "_next", "_times")

    def __init__(self) -> None:
        #: The timers there are, by time. No dict in here is empty, but for that of a moment whose timers are leaving.
        self._at: dict[Timestamp, _At[K, N]] = {}
        #: A heap of all times in `_at`, and of dead ones; a time may be in it more than once.
        self._times: list[Timestamp] = []
        self._count = 0
        #: The number of the next registration that finds another timer at its moment.
        self._next = 1
        #: True for each timer that has come since changes were taken last, False for each that has gone; None: nothing
        #: is noted.
        self._changes: dict[_Identity[K, N], bool] | None = None

    def __len__(self) -> int:
        return self._count

    @property
    def earliest(self) -> Timestamp | None:
        """The time of the timer that is due first (epoch ms); None if there is none."""
        times, at = self._times, self._at
        while times and not at.get(times[0]):
            at.pop(heappop(times), None)
        return times[0] if times else None

    def register(self, time: Timestamp, key: K, namespace: N) -> bool:
        """Add a timer; False if it is there already. Raises ``TypeError`` for a key that cannot be hashed."""
        # Hot path (benchmark `timers`): once for each record that sets a timer.
        hash(key)  # now, and not when another timer comes to the same moment
        who = (key, namespace)
        there = self._at.setdefault(time, who)
        if there is who:
            heappush(self._times, time)
        elif isinstance(there, dict):
            if who in there:
                return False
            there[who] = self._next
            self._next += 1
        elif there == who:
            return False
        else:
            self._at[time] = {there: 0, who: self._next}
            self._next += 1
        self._count += 1
        if self._changes is not None:
            toggle(self._changes, (time, key, namespace), there=True)
        return True

    def delete(self, time: Timestamp, key: K, namespace: N) -> bool:
        """Remove a timer; False if it is not there. Raises ``TypeError`` for a key that cannot be hashed."""
        # Hot path (benchmark `timers`): once for each record that puts a timer off.
        hash(key)
        at = self._at
        there = at.get(time)
        if there is None:
            return False
        who = (key, namespace)
        if isinstance(there, dict):
            if there.pop(who, None) is None:
                return False
            if not there:
                del at[time]
        elif there == who:
            del at[time]
        else:
            return False
        self._count -= 1
        if self._changes is not None:
            toggle(self._changes, (time, key, namespace), there=False)
        if len(self._times) > 2 * len(at) + _FEW:
            # In place: a pass of `due` may be looking at it.
            self._times[:] = at
            heapify(self._times)
        return True

    def due(self, now: Timestamp) -> Iterator[Timer[K, N]]:
        """Take the timers with a time at or before ``now``, one by one; a timer is gone once it is handed out.

        Timers registered or deleted meanwhile are heeded. Those that were not asked for are still there.
        """
        times, at = self._times, self._at
        while times and times[0] <= now:
            time = times[0]
            there = at.get(time)
            if isinstance(there, tuple):
                heappop(times)
                del at[time]
                self._count -= 1
                timer = Timer(time, there[0], there[1])
                if self._changes is not None:
                    toggle(self._changes, timer, there=False)
                yield timer
            elif there:
                yield from self._due_at(time, there)
            else:
                at.pop(heappop(times), None)

    def _due_at(self, time: Timestamp, there: dict[tuple[K, N], int]) -> Iterator[Timer[K, N]]:
        """Take those that are at one moment now. What handles them may set earlier ones, which go first."""
        for who, number in list(there.items()):
            if there.get(who) == number:  # not deleted meanwhile, nor registered anew
                del there[who]
                self._count -= 1
                timer = Timer(time, who[0], who[1])
                if self._changes is not None:
                    toggle(self._changes, timer, there=False)
                yield timer
                if self._times and self._times[0] < time:
                    yield from self.due(time - 1)

    def count(self, namespace: N) -> int:
        """How many timers ``namespace`` has. Looks at all timers."""
        return sum(timer.namespace == namespace for timer in self.entries())

    def entries(self) -> Iterator[Timer[K, N]]:
        """All timers, for a snapshot; registering them in this order restores the queue. Do not change it meanwhile."""
        return _entries(self._at)

    def keys(self) -> list[K]:
        """The key of each timer."""
        found: list[K] = []
        for there in self._at.values():
            if isinstance(there, tuple):
                found.append(there[0])
            else:
                found.extend(key for key, _ in there)
        return found

    def copied(self) -> Timers[K, N]:
        """All timers of this moment, to look at later. Makes nothing for a timer, so it is quick."""
        return Timers(
            {
                time: there if isinstance(there, tuple) else there.copy()
                for time, there in self._at.items()
            }
        )

    @property
    def noting(self) -> bool:
        """Whether it is noted what comes and goes."""
        return self._changes is not None

    def take_changes(self) -> Changes[K, N] | None:
        """What has come and gone since the last call; None if this is the first, from which on changes are noted."""
        changes, self._changes = self._changes, {}
        return None if changes is None else changes_of(changes)


def toggle(changes: dict[_Identity[K, N], bool], timer: _Identity[K, N], *, there: bool) -> None:
    """Take note that ``timer`` has come or gone; if it did the opposite before, nothing has happened."""
    if changes.pop(timer, None) is None:
        changes[timer] = there


def changes_of(noted: Mapping[_Identity[K, N], bool]) -> Changes[K, N]:
    """What ``toggle`` has noted."""
    return Changes(
        [timer for timer, there in noted.items() if there],
        [timer for timer, there in noted.items() if not there],
    )


def _entries(at: Mapping[Timestamp, _At[K, N]]) -> Iterator[Timer[K, N]]:
    for time, there in at.items():
        for key, namespace in (there,) if isinstance(there, tuple) else there:
            yield Timer(time, key, namespace)


class Timers(Generic[K, N]):
    """The timers that a queue had at one moment, in the order of ``TimerQueue.entries``."""

    __slots__ = ("_at",)

    def __init__(self, at: Mapping[Timestamp, _At[K, N]]) -> None:
        self._at: Final = at

    def __iter__(self) -> Iterator[Timer[K, N]]:
        return _entries(self._at)


# Not slotted: a generic frozen dataclass with slots cannot be made on Python 3.11.
@dataclass(frozen=True)
class Changes(Generic[K, N]):
    """The timers of a queue that are there and were not, and those that were there and are not."""

    added: list[tuple[Timestamp, K, N]]
    removed: list[tuple[Timestamp, K, N]]
