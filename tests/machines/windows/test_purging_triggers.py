"""Triggers that purge what others fire, alone and as parts of others."""

from __future__ import annotations

from typing import Any

from aflow.machines.windows.trigger import TriggerResult
from aflow.machines.windows.triggers import Count, Delta, EventTime, ProcessingTime, Purging
from aflow.model.windows import TimeWindow
from tests.machines.windows.trigger_driver import Asked

CONTINUE = TriggerResult.CONTINUE
FIRE = TriggerResult.FIRE
FIRE_AND_PURGE = TriggerResult.FIRE_AND_PURGE

FIRST = TimeWindow(0, 10)
SECOND = TimeWindow(10, 20)
BOTH = TimeWindow(0, 20)


def test_purging_drops_what_event_time_fires_at_the_end_and_late() -> None:
    asked = Asked(Purging(EventTime()))
    asked.element(FIRST)

    assert asked.advance_watermark(9) == [(FIRST, FIRE_AND_PURGE)]
    assert asked.element(FIRST) is FIRE_AND_PURGE


def test_purging_around_early_and_late_purges_all_firings() -> None:
    asked = Asked(Purging(EventTime(early=Count(2), late=Count(2))))

    early = [asked.element(FIRST), asked.element(FIRST)]
    at_end = asked.advance_watermark(9)
    late = [asked.element(FIRST), asked.element(FIRST)]

    assert early == late == [CONTINUE, FIRE_AND_PURGE]
    assert at_end == [(FIRST, FIRE_AND_PURGE)]


def test_purging_inside_of_event_time_purges_the_firings_of_its_part_only() -> None:
    asked = Asked(EventTime(early=Purging(Count(2))))

    assert [asked.element(FIRST), asked.element(FIRST)] == [CONTINUE, FIRE_AND_PURGE]
    assert asked.advance_watermark(9) == [(FIRST, FIRE)]
    assert asked.element(FIRST) is FIRE


def test_purging_drops_what_fires_on_the_clock() -> None:
    asked = Asked(Purging(ProcessingTime()))
    asked.element(FIRST)

    assert asked.advance_clock(10) == [(FIRST, FIRE_AND_PURGE)]


def test_purging_merges_and_clears_as_its_trigger_does() -> None:
    asked = Asked(Purging(Count(5)))
    asked.element(FIRST)
    asked.element(SECOND)

    asked.merge([FIRST, SECOND], BOTH)
    merged = asked.memory[BOTH]["count"]
    asked.clear(BOTH)

    assert merged == 2
    assert asked.empty


def test_windows_merge_with_purging_if_they_do_with_its_trigger() -> None:
    assert Purging(Count(1)).merges
    assert not Purging(Delta[Any](1, lambda one, other: 0)).merges


def test_the_parts_of_nested_triggers_remember_things_apart() -> None:
    asked = Asked(EventTime(early=Purging(EventTime(early=Count(2))), late=Count(2)))
    asked.element(FIRST)
    asked.advance_watermark(9)
    asked.element(FIRST)

    assert asked.memory == {FIRST: {"early.early.count": 1, "late.count": 1}}
    asked.clear(FIRST)
    assert asked.empty
