"""Triggers that fire again and again: at multiples of an interval, if a record has come since."""

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
from tests.machines.windows.trigger_driver import Asked
from tests.stable_ids import stable

CONTINUE = TriggerResult.CONTINUE
FIRE = TriggerResult.FIRE
FIRE_AND_PURGE = TriggerResult.FIRE_AND_PURGE

TEN = timedelta(milliseconds=10)
WINDOW = TimeWindow(0, 100)
EARLIER = TimeWindow(-60, -5)
LATER = TimeWindow(-5, 60)
MERGED = TimeWindow(-60, 60)


# On event time.


def test_event_time_fires_at_the_first_multiple_behind_a_record_and_at_the_end() -> None:
    asked = Asked(ContinuousEventTime(TEN))

    assert asked.element(WINDOW, 33) is CONTINUE
    assert asked.event.of(WINDOW) == [40, 99]
    assert asked.advance_watermark(39) == []
    assert asked.advance_watermark(40) == [(WINDOW, FIRE)]
    assert asked.advance_watermark(99) == [(WINDOW, FIRE)]


def test_a_record_at_a_multiple_waits_for_the_next_one() -> None:
    asked = Asked(ContinuousEventTime(TEN))

    asked.element(WINDOW, 30)

    assert asked.event.of(WINDOW) == [40, 99]


def test_without_a_new_record_event_time_fires_at_no_further_multiple() -> None:
    asked = Asked(ContinuousEventTime(TEN))
    asked.element(WINDOW, 33)
    asked.advance_watermark(40)

    assert asked.advance_watermark(98) == []
    assert not asked.memory


def test_with_a_new_record_event_time_fires_again() -> None:
    asked = Asked(ContinuousEventTime(TEN))
    asked.element(WINDOW, 33)
    asked.advance_watermark(40)

    asked.element(WINDOW, 41)

    assert asked.advance_watermark(50) == [(WINDOW, FIRE)]


def test_all_records_before_a_multiple_fire_once() -> None:
    asked = Asked(ContinuousEventTime(TEN))

    for at in (33, 31, 39, 33):
        asked.element(WINDOW, at)

    assert asked.advance_watermark(98) == [(WINDOW, FIRE)]


def test_before_the_first_watermark_the_earliest_timestamp_decides_about_the_multiple() -> None:
    asked = Asked(ContinuousEventTime(TEN))
    asked.element(WINDOW, 33)

    asked.element(WINDOW, 12)

    assert asked.event.of(WINDOW) == [20, 99]


def test_the_watermark_decides_about_the_multiple_and_not_the_timestamp_of_a_record() -> None:
    asked = Asked(ContinuousEventTime(TEN))
    asked.advance_watermark(5)
    asked.element(WINDOW, 88)

    assert asked.event.of(WINDOW) == [10, 99]
    assert asked.advance_watermark(10) == [(WINDOW, FIRE)]


def test_a_multiple_that_was_taken_from_a_timestamp_is_replaced_once_there_is_a_watermark() -> None:
    asked = Asked(ContinuousEventTime(TEN))
    asked.element(WINDOW, 88)
    asked.advance_watermark(5)

    asked.element(WINDOW, 30)

    assert asked.event.of(WINDOW) == [10, 99]


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
def test_a_trigger_says_at_multiples_of_which_periods_of_event_time_it_fires(
    trigger: Trigger[Any], periods: tuple[int, ...]
) -> None:
    assert trigger.periods == periods


def test_a_record_behind_the_watermark_waits_for_a_multiple_that_is_still_to_come() -> None:
    asked = Asked(ContinuousEventTime(TEN))
    asked.advance_watermark(55)

    assert asked.element(WINDOW, 12) is CONTINUE
    assert asked.event.of(WINDOW) == [60, 99]


def test_late_records_fire_at_once_and_leave_nothing() -> None:
    asked = Asked(ContinuousEventTime(TEN))
    asked.advance_watermark(99)

    assert [asked.element(WINDOW, 5), asked.element(WINDOW, 95)] == [FIRE, FIRE]
    assert not asked.memory
    assert not list(asked.event)


def test_a_multiple_at_the_last_moment_of_the_window_fires_once() -> None:
    asked = Asked(ContinuousEventTime(TEN))
    window = TimeWindow(0, 41)
    asked.element(window, 33)

    assert asked.advance_watermark(100) == [(window, FIRE)]
    assert not asked.memory


def test_a_multiple_behind_the_end_does_not_fire() -> None:
    asked = Asked(ContinuousEventTime(TEN))
    window = TimeWindow(0, 38)
    asked.element(window, 33)

    assert asked.advance_watermark(100) == [(window, FIRE), (window, CONTINUE)]
    assert not asked.memory


