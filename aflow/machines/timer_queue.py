"""The timers of one time domain, in the order in which they fire.

Theory. A timer is its identity: (time, key, namespace). Registering the same one again adds no second timer. It is due
when its time is at or before now (the watermark, or the clock). Due timers are taken in time order, those of one time
in the order of registration. They are taken one by one: the handler of a timer may register and delete others, and a
new one that is due is taken in the same pass.

``TimerQueue`` keeps, as the truth, a dict from each time to its timers, and a heap of the times alone: timers of the
same time (windows have many) share an entry of the heap, and plain ints are compared, which is the fastest operation of
a heap. Most times have one timer only, which is then the value in the dict; a second one makes the value a dict of the
two. Deleting removes from the dicts only; a time of the heap without timers is dead and is dropped at the top. When
dead times outnumber live ones, the heap is made anew, so deleted timers cost less memory than live ones.

After the first ``take_changes`` the queue records added and removed timers, net: one that is added and removed between
two calls is not reported. Before that it records nothing, at no cost.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import islice
from typing import Final, Generic, NamedTuple, TypeAlias, TypeVar

from aflow.machines.timer_changes import ChangeRecord, Changes
from aflow.machines.timer_copy import CopyInPieces, TimerCopy
from aflow.model.time import Timestamp

K = TypeVar("K", bound=Hashable)
N = TypeVar("N", bound=Hashable)

#: Timers of one time that are listed at once.
_PART: Final = 256

#: Number of dead entries for which the heap is never made anew.
_FEW: Final = 64


class Timer(NamedTuple, Generic[K, N]):
    """A timer of ``key`` at ``time`` (epoch ms); ``namespace`` distinguishes timers of one key (a window, say).

    A tuple and no dataclass: one is made for each due timer, which a tuple does in C.
    """

    time: Timestamp
    key: K
    namespace: N


_Identity: TypeAlias = tuple[Timestamp, K, N]
"""A timer as a plain tuple, which is faster to make than a ``Timer``."""

_At: TypeAlias = tuple[K, N] | dict[tuple[K, N], int]
"""The timers of one time: key and namespace of the only one, or of each, with the number of its registration."""


class TimerQueue(Generic[K, N]):
    """The timers of one domain. Registering, deleting and firing cost O(log n), amortised."""

    __slots__ = ("_at", "_changes", "_count", "_next", "_times")

    def __init__(self) -> None:
        #: Timers by time. No dict in here is empty, except that of a time of which timers are being taken.
        self._at: dict[Timestamp, _At[K, N]] = {}
        #: A heap of all times in `_at`, and of dead ones; a time may be in it more than once.
        self._times: list[Timestamp] = []
        self._count = 0
        #: The number of the next registration at a time that has a timer already.
        self._next = 1
        #: The changes since they were taken last; None: not recorded.
        self._changes: ChangeRecord[K, N] | None = None

    def __len__(self) -> int:
        return self._count

    @property
    def earliest(self) -> Timestamp | None:
        """The earliest time of a timer (epoch ms); None without timers."""
        times, at = self._times, self._at
        while times and not at.get(times[0]):
            at.pop(heappop(times), None)
        return times[0] if times else None

    def register(self, time: Timestamp, key: K, namespace: N) -> bool:
        """Add a timer. Return False if it is registered already. Raises ``TypeError`` for an unhashable key."""
        # Hot path (benchmark `timers`): once for each record that registers a timer.
        hash(key)  # now, not when another timer is registered for the same time
        identity = (key, namespace)
        there = self._at.setdefault(time, identity)
        if there is identity:
            heappush(self._times, time)
        elif isinstance(there, dict):
            if identity in there:
                return False
            there[identity] = self._next
            self._next += 1
        elif there == identity:
            return False
        else:
            self._at[time] = {there: 0, identity: self._next}
            self._next += 1
        self._count += 1
        if self._changes is not None:
            self._changes.note((time, key, namespace), there=True)
        return True

    def delete(self, time: Timestamp, key: K, namespace: N) -> bool:
        """Remove a timer. Return False if it is not registered. Raises ``TypeError`` for an unhashable key."""
        # Hot path (benchmark `timers`): once for each record that moves a timer.
        hash(key)
        at = self._at
        there = at.get(time)
        if there is None:
            return False
        identity = (key, namespace)
        if isinstance(there, dict):
            if there.pop(identity, None) is None:
                return False
            if not there:
                del at[time]
        elif there == identity:
            del at[time]
        else:
            return False
        self._count -= 1
        if self._changes is not None:
            self._changes.note((time, key, namespace), there=False)
        if len(self._times) > 2 * len(at) + _FEW:
            # In place: a pass of `due` may be using it.
            self._times[:] = at
            heapify(self._times)
        return True

    def due(self, now: Timestamp) -> Iterator[Timer[K, N]]:
        """Remove and yield the timers with a time at or before ``now``, one by one.

        Timers registered or deleted meanwhile are respected. Those that were not yielded are still registered.
        """
        return (timer for timer in self.due_in_pieces(now) if timer is not None)

    def due_in_pieces(self, now: Timestamp) -> Iterator[Timer[K, N] | None]:
        """As ``due``, but also yield None from time to time while many timers of one time are listed.

        The queue must not be changed then.
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
                    self._changes.note(timer, there=False)
                yield timer
            elif there:
                yield from self._due_at(time, there)
            else:
                at.pop(heappop(times), None)

    def _due_at(
        self, time: Timestamp, there: dict[tuple[K, N], int]
    ) -> Iterator[Timer[K, N] | None]:
        """Take the present timers of one time. Earlier ones registered meanwhile are taken first."""
        present: list[tuple[tuple[K, N], int]] = []
        items = iter(there.items())
        while some := list(islice(items, _PART)):
            if present:
                yield None
            present += some
        present.reverse()
        while present:
            identity, number = present.pop()  # which frees its memory
            if there.get(identity) == number:  # neither deleted nor registered again meanwhile
                del there[identity]
                self._count -= 1
                timer = Timer(time, identity[0], identity[1])
                if self._changes is not None:
                    self._changes.note(timer, there=False)
                yield timer
                if self._times and self._times[0] < time:
                    yield from self.due_in_pieces(time - 1)

    def entries(self) -> Iterator[Timer[K, N]]:
        """Iterate over all timers; registering them in this order restores the queue. Do not change it meanwhile."""
        return _entries(self._at)

    def keys(self) -> list[K]:
        """Return the key of each timer."""
        found: list[K] = []
        for there in self._at.values():
            if isinstance(there, tuple):
                found.append(there[0])
            else:
                found.extend(key for key, _ in there)
        return found

    def copied(self) -> Timers[K, N]:
        """Return all present timers, to iterate over later. Allocates nothing for a timer, so it is fast."""
        return Timers(
            {
                time: there if isinstance(there, tuple) else there.copy()
                for time, there in self._at.items()
            }
        )

    def copied_in_pieces(self) -> TimerCopy[K, N]:
        """Return all present timers, to be collected in pieces before the next call of ``take_changes``.

        Changes must be recorded, so ``take_changes`` must have been called before.
        """
        assert self._changes is not None
        return CopyInPieces(
            list(self._at),
            listed=self._listed,
            identity=_identity,
            changes=self._changes,
        )

    def _listed(self, time: Timestamp) -> Sequence[tuple[K, N]]:
        there = self._at.get(time, ())
        return list(there) if isinstance(there, dict) else (there,) if there else ()

    def take_changes(self) -> Changes[K, N] | None:
        """Return the timers added and removed since the last call. The first call starts recording and returns None."""
        changes, self._changes = self._changes, ChangeRecord()
        return None if changes is None else changes.net()


def _identity(time: Timestamp, timer: tuple[K, N]) -> _Identity[K, N]:
    return time, *timer


def _entries(at: Mapping[Timestamp, _At[K, N]]) -> Iterator[Timer[K, N]]:
    for time, there in at.items():
        for key, namespace in (there,) if isinstance(there, tuple) else there:
            yield Timer(time, key, namespace)


class Timers(Generic[K, N]):
    """The timers of a queue at one point in time, in the order of ``TimerQueue.entries``."""

    __slots__ = ("_at",)

    def __init__(self, at: Mapping[Timestamp, _At[K, N]]) -> None:
        self._at: Final = at

    def __iter__(self) -> Iterator[Timer[K, N]]:
        return _entries(self._at)
