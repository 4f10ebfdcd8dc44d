"""window_assigners.json: which windows a timestamp falls into."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from aflow.machines.windows.assigners import SlidingWindows, TumblingWindows, WindowAssigner
from tests.conformance.running import Driver, Outcome, call
from tests.conformance.scenarios import Json, UnknownWord

_ASSIGNERS: Final[Mapping[str, Callable[..., WindowAssigner[object]]]] = {
    "tumbling_event_time": TumblingWindows,
    "sliding_event_time": SlidingWindows,
}


class WindowAssigners(Driver):
    """One assigner, or the attempt to make one."""

    def __init__(self, *, assigner: Json | None = None) -> None:
        self._assigner = None if assigner is None else _make(assigner)

    def do_construct(self, **assigner: Any) -> None:
        _make(assigner)

    def do_assign(self, ts: int) -> Outcome:
        assert self._assigner is not None
        return {
            "returns": [[window.start, window.end] for window in self._assigner.assign(None, ts)]
        }


def _make(assigner: Json) -> WindowAssigner[object]:
    ((name, parameters),) = assigner.items()
    if name not in _ASSIGNERS:
        raise UnknownWord(f"there are no {name} windows")
    made: WindowAssigner[object] = call(_ASSIGNERS[name], parameters)
    return made
