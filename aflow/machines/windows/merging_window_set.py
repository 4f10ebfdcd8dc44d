"""Which windows of a key have become one, and under which name what they hold is filed.

Theory. Windows that merge (sessions) grow record by record, and with them would have to move what is kept of them. So
it stays where it is: it is filed under the window as it was when it began, its *state window*, and this set keeps the
mapping from each window there is to its state window. When several windows become one, the state window of the first
of them is kept, and what is filed under the others has to be folded into it. That is told to the operator, once, as a
``Merge``; a window that merely takes in one that lies inside of it is no merge.

The algorithm is that of Flink's MergingWindowSet. Which windows merge is said by the assigner, for most of them those
that touch; only the group with the window that was just added counts. The set belongs to one key.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from aflow.errors import FlowDefinitionError, InternalError
from aflow.model.windows import TimeWindow


class Merged(NamedTuple):
    """Windows that become one."""

    window: TimeWindow
    """What they become."""
    windows: list[TimeWindow]
    """Two at least."""


class Merge(NamedTuple):
    """What has to be done because windows have become one."""

    target: TimeWindow
    """The merged window."""
    state_window: TimeWindow
    """Where what it holds is filed."""
    sources: list[TimeWindow]
    """The windows that there were before, without the one that was added."""
    merged_state_windows: list[TimeWindow]
    """Where that of the other sources is filed: to be folded into what ``state_window`` has."""


class AddedWindow(NamedTuple):
    """What has become of a window that was added."""

    window: TimeWindow
    """The window that it is, or is part of, now."""
    merge: Merge | None
    """None: nothing has to be folded or renamed."""


def merge_touching(windows: Sequence[TimeWindow]) -> list[Merged]:
    """Those of ``windows`` that overlap or touch, each group with the window that covers it; none of one alone."""
    if len(windows) == 2:
        # Hot path: a key mostly has one window, and a record brings another. 0.7 µs in place of 1.4; apart, 0.1 of 1.1.
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
        #: State windows, by the windows that there are.
        self._states: dict[TimeWindow, TimeWindow] = {}

    def __len__(self) -> int:
        return len(self._states)

    def __iter__(self) -> Iterator[tuple[TimeWindow, TimeWindow]]:
        """Each window with its state window."""
        return iter(self._states.items())

    def state_window(self, window: TimeWindow) -> TimeWindow | None:
        """Where that of ``window`` is filed; None if there is no such window (any more)."""
        return self._states.get(window)

    def add(self, window: TimeWindow) -> AddedWindow:
        """Add ``window`` and merge what has to be merged with it.

        Raises ``FlowDefinitionError`` if windows are merged in a way by which two of them would share what is filed.
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
        """Forget a window. Raises ``InternalError`` if there is none such."""
        if self._states.pop(window, None) is None:
            raise InternalError(f"{window} cannot be retired: it is not among {list(self._states)}")

    def restore(self, window: TimeWindow, state_window: TimeWindow) -> None:
        """Put back what a snapshot has: iterating the set gives it."""
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

    # Windows that merge where they touch are never refused; the assigners of users may merge in other ways.

    def _check_merged(
        self, merged: Merged, sources: Sequence[TimeWindow], added: TimeWindow
    ) -> None:
        there = self._states.keys()
        if not sources or len(set(sources)) < len(sources) or not there >= set(sources):
            raise FlowDefinitionError(
                f"an assigner merged {merged.windows} when {added} was added, "
                f"which it may merge with windows that there are, each once: {list(there)}"
            )
        if merged.window in there and merged.window not in sources:
            raise FlowDefinitionError(
                f"an assigner merged {merged.windows} into {merged.window}, and left out that there is such a window "
                f"already; merge it too"
            )

    def _check_name(self, added: TimeWindow) -> None:
        for window, state_window in self._states.items():
            if state_window == added:
                raise FlowDefinitionError(
                    f"an assigner did not merge {added} with {window}, which began as {added} itself; "
                    f"merge what comes again with what it has become"
                )
