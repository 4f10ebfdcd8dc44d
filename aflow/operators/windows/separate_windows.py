"""Windows that do not merge: for each window its keys, so that its end is one timer however many there are."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias

from aflow.machines.windows.assigners import (
    GlobalWindows,
    SlidingWindows,
    TumblingWindows,
    WindowAssigner,
)
from aflow.machines.windows.window_timers import WindowTimers
from aflow.model.keys import check_key
from aflow.model.time import MIN_TIMESTAMP, Timestamp
from aflow.model.windows import TimeWindow
from aflow.operators.windows.contents import EMPTY, KeyWindow
from aflow.operators.windows.lateness import Horizon
from aflow.operators.windows.staggers import Staggers

Place: TypeAlias = Callable[[Hashable, Any, Timestamp], Iterable[KeyWindow]]
"""Where a record of a key belongs: what there is of its windows, made if need be; none that is gone."""


class OpenWindow:
    """A window, and what its keys have in it."""

    __slots__ = ("cleanup", "keys", "window")

    def __init__(self, window: TimeWindow, cleanup: Timestamp | None) -> None:
        self.window = window
        self.cleanup = cleanup
        self.keys: dict[Hashable, KeyWindow] = {}

    def of(self, key: Hashable) -> KeyWindow:
        """What ``key`` has in it, made if need be. Raises ``UnsupportedKey``."""
        found = self.keys.get(key)
        if found is None:
            check_key(key)
            found = self.keys[key] = KeyWindow(key, self.window, self.cleanup)
        return found


class SeparateWindows:
    """All windows of a subtask, each with its keys and one clean-up timer."""

    kind = "windows that stay as they are"

    #: How many things are remembered about windows themselves.
    entries = 0

    def __init__(
        self,
        assigner: WindowAssigner[Any],
        horizon: Horizon,
        timers: WindowTimers[Hashable],
        staggers: Staggers | None = None,
    ) -> None:
        self._assign = assigner.assign
        self._staggers = staggers
        self._horizon = horizon
        #: Those of the windows' own time domain.
        self._timers = timers
        self._windows: dict[TimeWindow, OpenWindow] = {}
        #: The windows of a place on the grid, as far as they are not gone; good while none goes. Nothing of late ones.
        self._grid: dict[Timestamp, list[OpenWindow]] = {}
        start_of = _grid(assigner)
        self.place: Final[Place] = (
            self._on_staggered_grid(staggers)
            if staggers is not None
            else self._anywhere
            if start_of is None
            else self._on_grid(start_of)
        )

    def find(self, window: TimeWindow, keys: Sequence[Hashable] | None) -> list[KeyWindow]:
        """What there is of a window and ``keys``; of all its keys if that is None."""
        opened = self._windows.get(window)
        if opened is None:
            return []
        if keys is None:
            return list(opened.keys.values())
        return [opened.keys[key] for key in keys if key in opened.keys]

    def settle(self, one: KeyWindow) -> None:
        """Forget ``one``, if it is of a window that never goes and has nothing left in it."""
        if one.cleanup is None and one.held is EMPTY and one.memory is None and not one.timers:
            self.remove(one)

    def remove(self, one: KeyWindow) -> None:
        """Forget what a key has in a window; it has to be there."""
        opened = self._windows[one.window]
        del opened.keys[one.key]
        if not opened.keys:
            del self._windows[one.window]
            self._grid.clear()

    def __iter__(self) -> Iterator[KeyWindow]:
        for opened in self._windows.values():
            yield from opened.keys.values()

    def of(self, keys: set[Hashable]) -> Iterator[KeyWindow]:
        """What ``keys`` have in their windows."""
        for opened in self._windows.values():
            for key in keys & opened.keys.keys():
                yield opened.keys[key]

    def __len__(self) -> int:
        return sum(len(opened.keys) for opened in self._windows.values())

    def encode(self, one: KeyWindow) -> list[int]:
        """Where ``one`` is, for a snapshot."""
        return [one.window.start, one.window.end]

    def restore(self, key: Hashable, where: Sequence[int]) -> KeyWindow:
        """What a snapshot has at ``where``, still without anything in it."""
        start, end = where
        return self._opened(TimeWindow(start, end)).of(key)

    def _on_grid(self, start_of: Callable[[Timestamp], Timestamp]) -> Place:
        grid, kept, assign = self._grid, self._kept, self._assign

        def place(key: Hashable, value: Any, time: Timestamp) -> list[KeyWindow]:
            # Hot path: windows on a grid are looked up by where they start; neither they nor their hashes are made.
            start = start_of(time)
            windows = grid.get(start)
            if windows is None:
                windows = kept(assign(value, time))
                if windows:
                    grid[start] = windows
            return [opened.keys.get(key) or opened.of(key) for opened in windows]

        return place

    def _on_staggered_grid(self, staggers: Staggers) -> Place:
        grid, kept, size = self._grid, self._kept, staggers.size

        def place(key: Hashable, value: Any, time: Timestamp) -> list[KeyWindow]:
            # Windows of two staggers never start at the same moment, so the start alone names a window.
            start = staggers.of(key).start_of(time)
            windows = grid.get(start)
            if windows is None:
                windows = kept((TimeWindow(start, start + size),))
                if windows:
                    grid[start] = windows
            return [opened.keys.get(key) or opened.of(key) for opened in windows]

        return place

    def _anywhere(self, key: Hashable, value: Any, time: Timestamp) -> Iterator[KeyWindow]:
        # One at a time: an assigner may name a window twice, and it may have been forgotten after the first.
        for window in self._assign(value, time):
            for opened in self._kept((window,)):
                yield opened.of(key)

    def place_alone(self, key: Hashable, value: Any, time: Timestamp) -> Iterator[KeyWindow]:
        """Place a record as ``place`` does, where a window that is gone for its key may be there for others."""
        staggers = self._staggers
        assign = self._assign if staggers is None else staggers.of(key).assign
        for window in assign(value, time):
            if not self._horizon.gone(self._horizon.cleanup(window)):
                yield self._opened(window).of(key)

    def _kept(self, windows: Sequence[TimeWindow]) -> list[OpenWindow]:
        kept: list[OpenWindow] = []
        for window in windows:
            opened = self._windows.get(window)
            if opened is None:
                if self._horizon.gone(self._horizon.cleanup(window)):
                    continue
                opened = self._opened(window)
            kept.append(opened)
        return kept

    def _opened(self, window: TimeWindow) -> OpenWindow:
        opened = self._windows.get(window)
        if opened is None:
            cleanup = self._horizon.cleanup(window)
            opened = self._windows[window] = OpenWindow(window, cleanup)
            if cleanup is not None:
                self._timers.set_whole(cleanup, window)
        return opened


def _grid(assigner: WindowAssigner[Any]) -> Callable[[Timestamp], Timestamp] | None:
    """What tells records of the same windows from others without looking at them; None if there is nothing."""
    if type(assigner) is TumblingWindows:
        return assigner.start_of
    if type(assigner) is SlidingWindows and assigner.size % assigner.slide == 0:
        return assigner.start_of
    if type(assigner) is GlobalWindows:
        return lambda timestamp: MIN_TIMESTAMP
    return None
