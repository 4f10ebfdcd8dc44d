"""merging_window_set.json: merged windows, and the windows under which their state is filed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aflow.machines.windows.merging_window_set import Merge, Merged, MergingWindowSet
from aflow.model.windows import TimeWindow
from tests.conformance.driver import Driver, Outcome
from tests.conformance.drivers.window_operator import assigner_of
from tests.conformance.scenarios import Json, UnknownWord

Bounds = Sequence[int]

_NOT_NULL: Final = "state_window_of(result) is not null"

_NOT_EAGER: Final = (
    "merges windows starting inside the earliest window into [earliest.start, earliest.end+1]; "
    "may merge windows that do not touch the added one"
)

#: One state window is folded into the one that is kept.
_ONE_FOLDED: Final = (
    "exactly the other one of [5,8] and [10,13]",
    "exactly one window, one of [0,3], [5,8], [10,13]",
)


def _merge_into_earliest(windows: Sequence[TimeWindow]) -> list[Merged]:
    earliest = min(windows, key=lambda window: window.start)
    inside = [window for window in windows if earliest.start <= window.start < earliest.end]
    target = TimeWindow(earliest.start, earliest.end + 1)
    return [Merged(target, inside)] if len(inside) > 1 else []


class MergingWindows(Driver):
    """The windows of one key."""

    BESIDE = frozenset({"merge"})

    def __init__(
        self, *, assigner: Json | str, restored_mapping: Sequence[tuple[Bounds, Bounds]] = ()
    ) -> None:
        merging = _merge_into_earliest if assigner == _NOT_EAGER else assigner_of(assigner).merge
        self._windows = MergingWindowSet(merging)
        for window, state_window in restored_mapping:
            self._windows.restore(TimeWindow(*window), TimeWindow(*state_window))
        #: The last merge, and the state windows that there were before.
        self._merge: Merge | None = None
        self._before: set[TimeWindow] = set()

    def do_add_window(self, add_window: Bounds, **expected: Json | None) -> Outcome:
        before = {state_window for _, state_window in self._windows}
        window, merge = self._windows.add(TimeWindow(*add_window))
        if merge is not None:
            self._merge, self._before = merge, before
        if expected:
            assert (merge is None) == (expected["merge"] is None)
        if merge is not None and expected.get("merge") is not None:
            self._check(merge, before, **(expected["merge"] or {}))
        state_window = self._windows.state_window(window)
        return {
            "returns": _bounds(window),
            "merge_called": merge is not None,
            "then": "no state window" if state_window is None else _NOT_NULL,
        }

    def _check(
        self,
        merge: Merge,
        before: set[TimeWindow],
        *,
        target: Bounds,
        sources_any_order: Sequence[Bounds],
        state_window: Bounds | None = None,
        state_window_one_of: Sequence[Bounds] = (),
        merged_state_windows: Sequence[Bounds] | str,
    ) -> None:
        """Compare a merge with that of a scenario."""
        kept = [state_window] if state_window is not None else state_window_one_of
        assert _bounds(merge.target) == target
        assert _bounds(merge.state_window) in kept
        assert sorted(map(_bounds, merge.sources)) == sorted(map(list, sources_any_order))
        folded = [_bounds(window) for window in merge.merged_state_windows]
        if not isinstance(merged_state_windows, str):
            assert folded == merged_state_windows
            return
        if merged_state_windows not in _ONE_FOLDED:
            raise UnknownWord(f"which state windows are {merged_state_windows!r}?")
        among = {_bounds_of(each) for each in state_window_one_of}
        assert {merge.state_window, *merge.merged_state_windows} <= before & among
        assert len(folded) == 1
        assert merge.state_window not in merge.merged_state_windows

    def do_state_window_of(self, bounds: Bounds) -> Outcome:
        state_window = self._windows.state_window(TimeWindow(*bounds))
        return {"returns": None if state_window is None else _bounds(state_window)}

    def do_retire_window(self, bounds: Bounds) -> None:
        self._windows.retire(TimeWindow(*bounds))

    def see_merged_state_windows(self, expected: str) -> object:
        """Return ``expected`` if it holds; else the windows that were merged last."""
        if expected != "the two existing state windows that were not kept":
            raise UnknownWord(f"which state windows are {expected!r}?")
        assert self._merge is not None
        merged = self._merge.merged_state_windows
        not_kept = self._before - {self._merge.state_window}
        return expected if len(merged) == 2 and set(merged) == not_kept else merged


def _bounds_of(bounds: Bounds) -> TimeWindow:
    return TimeWindow(*bounds)


def _bounds(window: TimeWindow) -> list[int]:
    return [window.start, window.end]
