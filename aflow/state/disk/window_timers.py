"""Timers of windows for more keys than fit in memory; see ``machines.windows.window_timers``.

Timers of whole windows are in memory, since there are few of them. Of those of single keys the near ones are, in groups
by time and window, and the far ones are in ``TimerDatabase``. At one time, those of single keys fire before those of
whole windows.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

from aflow.machines.timer_changes import Changes
from aflow.machines.timer_copy import CompleteCopy, TimerCopy
from aflow.machines.windows.window_timers import DueWindow, WindowTimers
from aflow.model.time import TimeDomain, Timestamp
from aflow.model.windows import GLOBAL_WINDOW, TimeWindow
from aflow.state.disk.scratch import Scratch
from aflow.state.disk.timer_database import (
    NEAR,
    FarTimer,
    FarTimers,
    TimerDatabase,
    WindowNamespaces,
    last_changes,
)
from aflow.state.key_kinds import KeyKinds
from aflow.state.keyed_entries import KeyGroupCodec


class DiskWindowTimers:
    """As ``WindowTimers``, with up to ``near`` timers of single keys in memory; otherwise as ``DiskTimerQueue``.

    ``set`` and ``delete`` may return True for a timer that they do not change, except if ``is_exact`` returns True for
    its window: then they read the database.
    """

    def __init__(
        self,
        domain: TimeDomain,
        key_codec: KeyGroupCodec,
        scratch: Scratch,
        kinds: KeyKinds,
        is_exact: Callable[[TimeWindow], bool],
        near: int = NEAR,
    ) -> None:
        self._most_near = near
        self._is_exact = is_exact
        self._near = WindowTimers[Hashable]()
        self._of_windows = WindowTimers[Hashable]()
        self._far = TimerDatabase(domain, WindowNamespaces(), key_codec, scratch, kinds)
        #: The last change of each timer of a single key since changes were taken; None: not recorded.
        self._changes: dict[FarTimer[TimeWindow], bool] | None = None

    def __len__(self) -> int:
        """Count timers; the one of a whole window counts as one. Reads all far ones."""
        return len(self._near) + len(self._of_windows) + sum(1 for _ in self._far.stored())

    @property
    def earliest(self) -> Timestamp | None:
        """Return the time of the earliest timer (epoch ms); None without timers."""
        while (earliest := self._near.earliest) is None and self._far.horizon is not None:
            self._read()
        of_windows = self._of_windows.earliest
        if earliest is None or (of_windows is not None and of_windows < earliest):
            return of_windows
        return earliest

    def set(self, time: Timestamp, window: TimeWindow, key: Hashable) -> bool:
        """Add a timer of ``key``; return False if it is known to be set, or the whole window has one for that time."""
        if self._of_windows.is_set_for_all_keys(time, window):
            return False
        far = self._far
        if far.is_far(time, key, window):
            added = not (self._is_exact(window) and far.holds(time, key, window))
            if added:
                far.write(time, key, window, there=True)
        else:
            added = self._near.set(time, window, key)
            if len(self._near) > self._most_near:
                for at, moved, of in far.take_later_half(self._near.copied()):
                    self._near.delete(at, of, moved)
        if added and self._changes is not None:
            self._changes[time, key, window] = True
        return added

    def set_for_all_keys(self, time: Timestamp, window: TimeWindow) -> None:
        """Add a timer of all keys of ``window``, none of which has a timer of its own for that time."""
        self._of_windows.set_for_all_keys(time, window)

    def delete(self, time: Timestamp, window: TimeWindow, key: Hashable) -> bool:
        """Remove a timer of ``key``; return False if it is known that there is none."""
        far = self._far
        if far.is_far(time, key, window):
            removed = not self._is_exact(window) or far.holds(time, key, window)
            if removed:
                far.write(time, key, window, there=False)
        else:
            removed = self._near.delete(time, window, key)
        if removed and self._changes is not None:
            self._changes[time, key, window] = False
        return removed

    def due(self, now: Timestamp) -> Iterator[DueWindow]:
        """Take the groups with a time at or before ``now``, as ``WindowTimers``.

        A group without keys follows each read of the database.
        """
        while True:
            horizon = self._far.horizon
            bound = now if horizon is None else min(now, horizon[0])
            group = self._take_group(bound)
            if group is not None:
                for due in group:
                    if self._changes is not None:
                        for key in due.keys or ():
                            self._changes[due.time, key, due.window] = False
                    yield due
            elif horizon is None or horizon[0] > now:
                return
            else:
                self._read()
                yield DueWindow(bound, GLOBAL_WINDOW, ())

    def copied(self) -> CopiedDiskTimers:
        """Return all timers of single keys, to iterate over later, also in another thread."""
        return CopiedDiskTimers(self._near.copied(), self._far.stored())

    def copied_in_pieces(self) -> TimerCopy[Hashable, TimeWindow]:
        """Return all present timers; only the near ones are in memory, so they are copied at once."""
        keys = self.keys()
        return CompleteCopy(self.copied(), keys)

    def keys(self) -> list[Hashable]:
        """Return the key of each near timer of a single key: ``kinds`` has observed those of far ones."""
        self._far.flush()
        return self._near.keys()

    def take_changes(self) -> Changes[Hashable, TimeWindow] | None:
        """Return the last changes of timers of single keys since the last call, as ``DiskTimerQueue``."""
        changes, self._changes = self._changes, {}
        return None if changes is None else last_changes(changes)

    def _take_group(self, bound: Timestamp) -> Iterable[DueWindow] | None:
        of_windows, near = self._of_windows.earliest, self._near.earliest
        if near is not None and (of_windows is None or near <= of_windows):
            return self._near.take_group(bound)
        return self._of_windows.take_group(bound)

    def _read(self) -> None:
        """Move the next far timers to memory."""
        for time, key, window in self._far.read():
            self._near.set(time, window, key)


@dataclass(frozen=True, slots=True)
class CopiedDiskTimers:
    """All timers of single keys at one point in time."""

    near: Iterable[tuple[Timestamp, Hashable, TimeWindow]]
    far: FarTimers[TimeWindow]

    def __iter__(self) -> Iterator[tuple[Timestamp, Hashable, TimeWindow]]:
        return chain(self.near, self.far)
