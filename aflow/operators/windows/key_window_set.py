"""The windows of one key that merge, with their contents."""

from __future__ import annotations

from collections.abc import Hashable

from aflow.machines.windows.merging_window_set import MergeFunction, MergingWindowSet
from aflow.model.windows import TimeWindow
from aflow.operators.windows.window_contents import KeyWindow


class KeyWindowSet:
    """The windows of ``key``, and their entries by state window; see ``merging_windows``."""

    __slots__ = ("key", "latest", "states", "windows")

    def __init__(self, key: Hashable, merging: MergeFunction) -> None:
        self.key = key
        self.windows = MergingWindowSet(merging)
        #: Entries by state window.
        self.states: dict[TimeWindow, KeyWindow] = {}
        #: The entry of the last record, if it still exists.
        self.latest: KeyWindow | None = None
