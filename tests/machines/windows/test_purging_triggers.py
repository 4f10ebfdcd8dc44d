"""Triggers that purge when another trigger fires, alone and as parts of others."""

from __future__ import annotations

from typing import Any

from aflow.machines.windows.trigger import TriggerResult
from aflow.machines.windows.triggers import Count, Delta, EventTime, ProcessingTime, Purging
from aflow.model.windows import TimeWindow
from tests.machines.windows.trigger_driver import TriggerDriver

CONTINUE = TriggerResult.CONTINUE
FIRE = TriggerResult.FIRE
FIRE_AND_PURGE = TriggerResult.FIRE_AND_PURGE

FIRST = TimeWindow(0, 10)
SECOND = TimeWindow(10, 20)
BOTH = TimeWindow(0, 20)


def test_purging_clears_contents_that_event_time_fires_at_the_end_and_late() -> None:
    driver = TriggerDriver(Purging(EventTime()))
    driver.element(FIRST)

    assert driver.advance_watermark(9) == [(FIRST, FIRE_AND_PURGE)]
    assert driver.element(FIRST) is FIRE_AND_PURGE


def test_purging_around_early_and_late_purges_all_firings() -> None:
    driver = TriggerDriver(Purging(EventTime(early=Count(2), late=Count(2))))

    early = [driver.element(FIRST), driver.element(FIRST)]
    at_end = driver.advance_watermark(9)
    late = [driver.element(FIRST), driver.element(FIRST)]

    assert early == late == [CONTINUE, FIRE_AND_PURGE]
    assert at_end == [(FIRST, FIRE_AND_PURGE)]


def test_purging_inside_of_event_time_purges_the_firings_of_its_part_only() -> None:
    driver = TriggerDriver(EventTime(early=Purging(Count(2))))

    assert [driver.element(FIRST), driver.element(FIRST)] == [CONTINUE, FIRE_AND_PURGE]
    assert driver.advance_watermark(9) == [(FIRST, FIRE)]
    assert driver.element(FIRST) is FIRE


def test_purging_clears_contents_that_fire_in_processing_time() -> None:
    driver = TriggerDriver(Purging(ProcessingTime()))
    driver.element(FIRST)

    assert driver.advance_clock(10) == [(FIRST, FIRE_AND_PURGE)]


def test_purging_merges_and_clears_as_its_trigger_does() -> None:
    driver = TriggerDriver(Purging(Count(5)))
    driver.element(FIRST)
    driver.element(SECOND)

    driver.merge([FIRST, SECOND], BOTH)
    merged = driver.memory[BOTH]["count"]
    driver.clear(BOTH)

    assert merged == 2
    assert driver.empty


def test_windows_merge_with_purging_if_they_do_with_its_trigger() -> None:
    assert Purging(Count(1)).merges
    assert not Purging(Delta[Any](1, lambda one, other: 0)).merges


def test_the_parts_of_nested_triggers_have_separate_memory() -> None:
    driver = TriggerDriver(EventTime(early=Purging(EventTime(early=Count(2))), late=Count(2)))
    driver.element(FIRST)
    driver.advance_watermark(9)
    driver.element(FIRST)

    assert driver.memory == {FIRST: {"early.early.count": 1, "late.count": 1}}
    driver.clear(FIRST)
    assert driver.empty
