"""merging_window_set.json: which windows have become one, and where what they hold is filed."""

from __future__ import annotations

from collections.abc import Sequence

from aflow.machines.windows.merging import Merge, MergingWindowSet
from aflow.model.windows import TimeWindow
from tests.conformance.drivers.window_operator import assigner_of
from tests.conformance.running import Driver, Outcome
from tests.conformance.scenarios import Json, UnknownWord

Bounds = Sequence[int]


class MergingWindows(Driver):
    """The windows of one key."""

    def __init__(
        self, *, assigner: Json, restored_mapping: Sequence[tuple[Bounds, Bounds]] = ()
    ) -> None:
        self._windows = MergingWindowSet(assigner_of(assigner).merge)
        for window, state_window in restored_mapping:
            self._windows.restore(TimeWindow(*window), TimeWindow(*state_window))
        #: The last merge, and the state windows that there were before.
        self._merge: Merge | None = None
        self._before: set[TimeWindow] = set()

    def do_add_window(self, bounds: Bounds) -> Outcome:
        before = {state_window for _, state_window in self._windows}
        window, merge = self._windows.add(TimeWindow(*bounds))
        if merge is not None:
            self._merge, self._before = merge, before
        return {
            "returns": _bounds(window),
            "merge": None if merge is None else _described(merge),
            "merge_called": merge is not None,
        }

    def do_state_window_of(self, bounds: Bounds) -> Outcome:
        state_window = self._windows.state_window(TimeWindow(*bounds))
        return {"returns": None if state_window is None else _bounds(state_window)}

    def do_retire_window(self, bounds: Bounds) -> None:
        self._windows.retire(TimeWindow(*bounds))

    def see_merged_state_windows(self, expected: str) -> object:
        """``expected`` itself if what it says is so; else the windows that were merged last."""
        if expected != "the two existing state windows that were not kept":
            raise UnknownWord(f"which state windows are {expected!r}?")
        assert self._merge is not None
        merged = self._merge.merged_state_windows
        not_kept = self._before - {self._merge.state_window}
        return expected if len(merged) == 2 and set(merged) == not_kept else merged


def _described(merge: Merge) -> Json:
    return {
        "target": _bounds(merge.target),
        "state_window": _bounds(merge.state_window),
        "sources_any_order": [_bounds(window) for window in merge.sources],
        "merged_state_windows": [_bounds(window) for window in merge.merged_state_windows],
    }


def _bounds(window: TimeWindow) -> list[int]:
    return [window.start, window.end]
