"""window_assigners.json: which windows a timestamp falls into, and which windows become one."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from aflow.machines.windows.assigners import (
    DynamicSessionWindows,
    SessionWindows,
    SlidingWindows,
    TumblingWindows,
    WindowAssigner,
)
from aflow.machines.windows.stagger import WindowStagger
from aflow.model.windows import TimeWindow
from tests.conformance.driver import Driver, Outcome, call
from tests.conformance.scenarios import Json, UnknownWord


def _dynamic(gap: str | Mapping[object, int]) -> WindowAssigner[object]:
    if not isinstance(gap, str):
        return DynamicSessionWindows(gap.__getitem__)
    found = re.fullmatch(r"(-?\d+) for every element", gap)
    if found is None:
        raise UnknownWord(f"what is a gap of {gap!r}?")
    millis = int(found[1])
    return DynamicSessionWindows(lambda value: millis)


def _tumbling(size: int, offset: int = 0, stagger: str = "aligned") -> WindowAssigner[object]:
    return TumblingWindows(size, offset, stagger=WindowStagger(stagger))


_ASSIGNERS: Final[Mapping[str, Callable[..., WindowAssigner[object]]]] = {
    "tumbling_event_time": _tumbling,
    "sliding_event_time": SlidingWindows,
    "event_time_session": SessionWindows,
    "dynamic_event_time_session": _dynamic,
}


class WindowAssigners(Driver):
    """One assigner, or the attempt to make one."""

    def __init__(self, *, assigner: Json | None = None) -> None:
        self._assigner = None if assigner is None else _make(assigner)
        self._now = 0

    def do_construct(self, **assigner: Any) -> None:
        _make(assigner)

    def do_advance_processing_time(self, to: int) -> None:
        self._now = to

    def do_assign(self, ts: int, value: object = None) -> Outcome:
        assert self._assigner is not None
        if isinstance(self._assigner, TumblingWindows):
            # As a window step does with its first record.
            size, stagger = self._assigner.size, self._assigner.stagger
            self._assigner = self._assigner.shifted(stagger.shift(size, self._now, 0.5))
        return {
            "returns": [[window.start, window.end] for window in self._assigner.assign(value, ts)]
        }

    def do_window_start(self, ts: int, offset: int, size: int) -> Outcome:
        return {"returns": TumblingWindows(size, offset).start_of(ts)}

    def do_merge_windows(self, windows: Sequence[Sequence[int]]) -> Outcome:
        assert self._assigner is not None
        assert self._assigner.merging
        merged = self._assigner.merge([TimeWindow(*bounds) for bounds in windows])
        return {
            "merge_calls": [
                {
                    "windows_any_order": [[window.start, window.end] for window in each.windows],
                    "into": [each.window.start, each.window.end],
                }
                for each in merged
            ]
        }


def _make(assigner: Json) -> WindowAssigner[object]:
    ((name, parameters),) = assigner.items()
    if name not in _ASSIGNERS:
        raise UnknownWord(f"there are no {name} windows")
    made: WindowAssigner[object] = call(_ASSIGNERS[name], parameters)
    return made
