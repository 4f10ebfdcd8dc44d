"""Timers of windows: of one key in a window, or of a window with all its keys.

Theory. At the end of a window as many timers are due as it has keys, all at one time. So timers are kept in groups, by
time and window, with the keys of each group: a million keys with a timer for the end of one window are a million
entries of a dict and one entry of the heap. A timer of the whole window is a timer of all the keys that it has when the
timer is due. A group has the timers of keys or the one of the window, never both: the latter covers all keys.

A timer is identified by time, window and key; setting it again adds no second timer. Groups are taken in time order,
and those of one time in the order of their creation. As in ``TimerQueue``, the dict of groups is authoritative, and an
entry of the heap without a group is dead; when more entries are dead than alive, the heap is rebuilt. As there, once
``take_changes`` was called, added and removed timers of single keys are recorded, net.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import chain, count, islice
from typing import Any, Final, Generic, NamedTuple, TypeVar

from aflow.machines.timer_changes import ChangeRecord, Changes
from aflow.machines.timer_copy import CopyInPieces, TimerCopy
from aflow.model.time import Timestamp
from aflow.model.windows import TimeWindow

K = TypeVar("K", bound=Hashable)

#: Keys of a group that are taken at once.
_PART: Final = 256

#: Stands for the keys of a group that does not exist.
_NO_KEYS: Final[dict[Any, None]] = {}

#: Dead entries for which the heap is not rebuilt.
_FEW: Final = 64


class DueWindow(NamedTuple):
    """Due timers of ``window``: those of ``keys``, or the one of the whole window if ``keys`` is None."""

    time: Timestamp
    window: TimeWindow
    keys: Sequence[Hashable] | None


# Not slotted: a generic frozen dataclass with slots cannot be made on Python 3.11.
@dataclass(frozen=True)
class CopiedWindowTimers(Generic[K]):
    """Timers of single keys, to iterate over repeatedly; there is no object for a timer before that."""

    groups: Sequence[tuple[tuple[Timestamp, TimeWindow], Sequence[K]]]

    def __iter__(self) -> Iterator[tuple[Timestamp, K, TimeWindow]]:
        for (time, window), keys in self.groups:
            for key in keys:
                yield time, key, window


class WindowTimers(Generic[K]):
    """Timers of one time domain. Setting and deleting cost a dict entry, and O(log n) for the first
    timer of a group.
    """

    __slots__ = ("_changes", "_count", "_groups", "_heap", "_numbers")

    def __init__(self) -> None:
        #: The keys of each group in the order of setting; None for the timer of a whole window. Never empty.
        self._groups: dict[tuple[Timestamp, TimeWindow], dict[K, None] | None] = {}
        #: (time, number, window) for each group, and for some that no longer exist.
        self._heap: list[tuple[Timestamp, int, TimeWindow]] = []
        self._numbers = count()
        self._count = 0
        #: The changes of timers of single keys since they were taken last; None: not recorded.
        self._changes: ChangeRecord[K, TimeWindow] | None = None

    def __len__(self) -> int:
        """Count timers; the one of a whole window counts as one."""
        return self._count

    @property
    def earliest(self) -> Timestamp | None:
        """Return the time of the earliest timer (epoch ms); None without timers."""
        heap, groups = self._heap, self._groups
        while heap and (heap[0][0], heap[0][2]) not in groups:
            heappop(heap)
        return heap[0][0] if heap else None

    def set(self, time: Timestamp, window: TimeWindow, key: K) -> bool:
        """Add a timer of ``key``; return False if it is set, or if the whole window has a timer for that time."""
        # Hot path: once for each record if the trigger sets other timers than that for the end of its window.
        place = (time, window)
        groups = self._groups
        if place in groups:
            keys = groups[place]
            if keys is None or key in keys:
                return False
            keys[key] = None
        else:
            groups[place] = {key: None}
            heappush(self._heap, (time, next(self._numbers), window))
        self._count += 1
        if self._changes is not None:
            self._changes.note((time, key, window), there=True)
        return True

    def is_set_for_all_keys(self, time: Timestamp, window: TimeWindow) -> bool:
        """Return True if the whole window has a timer for that time."""
        return self._groups.get((time, window), _NO_KEYS) is None

    def set_for_all_keys(self, time: Timestamp, window: TimeWindow) -> None:
        """Add a timer of all keys of ``window``, in place of those of single keys for that time."""
        place = (time, window)
        known = place in self._groups
        replaced = self._groups.get(place)
        self._groups[place] = None
        if not known:
            heappush(self._heap, (time, next(self._numbers), window))
            self._count += 1
        elif replaced is not None:
            self._count += 1 - len(replaced)
            self._note_removed(time, window, replaced)

    def delete(self, time: Timestamp, window: TimeWindow, key: K) -> bool:
        """Remove a timer of ``key``; return False if it has no timer of its own for that time."""
        place = (time, window)
        keys = self._groups.get(place)
        if keys is None or key not in keys:
            return False
        del keys[key]
        self._count -= 1
        if self._changes is not None:
            self._changes.note((time, key, window), there=False)
        if not keys:
            del self._groups[place]
            self._compact()
        return True

    def due(self, now: Timestamp) -> Iterator[DueWindow]:
        """Take the groups with a time at or before ``now``, one by one, and large ones in parts.

        Timers that are set or deleted meanwhile count, in groups that were not taken yet. The parts of a large group
        are followed by some without keys, in which its memory is freed.
        """
        while (group := self.take_group(now)) is not None:
            yield from group

    def take_group(self, now: Timestamp) -> Iterable[DueWindow] | None:
        """Take the next group with a time at or before ``now``, and return its parts; None if none is due."""
        heap, groups = self._heap, self._groups
        while heap and heap[0][0] <= now:
            time, _, window = heappop(heap)
            if (time, window) not in groups:
                continue
            keys = groups.pop((time, window))
            if keys is None:
                self._count -= 1
                return (DueWindow(time, window, None),)
            self._count -= len(keys)
            if len(keys) > _PART:
                return self._parts(time, window, keys)
            self._note_removed(time, window, keys)
            return (DueWindow(time, window, list(keys)),)
        return None

    def copied(self) -> CopiedWindowTimers[K]:
        """Return all timers of single keys for a snapshot; setting them in this order restores them."""
        return CopiedWindowTimers(
            [(place, list(keys)) for place, keys in self._groups.items() if keys]
        )

    def copied_in_pieces(self) -> TimerCopy[K, TimeWindow]:
        """Return all timers of single keys, as ``TimerQueue.copied_in_pieces``."""
        assert self._changes is not None
        return CopyInPieces(
            list(self._groups),
            listed=self._listed,
            identity=_identity,
            changes=self._changes,
        )

    def keys(self) -> list[K]:
        """Return the key of each timer of a single key."""
        return list(chain.from_iterable(filter(None, self._groups.values())))

    def take_changes(self) -> Changes[K, TimeWindow] | None:
        """Return the timers of single keys added and removed since the last call; None for the first call."""
        changes, self._changes = self._changes, ChangeRecord()
        return None if changes is None else changes.net()

    def _listed(self, place: tuple[Timestamp, TimeWindow]) -> Sequence[K]:
        return list(self._groups.get(place) or ())

    def _parts(
        self, time: Timestamp, window: TimeWindow, keys: dict[K, None]
    ) -> Iterator[DueWindow]:
        """Yield the parts of a large group, which was taken."""
        left = iter(keys)
        while some := list(islice(left, _PART)):
            self._note_removed(time, window, some)
            yield DueWindow(time, window, some)
        while len(keys) > _PART:
            for _ in range(_PART):
                keys.popitem()
            yield DueWindow(time, window, [])

    def _note_removed(self, time: Timestamp, window: TimeWindow, keys: Iterable[K]) -> None:
        if self._changes is not None:
            for key in keys:
                self._changes.note((time, key, window), there=False)

    def _compact(self) -> None:
        if len(self._heap) > 2 * len(self._groups) + _FEW:
            # In place, since a pass of `due` may be using it; in the order of numbers, which is that of the dict.
            self._heap[:] = [(time, next(self._numbers), window) for time, window in self._groups]
            heapify(self._heap)


def _identity(place: tuple[Timestamp, TimeWindow], key: K) -> tuple[Timestamp, K, TimeWindow]:
    return place[0], key, place[1]
