"""Windows that merge: the windows of each key, and their contents by state window.

The window of a key grows when it merges with others, but its contents are not moved: they are stored under the window
as it was created, its *state window*. When windows merge, one of the state windows is kept, and the contents of the
others are merged into its contents. ``MergingWindowSet`` maps windows to state windows.

With ``OnDisk`` the windows of a key are one row. Those of a batch, and of the keys of due timers, are read at once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any, Final

from aflow.errors import FlowDefinitionError, InternalError
from aflow.machines.windows.assigners import DynamicSessionWindows, SessionWindows, WindowAssigner
from aflow.machines.windows.merging_window_set import Merge, MergeFunction
from aflow.machines.windows.trigger import Trigger
from aflow.model.keys import check_key
from aflow.model.time import Timestamp
from aflow.model.windows import GLOBAL_WINDOW, TimeWindow
from aflow.operators.pieces import drained_slices, slices
from aflow.operators.windows.contexts import WindowTriggerContext, window_text
from aflow.operators.windows.disk_panes import distinct_keys
from aflow.operators.windows.disk_windows import DiskWindows
from aflow.operators.windows.key_window_set import KeyWindowSet
from aflow.operators.windows.lateness import WindowLifetime
from aflow.operators.windows.window_contents import EMPTY, KeyWindow
from aflow.state.backend import WindowTimerQueue
from aflow.state.readable_state import ABSENT, scanned

#: The number of all rows with ``OnDisk``.
_ROWS: Final = 0


class MergingWindows:
    """All windows of a subtask by key, each with a clean-up timer of its own: few of them are equal."""

    kind = "windows that merge"

    def __init__(
        self,
        assigner: WindowAssigner[Any],
        lifetime: WindowLifetime,
        timers: WindowTimerQueue,
        trigger: Trigger[Any],
        trigger_context: WindowTriggerContext,
        merge: Callable[[Any, Any], Any],
        disk: DiskWindows | None = None,
    ) -> None:
        self._assign = assigner.assign
        self._merging: MergeFunction = assigner.merge
        #: True if the assigner merges windows that touch, as sessions do.
        self._sessions = type(assigner) in (SessionWindows, DynamicSessionWindows)
        self._lifetime = lifetime
        #: The timers of the windows' time domain.
        self._timers = timers
        self._trigger = trigger
        self._trigger_context = trigger_context
        #: Merges the contents of two windows.
        self._merge_contents = merge
        self._disk = disk
        if disk is not None:
            disk.recent[_ROWS] = {}
        #: Every key has a window. With ``OnDisk`` those in memory that may be used.
        self._keys: dict[Hashable, KeyWindowSet] = {} if disk is None else disk.recent[_ROWS]

    @property
    def entries(self) -> int:
        """Count one set of windows for each key."""
        return len(self)

    def load(self, keys: Sequence[Hashable], times: Iterable[Timestamp] = ()) -> None:
        """Read the windows of ``keys`` into memory: required before they are used."""
        if self._disk is not None:
            self._disk.rows.load({_ROWS: distinct_keys(keys)})

    def windows_of(self, key: Hashable, value: Any, time: Timestamp) -> Iterator[KeyWindow]:
        """Yield the window of a record, merged with those that it touches, unless it has been cleaned up.

        One window at a time: the next may be merged with it.
        """
        for window in self._assign(value, time):
            one = self._add_window(key, window)
            if one is not None:
                yield one

    #: A key shares no window with other keys, so their watermarks make no difference.
    windows_at_key_watermark = windows_of

    def slices_in(self, window: TimeWindow) -> Iterator[list[KeyWindow]]:
        """Return nothing: all timers are those of single keys."""
        return iter(())

    def kept(self) -> Iterator[list[KeyWindow]]:
        """Yield the entries of all windows except global ones, in pieces, and empty lists before."""
        if self._disk is not None:
            for keys in self._disk.rows.key_slices(_ROWS):
                self.load(keys)
                sets = [self._keys[key] for key in keys if key in self._keys]
                yield [
                    one
                    for of_key in sets
                    for one in of_key.states.values()
                    if one.window != GLOBAL_WINDOW
                ]
                self.evict()
            return
        kept: list[KeyWindow] = []
        for found in slices(self):
            kept += [one for one in found if one.window != GLOBAL_WINDOW]
            yield []
        yield from drained_slices(kept)

    def find(self, window: TimeWindow, keys: Sequence[Hashable]) -> list[KeyWindow]:
        """Return the entries of ``keys`` in a window; none for a key whose window was merged into another."""
        self.load(keys)
        found: list[KeyWindow] = []
        for key in keys:
            of_key = self._keys.get(key)
            state = None if of_key is None else of_key.windows.state_window(window)
            if of_key is not None and state is not None:
                found.append(of_key.states[state])
        return found

    def discard_if_empty(self, one: KeyWindow) -> None:
        """Do nothing: a merging window may always be merged with a later one."""

    def remove(self, one: KeyWindow) -> None:
        """Remove the entry of a key in a window; it must exist."""
        of_key = self._keys[one.key]
        if of_key.latest is one:
            of_key.latest = None
        del of_key.states[self._state(of_key, one.window)]
        self._retire(of_key, one.window)

    def __iter__(self) -> Iterator[KeyWindow]:
        """Yield all entries. With ``OnDisk`` they are copies if they are not in memory."""
        sets = (
            self._keys.values()
            if self._disk is None
            else (of_key for _, of_key in self._disk.rows.items(_ROWS))
        )
        for of_key in sets:
            yield from of_key.states.values()

    def evict(self) -> None:
        """Write entries to disk until there is room in memory. Those that were found before are not valid any more."""
        if self._disk is not None and self._disk.rows.evict():
            self._keys = self._disk.recent[_ROWS]

    def of(self, keys: set[Hashable] | None) -> Iterator[KeyWindow]:
        """Yield the entries of ``keys`` in their windows, or of all keys; with ``OnDisk`` those in memory."""
        if self._disk is not None:
            yield from self._disk.resident(keys)
            return
        for key in self._keys if keys is None else keys & self._keys.keys():
            yield from self._keys[key].states.values()

    def peek(self, key: Hashable) -> Iterable[KeyWindow]:
        """Return the entries of ``key`` for a reader, who does not change them."""
        if self._disk is None:
            return self._keys[key].states.values() if key in self._keys else ()
        found = self._disk.rows.peek(_ROWS, key)
        return () if found is ABSENT else found.states.values()

    def window_keys(self) -> Iterator[Sequence[Hashable]]:
        """Yield the keys for ``ReadableState.scan``."""
        return scanned(list(self._keys)) if self._disk is None else self._disk.rows.scan()

    def key_lists(
        self,
    ) -> Iterator[tuple[list[Hashable], Callable[[set[Hashable]], Iterable[KeyWindow]]]]:
        """Yield all keys, with a function that returns the entries of some keys. Not with ``OnDisk``."""
        yield list(self._keys), self.of

    #: The number of dicts in which the windows of a key are looked up.
    dict_count = 1

    def __len__(self) -> int:
        """Count keys, since few of them have several windows."""
        return len(self._keys) if self._disk is None else len(self._disk.rows)

    def encode(self, one: KeyWindow) -> list[int]:
        """Return the window and the state window of ``one`` for a snapshot."""
        of_key = (
            self._keys[one.key]
            if self._disk is None
            else self._disk.rows.resident_row(_ROWS, one.key)
        )
        state = self._state(of_key, one.window)
        return [one.window.start, one.window.end, state.start, state.end]

    def restore(self, key: Hashable, where: Sequence[int]) -> KeyWindow:
        """Return a new, empty entry in the window that ``encode`` returned."""
        start, end, state_start, state_end = where
        window, state = TimeWindow(start, end), TimeWindow(state_start, state_end)
        of_key = self._windows_by_key(key)
        of_key.windows.restore(window, state)
        return self._create(of_key, window, state)

    def _add_window(self, key: Hashable, window: TimeWindow) -> KeyWindow | None:
        """Add a window of ``key`` and return its entry; None if the window has been cleaned up."""
        of_key = self._windows_by_key(key)
        latest = of_key.latest
        if latest is not None and self._contains(latest.window, window):
            return latest
        added = of_key.windows.add(window)
        if added.merge is not None:
            self._merge(of_key, added.merge)
        actual = added.window
        if self._lifetime.is_cleaned_up(self._lifetime.cleanup(actual)):
            self._retire(of_key, actual)
            return None
        state = self._state(of_key, actual)
        one = of_key.states.get(state) or self._create(of_key, actual, state)
        of_key.latest = one
        return one

    def _contains(self, known: TimeWindow, added: TimeWindow) -> bool:
        """Return True if a session contains the added one: sessions do not touch, so the added one touches no other."""
        # Hot path: saves 3.3 of 8.9 µs a record where 60% of the records are inside the known session.
        return self._sessions and known.start <= added.start and added.end <= known.end

    def _merge(self, of_key: KeyWindowSet, merge: Merge) -> None:
        """Merge entries as ``merge`` says, with the calls to the trigger in the order of its contract."""
        cleanup = self._lifetime.cleanup(merge.target)
        if self._lifetime.is_cleaned_up(cleanup):
            raise FlowDefinitionError(
                f"windows have merged into the {window_text(merge.target)}, which has been cleaned up: watermark "
                f"{self._lifetime.watermark} has passed its end and the allowed lateness; "
                f"a merged window must not end before the windows that it covers"
            )
        kept = of_key.states[merge.state_window]
        former = [kept, *(of_key.states.pop(state) for state in merge.merged_state_windows)]
        one = KeyWindow(of_key.key, merge.target, cleanup)
        trigger, trigger_context = self._trigger, self._trigger_context
        trigger_context.merging(former)
        for each in former:
            if each.window == merge.target:
                # The merged window is one of the former ones: cleared after `on_merge`, it would delete the timers set
                # there.
                each.memory = each.memory and each.memory.copy()
                self._clear(each)
        trigger_context.at = one
        trigger.on_merge(merge.target, trigger_context)
        trigger_context.merging(())
        for each in former:
            if each.window != merge.target:
                self._clear(each)
            if each.held is not EMPTY:
                one.held = (
                    each.held if one.held is EMPTY else self._merge_contents(one.held, each.held)
                )
            one.firing = max(one.firing, each.firing)
        of_key.states[merge.state_window] = one
        self._set_cleanup(one)

    def _clear(self, former: KeyWindow) -> None:
        """Clear the trigger's state of a window that was merged into another, and delete its clean-up timer."""
        self._trigger_context.at = former
        self._trigger.clear(former.window, self._trigger_context)
        if former.cleanup is not None:
            self._timers.delete(former.cleanup, former.window, former.key)

    def _create(self, of_key: KeyWindowSet, window: TimeWindow, state: TimeWindow) -> KeyWindow:
        cleanup = self._lifetime.cleanup(window)
        one = of_key.states[state] = KeyWindow(of_key.key, window, cleanup)
        self._set_cleanup(one)
        return one

    def _set_cleanup(self, one: KeyWindow) -> None:
        if one.cleanup is not None:
            self._timers.set(one.cleanup, one.window, one.key)

    def _state(self, of_key: KeyWindowSet, window: TimeWindow) -> TimeWindow:
        state = of_key.windows.state_window(window)
        if state is None:
            raise InternalError(f"the {window_text(window)} is in no set of windows")
        return state

    def _windows_by_key(self, key: Hashable) -> KeyWindowSet:
        of_key = self._keys.get(key)
        if of_key is None:
            check_key(key)
            of_key = self._keys[key] = KeyWindowSet(key, self._merging)
        return of_key

    def _retire(self, of_key: KeyWindowSet, window: TimeWindow) -> None:
        of_key.windows.retire(window)
        if not of_key.states:
            del self._keys[of_key.key]
            if self._disk is not None:
                self._disk.rows.remove(_ROWS, of_key.key)
