"""Triggers that fire at multiples of an interval, if a record was added since the last firing."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, cast

import pytest

from aflow.errors import FlowDefinitionError
from aflow.machines.windows.trigger import Trigger, TriggerResult
from aflow.machines.windows.triggers import (
    ContinuousEventTime,
    ContinuousProcessingTime,
    EventTime,
    Never,
    Purging,
)
from aflow.model.time import MAX_TIMESTAMP
from aflow.model.windows import GLOBAL_WINDOW, TimeWindow
from tests.machines.windows.trigger_driver import TriggerDriver
from tests.stable_ids import stable

CONTINUE = TriggerResult.CONTINUE
FIRE = TriggerResult.FIRE
FIRE_AND_PURGE = TriggerResult.FIRE_AND_PURGE

TEN = timedelta(milliseconds=10)
WINDOW = TimeWindow(0, 100)
EARLIER = TimeWindow(-60, -5)
LATER = TimeWindow(-5, 60)
MERGED = TimeWindow(-60, 60)


# Event time.


def test_event_time_fires_at_the_first_multiple_after_a_record_and_at_the_end() -> None:
    driver = TriggerDriver(ContinuousEventTime(TEN))

    assert driver.element(WINDOW, 33) is CONTINUE
    assert driver.event.of(WINDOW) == [40, 99]
    assert driver.advance_watermark(39) == []
    assert driver.advance_watermark(40) == [(WINDOW, FIRE)]
    assert driver.advance_watermark(99) == [(WINDOW, FIRE)]


def test_a_record_at_a_multiple_fires_at_the_next_one() -> None:
    driver = TriggerDriver(ContinuousEventTime(TEN))

    driver.element(WINDOW, 30)

    assert driver.event.of(WINDOW) == [40, 99]


def test_without_a_new_record_event_time_fires_at_no_further_multiple() -> None:
    driver = TriggerDriver(ContinuousEventTime(TEN))
    driver.element(WINDOW, 33)
    driver.advance_watermark(40)

    assert driver.advance_watermark(98) == []
    assert not driver.memory


def test_with_a_new_record_event_time_fires_again() -> None:
    driver = TriggerDriver(ContinuousEventTime(TEN))
    driver.element(WINDOW, 33)
    driver.advance_watermark(40)

    driver.element(WINDOW, 41)

    assert driver.advance_watermark(50) == [(WINDOW, FIRE)]


def test_all_records_before_a_multiple_fire_once() -> None:
    driver = TriggerDriver(ContinuousEventTime(TEN))

    for at in (33, 31, 39, 33):
        driver.element(WINDOW, at)

    assert driver.advance_watermark(98) == [(WINDOW, FIRE)]


def test_before_the_first_watermark_the_earliest_timestamp_decides_about_the_multiple() -> None:
    driver = TriggerDriver(ContinuousEventTime(TEN))
    driver.element(WINDOW, 33)

    driver.element(WINDOW, 12)

    assert driver.event.of(WINDOW) == [20, 99]


def test_the_watermark_decides_about_the_multiple_and_not_the_timestamp_of_a_record() -> None:
    driver = TriggerDriver(ContinuousEventTime(TEN))
    driver.advance_watermark(5)
    driver.element(WINDOW, 88)

    assert driver.event.of(WINDOW) == [10, 99]
    assert driver.advance_watermark(10) == [(WINDOW, FIRE)]


def test_a_multiple_that_was_taken_from_a_timestamp_is_replaced_once_there_is_a_watermark() -> None:
    driver = TriggerDriver(ContinuousEventTime(TEN))
    driver.element(WINDOW, 88)
    driver.advance_watermark(5)

    driver.element(WINDOW, 30)

    assert driver.event.of(WINDOW) == [10, 99]


@pytest.mark.parametrize(
    ("trigger", "periods"),
    [
        (ContinuousEventTime(TEN), (10,)),
        (EventTime(early=ContinuousEventTime(TEN)), (10,)),
        (Purging(EventTime(early=Never(), late=ContinuousEventTime(TEN))), (10,)),
        (ContinuousProcessingTime(TEN), ()),
        (EventTime[Any](), ()),
    ],
    ids=stable,
)
def test_a_trigger_has_the_periods_of_event_time_at_whose_multiples_it_fires(
    trigger: Trigger[Any], periods: tuple[int, ...]
) -> None:
    assert trigger.periods == periods


def test_a_record_before_the_watermark_fires_at_a_later_multiple() -> None:
    driver = TriggerDriver(ContinuousEventTime(TEN))
    driver.advance_watermark(55)

    assert driver.element(WINDOW, 12) is CONTINUE
    assert driver.event.of(WINDOW) == [60, 99]


def test_late_records_fire_at_once_and_keep_no_state() -> None:
    driver = TriggerDriver(ContinuousEventTime(TEN))
    driver.advance_watermark(99)

    assert [driver.element(WINDOW, 5), driver.element(WINDOW, 95)] == [FIRE, FIRE]
    assert not driver.memory
    assert not list(driver.event)


def test_a_multiple_at_the_last_moment_of_the_window_fires_once() -> None:
    driver = TriggerDriver(ContinuousEventTime(TEN))
    window = TimeWindow(0, 41)
    driver.element(window, 33)

    assert driver.advance_watermark(100) == [(window, FIRE)]
    assert not driver.memory


def test_a_multiple_after_the_end_does_not_fire() -> None:
    driver = TriggerDriver(ContinuousEventTime(TEN))
    window = TimeWindow(0, 38)
    driver.element(window, 33)

    assert driver.advance_watermark(100) == [(window, FIRE), (window, CONTINUE)]
    assert not driver.memory


def test_before_1970_multiples_are_those_of_the_same_grid() -> None:
    driver = TriggerDriver(ContinuousEventTime(TEN))

    driver.element(EARLIER, -33)

    assert driver.event.of(EARLIER) == [-30, -6]
    assert driver.advance_watermark(-30) == [(EARLIER, FIRE)]


def test_a_window_without_end_fires_at_multiples_and_when_time_ends() -> None:
    driver = TriggerDriver(ContinuousEventTime(TEN))
    driver.element(GLOBAL_WINDOW, 33)

    assert driver.advance_watermark(40) == [(GLOBAL_WINDOW, FIRE)]
    driver.element(GLOBAL_WINDOW, MAX_TIMESTAMP - 3)
    assert driver.advance_watermark(MAX_TIMESTAMP) == [(GLOBAL_WINDOW, FIRE)]
    assert not driver.memory
    assert not list(driver.event)


def test_a_window_without_end_keeps_no_timer_for_it() -> None:
    driver = TriggerDriver(ContinuousEventTime(TEN))
    driver.element(GLOBAL_WINDOW, 33)

    driver.advance_watermark(40)

    assert driver.event.of(GLOBAL_WINDOW) == []


def test_a_merged_window_fires_at_the_earliest_multiple_of_its_parts_and_at_its_end() -> None:
    driver = TriggerDriver(ContinuousEventTime(TEN))
    driver.element(EARLIER, -33)
    driver.element(LATER, 7)

    driver.merge([EARLIER, LATER], MERGED)

    assert driver.event.of(MERGED) == [-30, 59]
    assert driver.memory == {MERGED: {"next": -30}}
    assert driver.advance_watermark(-30) == [(MERGED, FIRE)]


def test_the_multiples_of_merged_windows_have_no_timers() -> None:
    driver = TriggerDriver(ContinuousEventTime(TEN))
    driver.element(EARLIER, -33)
    driver.element(LATER, 7)

    driver.merge([EARLIER, LATER], MERGED)

    assert driver.event.of(EARLIER) == [-6]
    assert driver.event.of(LATER) == [59]


@pytest.mark.parametrize("other", [7, None], ids=["of two", "of one"])
def test_the_multiple_at_the_epoch_survives_a_merge(other: int | None) -> None:
    driver = TriggerDriver(ContinuousEventTime(TEN))
    driver.element(EARLIER, -8)
    if other is not None:
        driver.element(LATER, other)

    driver.merge([EARLIER, LATER], MERGED)

    assert driver.memory == {MERGED: {"next": 0}}
    assert driver.advance_watermark(0)[-1] == (MERGED, FIRE)


def test_a_merged_window_of_fired_ones_has_a_timer_for_its_end_only() -> None:
    driver = TriggerDriver(ContinuousEventTime(TEN))
    driver.element(EARLIER, -33)
    driver.advance_watermark(-30)

    driver.merge([EARLIER], MERGED)

    assert driver.event.of(MERGED) == [59]
    assert not driver.memory


def test_a_merged_window_that_has_ended_has_no_timers() -> None:
    driver = TriggerDriver(ContinuousEventTime(TEN))
    driver.advance_watermark(59)

    driver.merge([EARLIER, LATER], MERGED)

    assert not list(driver.event)


def test_clear_does_not_delete_the_timer_for_the_end() -> None:
    driver = TriggerDriver(ContinuousEventTime(TEN))
    driver.element(WINDOW, 33)

    driver.clear(WINDOW)

    assert not driver.memory
    assert driver.event.of(WINDOW) == [99]
    assert driver.advance_watermark(40) == []


# Processing time.


def test_the_clock_fires_at_the_first_multiple_after_a_record() -> None:
    driver = TriggerDriver(ContinuousProcessingTime(TEN))
    driver.clock = 33

    assert driver.element(WINDOW, 5) is CONTINUE
    assert driver.processing.of(WINDOW) == [40]
    assert driver.advance_clock(45) == [(WINDOW, FIRE)]
    assert not driver.memory


def test_without_a_new_record_the_clock_fires_no_more() -> None:
    driver = TriggerDriver(ContinuousProcessingTime(TEN))
    driver.element(WINDOW)
    driver.advance_clock(10)

    assert driver.advance_clock(1000) == []
    driver.element(WINDOW)
    assert driver.advance_clock(1010) == [(WINDOW, FIRE)]


def test_all_records_before_a_multiple_of_the_clock_fire_once() -> None:
    driver = TriggerDriver(ContinuousProcessingTime(TEN))
    for clock in (1, 5, 9):
        driver.clock = clock
        driver.element(WINDOW)

    assert driver.advance_clock(100) == [(WINDOW, FIRE)]


def test_the_clock_does_not_fire_at_other_times() -> None:
    driver = TriggerDriver(ContinuousProcessingTime(TEN))
    driver.element(WINDOW)

    assert driver.processing_time(99, WINDOW) is CONTINUE
    assert driver.event_time(10, WINDOW) is CONTINUE


def test_the_clock_fires_at_the_end_of_a_window_with_a_new_record() -> None:
    driver = TriggerDriver(ContinuousProcessingTime(TEN))
    window = TimeWindow(0, 15)
    driver.element(window)
    driver.advance_clock(10)
    silent = driver.processing_time(15, window)
    driver.element(window)

    assert silent is CONTINUE
    assert driver.processing_time(15, window) is FIRE
    assert driver.empty


@pytest.mark.parametrize(
    ("clocks", "due"), [((33, 47), 40), ((-8, 7), 0)], ids=["after 1970", "at the epoch"]
)
def test_a_merged_window_fires_at_the_earliest_multiple_of_the_clock(
    clocks: tuple[int, int], due: int
) -> None:
    driver = TriggerDriver(ContinuousProcessingTime(TEN))
    for driver.clock, window in zip(clocks, (EARLIER, LATER), strict=True):
        driver.element(window)

    driver.merge([EARLIER, LATER], MERGED)

    assert list(driver.processing) == [(due, MERGED)]
    assert driver.advance_clock(50) == [(MERGED, FIRE)]


def test_clear_deletes_the_timer_of_the_clock() -> None:
    driver = TriggerDriver(ContinuousProcessingTime(TEN))
    driver.element(WINDOW)

    driver.clear(WINDOW)

    assert not driver.memory
    assert not list(driver.processing)


# Parts of other triggers.


def test_early_results_on_event_time_then_one_at_the_end() -> None:
    driver = TriggerDriver(EventTime(early=ContinuousEventTime(TEN)))
    driver.element(WINDOW, 33)

    assert driver.advance_watermark(98) == [(WINDOW, FIRE)]
    assert driver.advance_watermark(200) == [(WINDOW, FIRE)]


def test_event_time_deletes_the_timer_for_the_end_that_a_continuous_part_does_not() -> None:
    driver = TriggerDriver(EventTime(early=ContinuousEventTime(TEN), late=ContinuousEventTime(TEN)))
    driver.element(WINDOW, 33)

    driver.clear(WINDOW)

    assert not driver.memory
    assert not list(driver.event)


def test_late_records_may_be_collected_for_an_interval_of_the_clock() -> None:
    driver = TriggerDriver(EventTime(late=ContinuousProcessingTime(TEN)))
    driver.advance_watermark(99)

    assert [driver.element(WINDOW), driver.element(WINDOW)] == [CONTINUE, CONTINUE]
    assert driver.advance_clock(10) == [(WINDOW, FIRE)]
    assert driver.element(WINDOW) is CONTINUE
    assert driver.advance_clock(20) == [(WINDOW, FIRE)]


def test_late_collects_records_again_once_a_window_that_grew_has_ended() -> None:
    driver = TriggerDriver(EventTime(late=ContinuousProcessingTime(TEN)))
    driver.advance_watermark(-6)
    driver.element(EARLIER)
    driver.merge([EARLIER], MERGED)
    driver.element(MERGED)

    while_open = driver.advance_clock(10)
    at_end = driver.advance_watermark(59)
    late = driver.element(MERGED)

    assert while_open == []
    assert at_end == [(MERGED, FIRE)]
    assert late is CONTINUE
    assert driver.advance_clock(20) == [(MERGED, FIRE)]


def test_an_ignored_early_timer_is_set_again_once_the_window_has_grown() -> None:
    driver = TriggerDriver(EventTime(early=ContinuousProcessingTime(TEN)))
    driver.element(EARLIER)
    driver.advance_watermark(-6)
    driver.advance_clock(10)

    driver.merge([EARLIER], MERGED)
    driver.element(MERGED)

    assert driver.advance_clock(20) == [(MERGED, FIRE)]
    driver.element(MERGED)
    assert driver.advance_clock(30) == [(MERGED, FIRE)]


def test_a_multiple_that_passed_after_the_end_does_not_fire_once_the_window_has_grown() -> None:
    driver = TriggerDriver(EventTime(early=ContinuousEventTime(timedelta(milliseconds=100))))
    driver.element(EARLIER, -20)
    driver.advance_watermark(5)

    driver.merge([EARLIER], MERGED)
    driver.element(MERGED, 7)

    assert driver.advance_watermark(6) == []
    assert driver.advance_watermark(59) == [(MERGED, FIRE)]


def test_purging_clears_contents_that_continuous_triggers_fire() -> None:
    event, clock = (
        TriggerDriver(Purging(ContinuousEventTime(TEN))),
        TriggerDriver(Purging(ContinuousProcessingTime(TEN))),
    )
    for driver in (event, clock):
        driver.element(WINDOW, 33)

    assert event.advance_watermark(40) == [(WINDOW, FIRE_AND_PURGE)]
    assert clock.advance_clock(10) == [(WINDOW, FIRE_AND_PURGE)]


@pytest.mark.parametrize("kind", [ContinuousEventTime, ContinuousProcessingTime])
@pytest.mark.parametrize(
    ("every", "complaint"),
    [
        (timedelta(0), "must be longer than zero"),
        (-TEN, "must be longer than zero"),
        (timedelta(microseconds=1500), "must be whole milliseconds"),
        (10, "must be a timedelta, not int: 10"),
    ],
    ids=str,
)
def test_an_interval_that_is_not_positive_is_refused_by_name(
    kind: Callable[[timedelta], Trigger[Any]], every: object, complaint: str
) -> None:
    name = cast("type", kind).__name__

    with pytest.raises(FlowDefinitionError, match=f"triggers.{name} every {complaint}"):
        kind(cast("timedelta", every))
