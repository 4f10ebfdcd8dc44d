"""Times at which stored rows of window steps act; see ``Operator.row_times``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from aflow.model.codecs import PLAIN
from aflow.model.time import TimeDomain, Timestamp
from aflow.model.windows import TimeWindow
from aflow.operators.base import RowTimes
from aflow.operators.key_timers import TIMER_NAMES
from aflow.operators.windows.lateness import WindowLifetime


class PaneTimes:
    """Times of rows of panes: ``windows_of`` returns the starts of the windows of ``size`` that contain a pane."""

    def __init__(
        self, size: int, lateness: int, windows_of: Callable[[Timestamp], Sequence[Timestamp]]
    ) -> None:
        self._last = size - 1
        self._lateness = lateness
        self._windows_of = windows_of
        #: By the start of a pane; there are few panes at a time.
        self._known: dict[Timestamp, tuple[Timestamp, ...]] = {}

    def of_pane(self, data: bytes) -> tuple[Timestamp, ...]:
        """Return the times of an accumulator: the windows of its pane fire, and the last one is cleaned up."""
        _, start = cast("tuple[object, Timestamp]", PLAIN.decode(data))
        known = self._known.get(start)
        if known is None:
            known = self._known[start] = self._times(self._windows_of(start))
        return known

    def of_firings(self, data: bytes) -> tuple[Timestamp, ...]:
        """Return the times of the number of firings of a window."""
        start, _ = cast("tuple[Timestamp, int]", PLAIN.decode(data))
        return self._times((start,))

    def _times(self, windows: Sequence[Timestamp]) -> tuple[Timestamp, ...]:
        fire = [start + self._last for start in windows]
        return (*fire, fire[-1] + self._lateness)


def window_times(lifetime: WindowLifetime, rows: str, *, has_states: bool) -> RowTimes | None:
    """Return the times of windows stored under the name ``rows``, which are cleaned up, and of their timers.

    None for windows that follow the clock, and if the function has state, whose rows are by key and window.
    """
    if has_states or lifetime.domain is not TimeDomain.EVENT:
        return None

    def of_window(data: bytes) -> tuple[Timestamp, ...]:
        start, end, *_ = cast("list[list[Timestamp]]", PLAIN.decode(data))[0]
        cleanup = lifetime.cleanup(TimeWindow(start, end))
        return () if cleanup is None else (cleanup,)

    def of_timer(data: bytes) -> tuple[Timestamp]:
        return (cast("list[Timestamp]", PLAIN.decode(data))[0],)

    return {rows: of_window, TIMER_NAMES[TimeDomain.EVENT]: of_timer}
