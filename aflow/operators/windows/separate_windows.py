"""Windows that do not merge: each with its keys, so that the end of a window is one timer for all keys."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias

from aflow.machines.windows.assigners import (
    GlobalWindows,
    SlidingWindows,
    TumblingWindows,
    WindowAssigner,
)
from aflow.model.keys import check_key
from aflow.model.time import MIN_TIMESTAMP, Timestamp
from aflow.model.windows import GLOBAL_WINDOW, TimeWindow
from aflow.operators.pieces import drained_slices, slices
from aflow.operators.windows.disk_windows import DiskWindows
from aflow.operators.windows.lateness import WindowLifetime
from aflow.operators.windows.staggers import Staggers
from aflow.operators.windows.window_contents import EMPTY, KeyWindow
from aflow.state.backend import WindowTimerQueue
from aflow.state.readable_state import ABSENT, in_time_order, scanned

RecordWindows: TypeAlias = Callable[[Hashable, Any, Timestamp], Iterable[KeyWindow]]
"""Returns the ``KeyWindow`` of each window of a record that has not been cleaned up, created on demand."""


class OpenWindow:
    """A window with its keys."""

    __slots__ = ("cleanup", "disk", "keys", "loaded", "number", "window")

    def __init__(
        self, window: TimeWindow, cleanup: Timestamp | None, disk: DiskWindows | None = None
    ) -> None:
        self.window = window
        self.cleanup = cleanup
        self.disk = disk
        self.number = -1 if disk is None else disk.new_number()
        #: Keys of the current batch that need not be looked up on disk.
        self.loaded: dict[Hashable, None] = {}
        #: All keys, or those in memory with ``OnDisk``.
        self.keys: dict[Hashable, KeyWindow] = {} if disk is None else disk.recent[self.number]

    def of(self, key: Hashable) -> KeyWindow:
        """Return the entry of ``key``, created on demand. Raises ``UnsupportedKey``."""
        found = self.keys.get(key)
        if found is None:
            check_key(key)
            if self.disk is not None and key not in self.loaded:
                self.load((key,))
                if (found := self.keys.get(key)) is not None:
                    return found
            found = self.keys[key] = KeyWindow(key, self.window, self.cleanup)
        return found

    def present(self, keys: Iterable[Hashable]) -> list[KeyWindow]:
        """Return the entries of ``keys`` that there are in memory."""
        return [self.keys[key] for key in keys if key in self.keys]

    def load(self, keys: Sequence[Hashable]) -> None:
        """Read the entries of ``keys`` into memory."""
        if self.disk is not None:
            self.disk.rows.load({self.number: keys})


class SeparateWindows:
    """All windows of a subtask, each with its keys and one clean-up timer."""

    kind = "windows that do not merge"

    #: State entries of the windows themselves.
    entries = 0

    def __init__(
        self,
        assigner: WindowAssigner[Any],
        lifetime: WindowLifetime,
        timers: WindowTimerQueue,
        staggers: Staggers | None = None,
        disk: DiskWindows | None = None,
    ) -> None:
        self._assign = assigner.assign
        self._staggers = staggers
        self._lifetime = lifetime
        self._disk = disk
        #: The timers of the windows' time domain.
        self._timers = timers
        self._windows: dict[TimeWindow, OpenWindow] = {}
        #: The kept windows by their start on the grid, a cache that is cleared when a window is removed. It has no late
        #: windows.
        self._grid: dict[Timestamp, list[OpenWindow]] = {}
        #: Windows of which `load` has read entries.
        self._loaded: list[OpenWindow] = []
        self._start_of = start_of = None if staggers is not None else _grid(assigner)
        self.windows_of: Final[RecordWindows] = (
            self._on_staggered_grid(staggers)
            if staggers is not None
            else self._off_grid
            if start_of is None
            else self._on_grid(start_of)
        )

    def load(self, keys: Sequence[Hashable], times: Iterable[Timestamp] = ()) -> None:
        """Read the entries of records with ``keys`` and ``times`` into memory at once, as far as they are known.

        Others are read when they are used, since an assigner is called for each record.
        """
        # Hot path: once for each batch with `OnDisk`.
        if self._disk is None or self._start_of is None or not self._grid:
            return
        wanted: dict[Timestamp, dict[Hashable, None]] = {}
        for key, start in zip(keys, map(self._start_of, times), strict=False):
            try:
                wanted.setdefault(start, {})[key] = None
            except TypeError:
                continue  # its use reports it
        found: dict[int, dict[Hashable, None]] = {}
        for start, of_start in wanted.items():
            for opened in self._grid.get(start, ()):
                opened.loaded |= of_start
                found[opened.number] = opened.loaded
                self._loaded.append(opened)
        if found:
            self._disk.rows.load(found)

    def find(self, window: TimeWindow, keys: Sequence[Hashable]) -> list[KeyWindow]:
        """Return the entries of ``keys`` in a window."""
        opened = self._windows.get(window)
        if opened is None:
            return []
        opened.load(keys)
        return [opened.keys[key] for key in keys if key in opened.keys]

    def discard_if_empty(self, one: KeyWindow) -> None:
        """Remove ``one`` if its window is never cleaned up and it holds nothing."""
        if one.cleanup is None and one.held is EMPTY and one.memory is None and not one.timers:
            self.remove(one)

    def remove(self, one: KeyWindow) -> None:
        """Remove the entry of a key in a window; it must exist."""
        opened = self._windows[one.window]
        del opened.keys[one.key]
        if self._disk is not None:
            self._disk.rows.remove(opened.number, one.key)
            if self._disk.rows.count(opened.number):
                return
            self._disk.drop(opened.number)
        elif opened.keys:
            return
        del self._windows[one.window]
        self._grid.clear()

    def slices_in(self, window: TimeWindow) -> Iterator[list[KeyWindow]]:
        """Yield the entries of all keys in a window, which may be removed meanwhile, in pieces.

        The list is empty while others are prepared.
        """
        opened = self._windows.get(window)
        if opened is None:
            return
        if self._disk is not None:
            for keys in self._disk.rows.key_slices(opened.number):
                yield self.find(window, keys)
                self.evict()
            return
        found: list[KeyWindow] = []
        for some in slices(opened.keys.values()):
            found += some
            yield []
        yield from drained_slices(found)

    def kept(self) -> Iterator[list[KeyWindow]]:
        """Yield the entries of all windows except global ones, as ``slices_in``."""
        for window in list(self._windows):
            if window != GLOBAL_WINDOW:
                yield from self.slices_in(window)

    def evict(self) -> None:
        """Write entries to disk until there is room in memory. Those that were found before are not valid any more."""
        if self._disk is None:
            return
        for opened in self._loaded:
            opened.loaded = {}
        self._loaded.clear()
        if self._disk.rows.evict():
            for opened in self._windows.values():
                opened.keys = self._disk.recent[opened.number]

    def __iter__(self) -> Iterator[KeyWindow]:
        """Yield all entries. With ``OnDisk`` they are copies if they are not in memory."""
        for opened in self._windows.values():
            if self._disk is None:
                yield from opened.keys.values()
            else:
                for _, one in self._disk.rows.items(opened.number):
                    yield one

    def of(self, keys: set[Hashable] | None) -> Iterator[KeyWindow]:
        """Yield the entries of ``keys`` in all windows, or of all keys; with ``OnDisk`` those in memory."""
        if self._disk is not None:
            yield from self._disk.resident(keys)
            return
        for opened in self._windows.values():
            for key in opened.keys if keys is None else keys & opened.keys.keys():
                yield opened.keys[key]

    def peek(self, key: Hashable) -> Iterator[KeyWindow]:
        """Yield the entries of ``key`` for a reader, who does not change them."""
        for opened in self._windows.values():
            if key in opened.keys:
                yield opened.keys[key]
            elif self._disk is not None:
                found = self._disk.rows.peek(opened.number, key)
                if found is not ABSENT:
                    yield found

    def window_keys(self) -> Iterator[Sequence[Hashable]]:
        """Yield the keys, each once for each of its windows, for ``ReadableState.scan``."""
        if self._disk is not None:
            yield from self._disk.rows.scan()
            return
        windows = self._windows
        # Windows are removed in the order of their ends.
        places = in_time_order(
            lambda: [(one.end, one.start) for one in windows],
            lambda place: TimeWindow(place[1], place[0]) in windows,
        )
        for end, start in places:
            yield from scanned(list(windows[TimeWindow(start, end)].keys))

    def key_lists(
        self,
    ) -> Iterator[tuple[list[Hashable], Callable[[set[Hashable]], Iterable[KeyWindow]]]]:
        """Yield the keys of each window, with a function that returns its entries of some keys. Not with ``OnDisk``."""
        for opened in self._windows.values():
            yield list(opened.keys), opened.present

    @property
    def dict_count(self) -> int:
        """The number of dicts in which the windows of a key are looked up."""
        return len(self._windows)

    def __len__(self) -> int:
        if self._disk is not None:
            return len(self._disk.rows)
        return sum(len(opened.keys) for opened in self._windows.values())

    def encode(self, one: KeyWindow) -> list[int]:
        """Return the window of ``one`` for a snapshot."""
        return [one.window.start, one.window.end]

    def restore(self, key: Hashable, where: Sequence[int]) -> KeyWindow:
        """Return a new, empty entry in the window that ``encode`` returned."""
        start, end = where
        return self._opened(TimeWindow(start, end)).of(key)

    def _on_grid(self, start_of: Callable[[Timestamp], Timestamp]) -> RecordWindows:
        grid, kept, assign = self._grid, self._open_entries, self._assign

        def windows_of(key: Hashable, value: Any, time: Timestamp) -> list[KeyWindow]:
            # Hot path: windows on a grid are looked up by their start; neither a window nor its hash is made.
            start = start_of(time)
            windows = grid.get(start)
            if windows is None:
                windows = kept(assign(value, time))
                if windows:
                    grid[start] = windows
            return [opened.keys.get(key) or opened.of(key) for opened in windows]

        return windows_of

    def _on_staggered_grid(self, staggers: Staggers) -> RecordWindows:
        grid, kept, size = self._grid, self._open_entries, staggers.size

        def windows_of(key: Hashable, value: Any, time: Timestamp) -> list[KeyWindow]:
            # Windows of different staggers never start at the same time, so the start identifies a window.
            start = staggers.of(key).start_of(time)
            windows = grid.get(start)
            if windows is None:
                windows = kept((TimeWindow(start, start + size),))
                if windows:
                    grid[start] = windows
            return [opened.keys.get(key) or opened.of(key) for opened in windows]

        return windows_of

    def _off_grid(self, key: Hashable, value: Any, time: Timestamp) -> Iterator[KeyWindow]:
        # One at a time: an assigner may return a window twice, and the window may be removed after the first.
        for window in self._assign(value, time):
            for opened in self._open_entries((window,)):
                yield opened.of(key)

    def windows_at_key_watermark(
        self, key: Hashable, value: Any, time: Timestamp
    ) -> Iterator[KeyWindow]:
        """Return the windows of a record whose key may have another watermark than other keys."""
        staggers = self._staggers
        assign = self._assign if staggers is None else staggers.of(key).assign
        for window in assign(value, time):
            if not self._lifetime.is_cleaned_up(self._lifetime.cleanup(window)):
                yield self._opened(window).of(key)

    def _open_entries(self, windows: Sequence[TimeWindow]) -> list[OpenWindow]:
        kept: list[OpenWindow] = []
        for window in windows:
            opened = self._windows.get(window)
            if opened is None:
                if self._lifetime.is_cleaned_up(self._lifetime.cleanup(window)):
                    continue
                opened = self._opened(window)
            kept.append(opened)
        return kept

    def _opened(self, window: TimeWindow) -> OpenWindow:
        opened = self._windows.get(window)
        if opened is None:
            cleanup = self._lifetime.cleanup(window)
            opened = self._windows[window] = OpenWindow(window, cleanup, self._disk)
            if cleanup is not None:
                self._timers.set_for_all_keys(cleanup, window)
        return opened


def _grid(assigner: WindowAssigner[Any]) -> Callable[[Timestamp], Timestamp] | None:
    """Return the function from a timestamp to the start that identifies its windows; None if there is none."""
    if type(assigner) is TumblingWindows:
        return assigner.start_of
    if type(assigner) is SlidingWindows and assigner.size % assigner.slide == 0:
        return assigner.start_of
    if type(assigner) is GlobalWindows:
        return lambda timestamp: MIN_TIMESTAMP
    return None
