"""window_triggers.json: triggers that are called for windows, and window steps with these triggers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from aflow.machines.windows.trigger import MergeContext, Trigger, TriggerContext, TriggerResult
from aflow.machines.windows.triggers import (
    ContinuousEventTime,
    ContinuousProcessingTime,
    Count,
    EventTime,
    Purging,
)
from aflow.model.elements import Watermark
from aflow.model.time import MIN_TIMESTAMP, Timestamp
from aflow.model.windows import TimeWindow, Windowed
from aflow.operators.accumulation import Accumulation
from aflow.operators.windows.factory import check_logic, window_operator
from aflow.operators.windows.logic import WindowLogic
from aflow.testing import At, OperatorHarness
from aflow.testing.harness import Element
from tests.conformance.driver import Driver, Outcome
from tests.conformance.drivers.window_operator import assigner_of
from tests.conformance.scenarios import Json, UnknownWord
from tests.machines.windows.trigger_driver import Answers, OneWindowContext, TriggerDriver

Bounds = Sequence[int]


def _add(one: int, other: int) -> int:
    return one + other


_SUM: Final = Accumulation(int, _add, merge=_add)

_TRIGGERS: Final[Mapping[str, Callable[[int], Trigger[Any]]]] = {
    "count": Count,
    "continuous_event_time": lambda every: ContinuousEventTime(timedelta(milliseconds=every)),
    "continuous_processing_time": lambda every: ContinuousProcessingTime(
        timedelta(milliseconds=every)
    ),
}


class Told(Trigger[object]):
    """A trigger with a scripted result for all calls."""

    def __init__(self) -> None:
        self.answer = TriggerResult.CONTINUE
        self.merged = 0
        self.cleared: list[TimeWindow] = []

    @property
    def merges(self) -> bool:
        return True

    def on_element(
        self, value: object, timestamp: Timestamp, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        return self.answer

    def on_event_time(
        self, at: Timestamp, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        return self.answer

    def on_processing_time(
        self, at: Timestamp, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        return self.answer

    def on_merge(self, window: TimeWindow, ctx: MergeContext) -> None:
        self.merged += 1

    def clear(self, window: TimeWindow, ctx: TriggerContext) -> None:
        self.cleared.append(window)


def window_triggers(
    *,
    trigger: Json | str,
    assigner: Json | None = None,
    function: str | None = None,
    allowed_lateness: int | None = None,
) -> Driver:
    """The driver for a scenario: a window step if there is an assigner, else only a trigger."""
    if trigger in (
        {"purging": "inner returns the given result"},
        {"purging": "inner records calls"},
    ):
        made: Driver = PurgingAnswers()
    elif assigner is None:
        made = DrivenTrigger(_trigger_of(trigger))
    else:
        return StepWithTrigger(assigner, _trigger_of(trigger), function, allowed_lateness or 0)
    if function is not None or allowed_lateness is not None:
        raise UnknownWord("a trigger alone has no function and no allowed lateness")
    return made


class DrivenTrigger(Driver):
    """A trigger alone."""

    def __init__(self, trigger: Trigger[Any]) -> None:
        self._driver = TriggerDriver(trigger)

    def do_on_element(self, value: int, window: Bounds) -> Outcome:
        # The data give no timestamp; one inside of the window is what such a record would have.
        return {"returns": self._driver.element(TimeWindow(*window), value=value).name.lower()}

    def do_on_event_time(self, ts: int, window: Bounds) -> Outcome:
        return {"returns": self._driver.event_time(ts, TimeWindow(*window)).name.lower()}

    def do_watermark(self, ts: int) -> Outcome:
        return {"trigger_results": _shown(self._driver.advance_watermark(ts))}

    def do_merge(self, windows: Sequence[Bounds], into: Bounds) -> None:
        self._driver.merge([TimeWindow(*each) for each in windows], TimeWindow(*into))

    def do_clear(self, window: Bounds) -> None:
        self._driver.clear(TimeWindow(*window))

    def see_state_entries(self) -> int:
        return self._driver.entries

    def see_state_entries_of(self, expected: Sequence[Json]) -> list[Json]:
        return [
            {
                "window": each["window"],
                "count": len(self._driver.memory.get(TimeWindow(*each["window"]), {})),
            }
            for each in expected
        ]

    def see_event_time_timers(self) -> int:
        return len(list(self._driver.event))

    def see_processing_time_timers(self) -> int:
        return len(list(self._driver.processing))

    def see_event_time_timers_of(self, expected: Sequence[Json]) -> list[Json]:
        return [
            {
                "window": each["window"],
                "count": len(self._driver.event.of(TimeWindow(*each["window"]))),
            }
            for each in expected
        ]


class PurgingAnswers(Driver):
    """A purging trigger around a scripted one."""

    def __init__(self) -> None:
        self._inner = Told()
        self._driver = TriggerDriver(Purging(self._inner))
        self._window = TimeWindow(0, 2)

    def do_on_element(self, inner: str) -> Outcome:
        return self._answer(inner, lambda: self._driver.element(self._window))

    def do_on_event_time(self, inner: str) -> Outcome:
        return self._answer(inner, lambda: self._driver.event_time(1, self._window))

    def do_on_processing_time(self, inner: str) -> Outcome:
        return self._answer(inner, lambda: self._driver.processing_time(1, self._window))

    def do_merge(self, windows: Sequence[Bounds], into: Bounds) -> None:
        # Only what is asked of the inner trigger: `clear` of the former windows is a call of the step's own.
        self._driver.trigger.on_merge(
            TimeWindow(*into), OneWindowContext(self._driver, TimeWindow(*into))
        )

    def do_clear(self, window: Bounds) -> None:
        self._driver.clear(TimeWindow(*window))

    def see_inner_on_merge_calls(self) -> int:
        return self._inner.merged

    def see_inner_clear_calls(self) -> list[list[int]]:
        return [[window.start, window.end] for window in self._inner.cleared]

    def _answer(self, inner: str, ask: Callable[[], TriggerResult]) -> Outcome:
        self._inner.answer = TriggerResult[inner.upper()]
        return {"returns": ask().name.lower()}


class StepWithTrigger(Driver):
    """A window step, all of whose records are of one key."""

    def __init__(
        self, assigner: Json, trigger: Trigger[Any], function: str | None, lateness: int
    ) -> None:
        if function != "sum with window":
            raise UnknownWord(f"what does a function do that is {function!r}?")
        logic = WindowLogic(
            assigner=assigner_of(assigner), trigger=trigger, accumulation=_SUM, lateness=lateness
        )
        check_logic(logic)
        self._step: OperatorHarness[int, Windowed[str, int]] = OperatorHarness(
            lambda: window_operator(logic), key=lambda value: "key", start=MIN_TIMESTAMP
        )

    def do_element(self, value: int, ts: int | None = None) -> None:
        self._step.push(value, ts)

    def do_advance_processing_time(self, to: int) -> None:
        self._step.advance_processing_time(to)

    def see_new_output(self) -> list[Json]:
        return [_result(element) for element in self._step.take()]


def _trigger_of(words: Json | str) -> Trigger[Any]:
    if words == "event_time":
        return EventTime()
    if isinstance(words, str) or len(words) != 1:
        raise UnknownWord(f"there is no trigger {words!r}")
    ((name, every),) = words.items()
    if name not in _TRIGGERS:
        raise UnknownWord(f"there is no trigger {name!r}")
    return _TRIGGERS[name](every)


def _result(element: Element[Windowed[str, int]]) -> Json:
    if isinstance(element, Watermark):
        return {"watermark": element.timestamp}
    assert isinstance(element, At)
    window, value = element.value.window, element.value.value
    return {"window": [window.start, window.end], "value": value, "ts": element.timestamp}


def _shown(answers: Answers) -> list[Json]:
    return [
        {"window": [window.start, window.end], "result": result.name.lower()}
        for window, result in answers
    ]