def test_before_1970_multiples_are_those_of_the_same_grid() -> None:
    asked = Asked(ContinuousEventTime(TEN))

    asked.element(EARLIER, -33)

    assert asked.event.of(EARLIER) == [-30, -6]
    assert asked.advance_watermark(-30) == [(EARLIER, FIRE)]


def test_a_window_without_end_fires_at_multiples_and_when_time_ends() -> None:
    asked = Asked(ContinuousEventTime(TEN))
    asked.element(GLOBAL_WINDOW, 33)

    assert asked.advance_watermark(40) == [(GLOBAL_WINDOW, FIRE)]
    asked.element(GLOBAL_WINDOW, MAX_TIMESTAMP - 3)
    assert asked.advance_watermark(MAX_TIMESTAMP) == [(GLOBAL_WINDOW, FIRE)]
    assert not asked.memory
    assert not list(asked.event)


def test_a_window_without_end_keeps_no_timer_for_it() -> None:
    asked = Asked(ContinuousEventTime(TEN))
    asked.element(GLOBAL_WINDOW, 33)

    asked.advance_watermark(40)

    assert asked.event.of(GLOBAL_WINDOW) == []


def test_a_merged_window_fires_at_the_earliest_multiple_of_its_parts_and_at_its_end() -> None:
    asked = Asked(ContinuousEventTime(TEN))
    asked.element(EARLIER, -33)
    asked.element(LATER, 7)

    asked.merge([EARLIER, LATER], MERGED)

    assert asked.event.of(MERGED) == [-30, 59]
    assert asked.memory == {MERGED: {"next": -30}}
    assert asked.advance_watermark(-30) == [(MERGED, FIRE)]


def test_the_multiples_of_windows_that_were_merged_are_not_waited_for() -> None:
    asked = Asked(ContinuousEventTime(TEN))
    asked.element(EARLIER, -33)
    asked.element(LATER, 7)

    asked.merge([EARLIER, LATER], MERGED)

    assert asked.event.of(EARLIER) == [-6]
    assert asked.event.of(LATER) == [59]


@pytest.mark.parametrize("other", [7, None], ids=["of two", "of one"])
def test_the_multiple_at_the_epoch_survives_a_merge(other: int | None) -> None:
    asked = Asked(ContinuousEventTime(TEN))
    asked.element(EARLIER, -8)
    if other is not None:
        asked.element(LATER, other)

    asked.merge([EARLIER, LATER], MERGED)

    assert asked.memory == {MERGED: {"next": 0}}
    assert asked.advance_watermark(0)[-1] == (MERGED, FIRE)


def test_of_windows_that_have_fired_the_merged_one_waits_for_its_end_only() -> None:
    asked = Asked(ContinuousEventTime(TEN))
    asked.element(EARLIER, -33)
    asked.advance_watermark(-30)

    asked.merge([EARLIER], MERGED)

    assert asked.event.of(MERGED) == [59]
    assert not asked.memory


def test_a_merged_window_that_has_ended_waits_for_nothing() -> None:
    asked = Asked(ContinuousEventTime(TEN))
    asked.advance_watermark(59)

    asked.merge([EARLIER, LATER], MERGED)

    assert not list(asked.event)


def test_clear_leaves_the_timer_for_the_end_alone() -> None:
    asked = Asked(ContinuousEventTime(TEN))
    asked.element(WINDOW, 33)

    asked.clear(WINDOW)

    assert not asked.memory
    assert asked.event.of(WINDOW) == [99]
    assert asked.advance_watermark(40) == []


# On the clock.


def test_the_clock_fires_at_the_first_multiple_behind_a_record() -> None:
    asked = Asked(ContinuousProcessingTime(TEN))
    asked.clock = 33

    assert asked.element(WINDOW, 5) is CONTINUE
    assert asked.processing.of(WINDOW) == [40]
    assert asked.advance_clock(45) == [(WINDOW, FIRE)]
    assert not asked.memory


def test_without_a_new_record_the_clock_fires_no_more() -> None:
    asked = Asked(ContinuousProcessingTime(TEN))
    asked.element(WINDOW)
    asked.advance_clock(10)

    assert asked.advance_clock(1000) == []
    asked.element(WINDOW)
    assert asked.advance_clock(1010) == [(WINDOW, FIRE)]


def test_all_records_before_a_multiple_of_the_clock_fire_once() -> None:
    asked = Asked(ContinuousProcessingTime(TEN))
    for clock in (1, 5, 9):
        asked.clock = clock
        asked.element(WINDOW)

    assert asked.advance_clock(100) == [(WINDOW, FIRE)]


def test_the_clock_does_nothing_at_times_that_are_not_its_own() -> None:
    asked = Asked(ContinuousProcessingTime(TEN))
    asked.element(WINDOW)

    assert asked.processing_time(99, WINDOW) is CONTINUE
    assert asked.event_time(10, WINDOW) is CONTINUE


