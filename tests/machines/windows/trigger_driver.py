"""Driver of a trigger with all windows of one key in memory, which counts the trigger's memory and timers.

It has neither clean-up times nor contents: a window exists from the first call of the trigger for it, and its memory
and timers after ``clear`` are those that the trigger failed to clear.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar, cast

from aflow.machines.windows.trigger import Trigger, TriggerResult
from aflow.model.time import MIN_TIMESTAMP, Timestamp
from aflow.model.windows import TimeWindow

S = TypeVar("S")

Answers = list[tuple[TimeWindow, TriggerResult]]


class Timers:
    """The timers of one time domain, each with its window, in the order of setting."""

    def __init__(self) -> None:
        self._all: dict[tuple[Timestamp, TimeWindow], None] = {}

    def __iter__(self) -> Iterator[tuple[Timestamp, TimeWindow]]:
        return iter(self._all)

    def set(self, at: Timestamp, window: TimeWindow) -> None:
        self._all[at, window] = None

    def delete(self, at: Timestamp, window: TimeWindow) -> None:
        self._all.pop((at, window), None)

    def of(self, window: TimeWindow) -> list[Timestamp]:
        """Return the times of the timers of ``window``, earliest first."""
        return sorted(at for at, of in self._all if of == window)

    def take(self, now: Timestamp) -> tuple[Timestamp, TimeWindow] | None:
        """Remove and return the next timer that is due at ``now``."""
        due = [timer for timer in self._all if timer[0] <= now]
        if not due:
            return None
        first = min(due, key=lambda timer: timer[0])
        del self._all[first]
        return first


class TriggerDriver:
    """Calls a trigger for the windows of one key as a window step does."""

    def __init__(self, trigger: Trigger[Any]) -> None:
        self.trigger = trigger
        self.watermark = MIN_TIMESTAMP
        self.clock = 0
        self.event = Timers()
        self.processing = Timers()
        #: The memory of each window; no empty dicts.
        self.memory: dict[TimeWindow, dict[str, object]] = {}

    @property
    def entries(self) -> int:
        """Count the values in the memory of all windows."""
        return sum(len(names) for names in self.memory.values())

    @property
    def empty(self) -> bool:
        """Return True without memory and timers."""
        return not self.memory and not list(self.event) and not list(self.processing)

    def element(
        self, window: TimeWindow, at: Timestamp | None = None, value: Any = None
    ) -> TriggerResult:
        """Add a record, by default at the window's start."""
        moment = window.start if at is None else at
        return self.trigger.on_element(value, moment, window, OneWindowContext(self, window))

    def event_time(self, at: Timestamp, window: TimeWindow) -> TriggerResult:
        """Fire a timer that the trigger has not set, as that of a clean-up."""
        return self.trigger.on_event_time(at, window, OneWindowContext(self, window))

    def processing_time(self, at: Timestamp, window: TimeWindow) -> TriggerResult:
        """Fire a timer that the trigger has not set, as that of a clean-up."""
        return self.trigger.on_processing_time(at, window, OneWindowContext(self, window))

    def advance_watermark(self, to: Timestamp) -> Answers:
        """Return the trigger's result for each due timer."""
        self.watermark = to
        return self._ring(self.event, to, self.event_time)

    def advance_clock(self, to: Timestamp) -> Answers:
        """Return the trigger's result for each due timer."""
        self.clock = to
        return self._ring(self.processing, to, self.processing_time)

    def merge(self, windows: Sequence[TimeWindow], into: TimeWindow) -> None:
        """Merge ``windows`` into ``into``, which is none of them."""
        former = [self.memory.get(window, {}) for window in windows]
        self.trigger.on_merge(into, OneWindowContext(self, into, former))
        for window in windows:
            self.clear(window)

    def clear(self, window: TimeWindow) -> None:
        self.trigger.clear(window, OneWindowContext(self, window))

    def _ring(
        self, timers: Timers, now: Timestamp, ask: Callable[[Timestamp, TimeWindow], TriggerResult]
    ) -> Answers:
        answers: Answers = []
        while (timer := timers.take(now)) is not None:
            at, window = timer
            answers.append((window, ask(at, window)))
        return answers


class OneWindowContext:
    """The ``MergeContext`` of one window."""

    def __init__(
        self,
        driver: TriggerDriver,
        window: TimeWindow,
        former: Sequence[dict[str, object]] | None = None,
    ) -> None:
        self._driver = driver
        self._window = window
        self._former = former

    @property
    def watermark(self) -> Timestamp:
        return self._driver.watermark

    @property
    def processing_time(self) -> Timestamp:
        return self._driver.clock

    def set_event_timer(self, at: Timestamp) -> None:
        self._driver.event.set(at, self._window)

    def delete_event_timer(self, at: Timestamp) -> None:
        self._driver.event.delete(at, self._window)

    def set_processing_timer(self, at: Timestamp) -> None:
        self._driver.processing.set(at, self._window)

    def delete_processing_timer(self, at: Timestamp) -> None:
        self._driver.processing.delete(at, self._window)

    def get(self, name: str, default: S) -> S:
        return cast("S", self._driver.memory.get(self._window, {}).get(name, default))

    def put(self, name: str, value: object) -> None:
        self._driver.memory.setdefault(self._window, {})[name] = value

    def drop(self, name: str) -> None:
        names = self._driver.memory.get(self._window, {})
        names.pop(name, None)
        if not names:
            self._driver.memory.pop(self._window, None)

    def merged(self, name: str, default: S) -> list[S]:
        assert self._former is not None, "only on_merge may ask what former windows remember"
        return [cast("S", names.get(name, default)) for names in self._former]
