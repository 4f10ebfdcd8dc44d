"""The windows of one key where windows merge, and the state windows of their contents.

Theory. Windows that merge (sessions) grow record by record, and their contents would have to move with them. So
contents are stored under the window as it was created, its *state window*, and this set maps each window to its state
window. When several windows merge, the state window of the first is kept, and the contents of the others must be merged
into its contents. The set reports that to the operator once, as a ``Merge``. A window that only contains an added one
does not change, so nothing is reported.

The algorithm is that of Flink's MergingWindowSet. The assigner decides which windows merge, for most assigners those
that touch; only the group with the added window matters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from aflow.errors import FlowDefinitionError, InternalError
from aflow.model.windows import TimeWindow


class Merged(NamedTuple):
    """Windows that merge."""

    window: TimeWindow
    """The merged window."""
    windows: list[TimeWindow]
    """Two windows or more."""


class Merge(NamedTuple):
    """The merge that an operator has to apply."""

    target: TimeWindow
    """The merged window."""
    state_window: TimeWindow
    """The state window of its contents."""
    sources: list[TimeWindow]
    """The former windows, without the added one."""
    merged_state_windows: list[TimeWindow]
    """The state windows of the other sources, whose contents are merged into those of ``state_window``."""


class AddedWindow(NamedTuple):
    """The result of adding a window."""

    window: TimeWindow
    """The window, or the window that it was merged into."""
    merge: Merge | None
    """None if existing are no contents to merge or to move."""


def merge_touching(windows: Sequence[TimeWindow]) -> list[Merged]:
    """Return the groups of ``windows`` that overlap or touch, each with the covering window; no
    groups of one window.
    """
    if len(windows) == 2:
        # Hot path: a key mostly has one window, and a record adds another. 0.7 µs in place of 1.4; for apart windows
        # 0.1 of 1.1.
        one, other = windows
        if not one.touches(other):
            return []
        return [Merged(one.cover(other), [one, other] if one <= other else [other, one])]
    groups: list[Merged] = []
    for window in sorted(windows):
        if groups and groups[-1].window.touches(window):
            cover, members = groups[-1]
            members.append(window)
            groups[-1] = Merged(cover.cover(window), members)
        else:
            groups.append(Merged(window, [window]))
    return [group for group in groups if len(group.windows) > 1]


MergeFunction = Callable[[Sequence[TimeWindow]], Sequence[Merged]]


class MergingWindowSet:
    """The windows of one key, each with its state window."""

    __slots__ = ("_merging", "_states")

    def __init__(self, merging: MergeFunction = merge_touching) -> None:
        self._merging: Final = merging
        #: State windows by window.
        self._states: dict[TimeWindow, TimeWindow] = {}

    def __iter__(self) -> Iterator[tuple[TimeWindow, TimeWindow]]:
        """Yield each window with its state window."""
        return iter(self._states.items())

    def state_window(self, window: TimeWindow) -> TimeWindow | None:
        """Return the state window of ``window``; None if the set does not contain ``window``."""
        return self._states.get(window)

    def add(self, window: TimeWindow) -> AddedWindow:
        """Add ``window`` and merge the windows that the assigner merges with it.

        Raises ``FlowDefinitionError`` for a merge after which two windows would share a state window.
        """
        states = self._states
        if window in states:
            return AddedWindow(window, None)
        for merged in self._merging([*states, window]):
            if window in merged.windows:
                return self._merge(merged, window)
        self._check_name(window)
        states[window] = window
        return AddedWindow(window, None)

    def retire(self, window: TimeWindow) -> None:
        """Remove a window. Raises ``InternalError`` if the set does not contain it."""
        if self._states.pop(window, None) is None:
            raise InternalError(f"{window} cannot be retired: it is not among {list(self._states)}")

    def restore(self, window: TimeWindow, state_window: TimeWindow) -> None:
        """Add a window and its state window, as iterating the set yields them."""
        self._states[window] = state_window

    def _merge(self, merged: Merged, added: TimeWindow) -> AddedWindow:
        states = self._states
        sources = [window for window in merged.windows if window != added]
        self._check_merged(merged, sources, added)
        former = [states.pop(window) for window in sources]
        states[merged.window] = former[0]
        if sources == [merged.window]:
            return AddedWindow(merged.window, None)
        return AddedWindow(merged.window, Merge(merged.window, former[0], sources, former[1:]))

    # Windows that merge if they touch are never rejected; custom assigners may merge in other ways.

    def _check_merged(
        self, merged: Merged, sources: Sequence[TimeWindow], added: TimeWindow
    ) -> None:
        existing = self._states.keys()
        if not sources or len(set(sources)) < len(sources) or not existing >= set(sources):
            raise FlowDefinitionError(
                f"an assigner merged {merged.windows} when {added} was added; "
                f"merge it with existing windows only, each once: {list(existing)}"
            )
        if merged.window in existing and merged.window not in sources:
            raise FlowDefinitionError(
                f"an assigner merged {merged.windows} into {merged.window}, which exists but was left out; "
                f"merge it too"
            )

    def _check_name(self, added: TimeWindow) -> None:
        for window, state_window in self._states.items():
            if state_window == added:
                raise FlowDefinitionError(
                    f"an assigner did not merge {added} with {window}, which began as {added} itself; "
                    f"merge a window that is added again with the one that it was merged into"
                )