def test_the_clock_fires_at_the_end_of_a_window_if_a_record_has_come_since() -> None:
    asked = Asked(ContinuousProcessingTime(TEN))
    window = TimeWindow(0, 15)
    asked.element(window)
    asked.advance_clock(10)
    silent = asked.processing_time(15, window)
    asked.element(window)

    assert silent is CONTINUE
    assert asked.processing_time(15, window) is FIRE
    assert asked.empty


@pytest.mark.parametrize(
    ("clocks", "due"), [((33, 47), 40), ((-8, 7), 0)], ids=["after 1970", "at the epoch"]
)
def test_a_merged_window_fires_at_the_earliest_multiple_of_the_clock(
    clocks: tuple[int, int], due: int
) -> None:
    asked = Asked(ContinuousProcessingTime(TEN))
    for asked.clock, window in zip(clocks, (EARLIER, LATER), strict=True):
        asked.element(window)

    asked.merge([EARLIER, LATER], MERGED)

    assert list(asked.processing) == [(due, MERGED)]
    assert asked.advance_clock(50) == [(MERGED, FIRE)]


def test_clear_deletes_the_timer_of_the_clock() -> None:
    asked = Asked(ContinuousProcessingTime(TEN))
    asked.element(WINDOW)

    asked.clear(WINDOW)

    assert not asked.memory
    assert not list(asked.processing)


# As parts of others.


def test_early_results_on_event_time_then_one_at_the_end() -> None:
    asked = Asked(EventTime(early=ContinuousEventTime(TEN)))
    asked.element(WINDOW, 33)

    assert asked.advance_watermark(98) == [(WINDOW, FIRE)]
    assert asked.advance_watermark(200) == [(WINDOW, FIRE)]


def test_event_time_deletes_the_timer_for_the_end_that_a_continuous_part_leaves() -> None:
    asked = Asked(EventTime(early=ContinuousEventTime(TEN), late=ContinuousEventTime(TEN)))
    asked.element(WINDOW, 33)

    asked.clear(WINDOW)

    assert not asked.memory
    assert not list(asked.event)


def test_late_records_may_be_gathered_for_a_while_on_the_clock() -> None:
    asked = Asked(EventTime(late=ContinuousProcessingTime(TEN)))
    asked.advance_watermark(99)

    assert [asked.element(WINDOW), asked.element(WINDOW)] == [CONTINUE, CONTINUE]
    assert asked.advance_clock(10) == [(WINDOW, FIRE)]
    assert asked.element(WINDOW) is CONTINUE
    assert asked.advance_clock(20) == [(WINDOW, FIRE)]


def test_late_goes_on_gathering_once_a_window_that_grew_has_ended_again() -> None:
    asked = Asked(EventTime(late=ContinuousProcessingTime(TEN)))
    asked.advance_watermark(-6)
    asked.element(EARLIER)
    asked.merge([EARLIER], MERGED)
    asked.element(MERGED)

    while_open = asked.advance_clock(10)
    at_end = asked.advance_watermark(59)
    late = asked.element(MERGED)

    assert while_open == []
    assert at_end == [(MERGED, FIRE)]
    assert late is CONTINUE
    assert asked.advance_clock(20) == [(MERGED, FIRE)]


def test_an_early_timer_that_nobody_answered_rings_again_once_the_window_has_grown() -> None:
    asked = Asked(EventTime(early=ContinuousProcessingTime(TEN)))
    asked.element(EARLIER)
    asked.advance_watermark(-6)
    asked.advance_clock(10)

    asked.merge([EARLIER], MERGED)
    asked.element(MERGED)

    assert asked.advance_clock(20) == [(MERGED, FIRE)]
    asked.element(MERGED)
    assert asked.advance_clock(30) == [(MERGED, FIRE)]


def test_a_multiple_that_passed_after_the_end_does_not_fire_once_the_window_has_grown() -> None:
    asked = Asked(EventTime(early=ContinuousEventTime(timedelta(milliseconds=100))))
    asked.element(EARLIER, -20)
    asked.advance_watermark(5)

    asked.merge([EARLIER], MERGED)
    asked.element(MERGED, 7)

    assert asked.advance_watermark(6) == []
    assert asked.advance_watermark(59) == [(MERGED, FIRE)]


def test_purging_drops_what_continuous_triggers_fire() -> None:
    event, clock = (
        Asked(Purging(ContinuousEventTime(TEN))),
        Asked(Purging(ContinuousProcessingTime(TEN))),
    )
    for asked in (event, clock):
        asked.element(WINDOW, 33)

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
def test_an_interval_that_is_none_is_refused_by_name(
    kind: Callable[[timedelta], Trigger[Any]], every: object, complaint: str
) -> None:
    name = cast("type", kind).__name__

    with pytest.raises(FlowDefinitionError, match=f"triggers.{name} every {complaint}"):
        kind(cast("timedelta", every))
