"""Results of triggers: triggers of time, of counts and differences, and early and late ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from aflow.errors import FlowDefinitionError
from aflow.machines.windows.trigger import Trigger, TriggerContext, TriggerResult
from aflow.machines.windows.triggers import (
    Count,
    Delta,
    EventTime,
    Never,
    ProcessingTime,
    Purging,
)
from aflow.model.windows import GLOBAL_WINDOW, TimeWindow
from tests.machines.windows.trigger_driver import TriggerDriver
from tests.stable_ids import stable

CONTINUE = TriggerResult.CONTINUE
FIRE = TriggerResult.FIRE

FIRST = TimeWindow(0, 10)
SECOND = TimeWindow(10, 20)
BOTH = TimeWindow(0, 20)


def none(one: object, other: object) -> float:
    """Return no difference."""
    return 0


# Event time.


def test_event_time_fires_once_when_the_watermark_reaches_the_end() -> None:
    driver = TriggerDriver(EventTime())

    answers = [driver.element(FIRST, at) for at in (0, 9)]

    assert answers == [CONTINUE, CONTINUE]
    assert driver.advance_watermark(8) == []
    assert driver.advance_watermark(9) == [(FIRST, FIRE)]
    assert driver.advance_watermark(100) == []
    assert driver.empty


def test_event_time_fires_for_each_late_record_and_sets_no_timer() -> None:
    driver = TriggerDriver(EventTime())
    driver.advance_watermark(9)

    assert [driver.element(FIRST), driver.element(FIRST)] == [FIRE, FIRE]
    assert driver.empty


def test_event_time_does_not_fire_at_other_times() -> None:
    driver = TriggerDriver(EventTime())
    driver.element(FIRST)

    assert driver.event_time(12, FIRST) is CONTINUE
    assert driver.processing_time(9, FIRST) is CONTINUE


def test_event_time_fires_windows_before_1970_too() -> None:
    driver = TriggerDriver(EventTime())
    before = TimeWindow(-20, -10)
    driver.element(before)

    assert driver.event.of(before) == [-11]
    assert driver.advance_watermark(-11) == [(before, FIRE)]


def test_event_time_has_a_timer_for_the_end_of_the_merged_window_only() -> None:
    driver = TriggerDriver(EventTime())
    driver.element(FIRST)
    driver.element(SECOND)

    driver.merge([FIRST, SECOND], BOTH)

    assert list(driver.event) == [(19, BOTH)]
    assert driver.advance_watermark(19) == [(BOTH, FIRE)]


def test_event_time_sets_no_timer_for_a_merged_window_that_has_ended() -> None:
    driver = TriggerDriver(EventTime())
    driver.advance_watermark(19)

    driver.merge([FIRST, SECOND], BOTH)

    assert driver.empty


# Early and late.


def test_early_fires_before_the_end_and_event_time_at_it() -> None:
    driver = TriggerDriver(EventTime(early=Count(2)))

    assert [driver.element(FIRST) for _ in range(5)] == [CONTINUE, FIRE, CONTINUE, FIRE, CONTINUE]
    assert driver.advance_watermark(9) == [(FIRST, FIRE)]


def test_late_decides_about_late_records_in_place_of_firing_for_each() -> None:
    driver = TriggerDriver(EventTime(late=Count(2)))
    driver.element(FIRST)
    driver.advance_watermark(9)

    assert [driver.element(FIRST) for _ in range(4)] == [CONTINUE, FIRE, CONTINUE, FIRE]


def test_a_record_that_was_counted_early_does_not_count_for_late() -> None:
    driver = TriggerDriver(EventTime(early=Count(2), late=Count(2)))
    driver.element(FIRST)
    driver.advance_watermark(9)

    assert [driver.element(FIRST), driver.element(FIRST)] == [CONTINUE, FIRE]


def test_with_never_as_late_no_late_record_fires() -> None:
    driver = TriggerDriver(EventTime(late=Never()))
    driver.element(FIRST)

    assert driver.advance_watermark(9) == [(FIRST, FIRE)]
    assert driver.element(FIRST) is CONTINUE


def test_early_is_not_called_for_timers_after_the_end() -> None:
    driver = TriggerDriver(EventTime(early=ProcessingTime()))
    driver.element(FIRST)
    driver.advance_watermark(9)

    assert driver.advance_clock(100) == [(FIRST, CONTINUE)]


def test_early_is_called_for_its_timers_until_the_end() -> None:
    driver = TriggerDriver(EventTime(early=ProcessingTime()))
    driver.element(FIRST)

    assert driver.advance_clock(10) == [(FIRST, FIRE)]


def test_late_is_called_for_its_timers_after_the_end() -> None:
    driver = TriggerDriver(EventTime(late=ProcessingTime()))
    driver.advance_watermark(9)
    driver.element(FIRST)

    assert driver.advance_clock(10) == [(FIRST, FIRE)]


def test_of_merged_windows_that_have_not_ended_the_early_counts_are_added_up() -> None:
    driver = TriggerDriver(EventTime(early=Count(3), late=Count(3)))
    driver.element(FIRST)
    driver.element(SECOND)

    driver.merge([FIRST, SECOND], BOTH)

    assert driver.element(BOTH) is FIRE
    assert list(driver.event) == [(19, BOTH)]


def test_of_merged_windows_that_have_ended_the_late_counts_are_added_up() -> None:
    driver = TriggerDriver(EventTime(early=Count(3), late=Count(3)))
    driver.element(FIRST)
    driver.advance_watermark(19)
    driver.element(FIRST)
    driver.element(SECOND)

    driver.merge([FIRST, SECOND], BOTH)

    assert driver.element(BOTH) is FIRE
    assert driver.empty


def test_a_window_that_has_grown_beyond_the_watermark_clears_the_memory_of_late() -> None:
    driver = TriggerDriver(EventTime(late=Count(2)))
    driver.advance_watermark(9)
    driver.element(FIRST)

    driver.merge([FIRST], BOTH)
    driver.element(BOTH)
    at_end = driver.advance_watermark(19)

    assert at_end == [(BOTH, FIRE)]
    assert [driver.element(BOTH), driver.element(BOTH)] == [CONTINUE, FIRE]


def test_windows_merge_with_event_time_if_they_do_with_its_parts() -> None:
    delta = Delta[Any](1, none)

    assert EventTime().merges
    assert EventTime(early=Count(1), late=Never()).merges
    assert not EventTime(early=delta).merges
    assert not EventTime(late=delta).merges


class Bell(Trigger[object]):
    """Sets a timer for one time, and fires then."""

    def __init__(self, at: int) -> None:
        self._at = at

    def on_element(
        self, value: object, timestamp: int, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        ctx.set_event_timer(self._at)
        return CONTINUE

    def on_event_time(self, at: int, window: TimeWindow, ctx: TriggerContext) -> TriggerResult:
        return FIRE if at == self._at else CONTINUE


@pytest.mark.parametrize(
    ("trigger", "watermarks", "answers"),
    [
        (EventTime(early=Bell(5)), (5, 9), [FIRE, FIRE]),
        (EventTime(early=Bell(9)), (9,), [FIRE]),
        (EventTime(early=Bell(12)), (9, 12), [FIRE, CONTINUE]),
    ],
    ids=["before the end", "at the end", "behind the end"],
)
def test_timers_of_early_in_event_time_count_until_the_end(
    trigger: Trigger[Any], watermarks: tuple[int, ...], answers: list[TriggerResult]
) -> None:
    driver = TriggerDriver(trigger)
    driver.element(FIRST)

    said = [answer for at in watermarks for _, answer in driver.advance_watermark(at)]

    assert said == answers


def test_timers_of_late_in_event_time_count_after_the_end() -> None:
    driver = TriggerDriver(EventTime(late=Bell(30)))
    driver.advance_watermark(9)
    driver.element(FIRST)

    assert driver.advance_watermark(30) == [(FIRST, FIRE)]


# Processing time.


def test_processing_time_fires_once_when_the_clock_reaches_the_end() -> None:
    driver = TriggerDriver(ProcessingTime())

    assert [driver.element(FIRST), driver.element(FIRST)] == [CONTINUE, CONTINUE]
    assert driver.advance_clock(9) == []
    assert driver.advance_clock(10) == [(FIRST, FIRE)]
    assert driver.empty


def test_processing_time_does_not_fire_at_other_times() -> None:
    driver = TriggerDriver(ProcessingTime())

    assert driver.processing_time(5, FIRST) is CONTINUE
    assert driver.event_time(9, FIRST) is CONTINUE


@pytest.mark.parametrize(("clock", "timers"), [(19, [(20, BOTH)]), (20, [])], ids=str)
def test_processing_time_has_a_timer_for_a_merged_window_that_has_not_ended(
    clock: int, timers: list[tuple[int, TimeWindow]]
) -> None:
    driver = TriggerDriver(ProcessingTime())
    driver.element(FIRST)
    driver.element(SECOND)
    driver.clock = clock

    driver.merge([FIRST, SECOND], BOTH)

    assert list(driver.processing) == timers


# Count.


def test_count_fires_at_each_nth_record_of_each_window() -> None:
    driver = TriggerDriver(Count(3))

    first = [driver.element(FIRST) for _ in range(7)]
    second = [driver.element(SECOND) for _ in range(3)]

    assert first == [CONTINUE, CONTINUE, FIRE, CONTINUE, CONTINUE, FIRE, CONTINUE]
    assert second == [CONTINUE, CONTINUE, FIRE]
    assert driver.entries == 1


def test_a_count_of_one_fires_always_and_has_no_memory() -> None:
    driver = TriggerDriver(Count(1))

    assert [driver.element(FIRST), driver.element(FIRST)] == [FIRE, FIRE]
    assert driver.empty


def test_count_does_not_fire_at_the_end_of_a_window() -> None:
    driver = TriggerDriver(Count(3))
    driver.element(FIRST)

    assert driver.event_time(9, FIRST) is CONTINUE
    assert driver.processing_time(9, FIRST) is CONTINUE


def test_counts_of_merged_windows_are_added_and_compared_at_the_next_record() -> None:
    driver = TriggerDriver(Count(3))
    for window in (FIRST, FIRST, SECOND, SECOND):
        driver.element(window)

    driver.merge([FIRST, SECOND], BOTH)

    assert driver.memory == {BOTH: {"count": 4}}
    assert [driver.element(BOTH), driver.element(BOTH)] == [FIRE, CONTINUE]


def test_windows_without_a_count_merge_into_one_without() -> None:
    driver = TriggerDriver(Count(3))

    driver.merge([FIRST, SECOND], BOTH)

    assert driver.empty


# Delta.


def drift(threshold: float = 5) -> TriggerDriver:
    return TriggerDriver(Delta[float](threshold, lambda last, value: abs(value - last)))


def test_delta_fires_when_a_record_differs_by_more_than_the_threshold_from_the_last_that_fired() -> (
    None
):
    driver = drift()

    answers = [driver.element(FIRST, value=value) for value in (10, 15, 16, 21, 10)]

    assert answers == [CONTINUE, CONTINUE, FIRE, CONTINUE, FIRE]


def test_delta_is_called_with_the_last_record_that_fired_first() -> None:
    driver = TriggerDriver(Delta[float](5, lambda last, value: value - last))

    answers = [driver.element(FIRST, value=value) for value in (10, 0, 16, 10, 22)]

    assert answers == [CONTINUE, CONTINUE, FIRE, CONTINUE, FIRE]


def test_delta_has_memory_for_each_window() -> None:
    driver = drift()
    driver.element(FIRST, value=0)

    assert driver.element(SECOND, value=100) is CONTINUE
    assert driver.element(FIRST, value=6) is FIRE


def test_delta_takes_none_for_a_record_like_others() -> None:
    driver = TriggerDriver(Delta[Any](0, lambda last, value: float(last is not value)))

    answers = [driver.element(FIRST, value=value) for value in (None, None, 1, None)]

    assert answers == [CONTINUE, CONTINUE, FIRE, FIRE]


def test_a_difference_that_is_no_number_does_not_fire() -> None:
    driver = drift()

    answers = [driver.element(FIRST, value=value) for value in (0.0, float("nan"), 6.0)]

    assert answers == [CONTINUE, CONTINUE, FIRE]


def test_delta_is_not_for_windows_that_merge() -> None:
    driver = drift()

    assert not driver.trigger.merges
    with pytest.raises(NotImplementedError, match=r"Delta\.merges is True, but it has no on_merge"):
        driver.merge([FIRST], BOTH)


# Never.


def test_never_does_not_fire() -> None:
    driver = TriggerDriver(Never())

    answers = [
        driver.element(GLOBAL_WINDOW),
        driver.event_time(9, GLOBAL_WINDOW),
        driver.processing_time(9, GLOBAL_WINDOW),
    ]
    driver.merge([FIRST, SECOND], BOTH)

    assert answers == [CONTINUE] * 3
    assert driver.trigger.merges
    assert driver.empty


# All.


@pytest.mark.parametrize(
    "trigger",
    [
        EventTime[Any](),
        EventTime(early=Count(3), late=ProcessingTime()),
        EventTime(early=Delta[Any](1, none), late=Purging(Count(4))),
        ProcessingTime(),
        Count(3),
        Delta[Any](1, none),
        Never(),
        Purging(EventTime(early=ProcessingTime())),
    ],
    ids=stable,
)
def test_clear_clears_its_window_and_no_other(
    trigger: Trigger[Any],
) -> None:
    driver, alone = TriggerDriver(trigger), TriggerDriver(trigger)
    for window in (FIRST, SECOND):
        driver.element(window, value=1)
    alone.element(SECOND, value=1)

    driver.clear(FIRST)

    assert driver.memory == alone.memory
    assert list(driver.event) == list(alone.event)
    assert list(driver.processing) == list(alone.processing)
    driver.clear(SECOND)
    assert driver.empty


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: Count(0), "triggers.Count takes a number of records from 1 on, not 0"),
        (lambda: Count(True), "triggers.Count takes a number of records from 1 on, not True"),
        (lambda: Count(cast("int", 2.5)), "not 2.5"),
        (
            lambda: Delta[Any](cast("float", "5"), none),
            "threshold of triggers.Delta is a number, not '5'",
        ),
        (lambda: Delta[Any](True, none), "threshold of triggers.Delta is a number, not True"),
        (
            lambda: Delta[Any](float("nan"), none),
            "threshold of triggers.Delta is a number, not nan",
        ),
        (
            lambda: Delta(5, cast("Any", 3)),
            "delta of triggers.Delta is a function of two values, not 3",
        ),
        (
            lambda: Purging(cast("Any", Count)),
            "Purging takes an aflow.triggers.Trigger, not .*Count",
        ),
        (lambda: EventTime(early=cast("Any", 5)), "early= takes an aflow.triggers.Trigger, not 5"),
        (
            lambda: EventTime(late=cast("Any", Never)),
            "late= takes an aflow.triggers.Trigger, not .*Never",
        ),
    ],
    ids=range(10),
)
def test_invalid_arguments_of_triggers_are_refused_by_name(
    make: Callable[[], object], complaint: str
) -> None:
    with pytest.raises(FlowDefinitionError, match=complaint):
        make()
