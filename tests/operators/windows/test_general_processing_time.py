"""The general window step on processing time: windows that fire by the clock, in both modes."""

from __future__ import annotations

from datetime import timedelta

import pytest

from aflow.machines.windows.triggers import (
    ContinuousProcessingTime,
    ProcessingTime,
)
from aflow.testing import Mode
from tests.operators.windows.general_steps import (
    NOTHING,
    OnProcessingTime,
    late,
    left,
    rows,
    step,
)

every_way = pytest.mark.parametrize("mode", Mode)


@every_way
def test_a_window_of_processing_time_fires_while_the_source_is_silent(mode: Mode) -> None:
    harness = step(mode, assigner=OnProcessingTime(), trigger=ProcessingTime())
    harness.push(("a", 1))
    harness.advance_processing_time(8)
    harness.push(("a", 2))
    harness.advance_processing_time(9)
    fired = rows(harness)

    harness.advance_processing_time(10)
    harness.push(("a", 4))
    harness.advance_processing_time(30)

    assert fired == [("a", 0, 3, 1)]
    assert rows(harness) == [("a", 0, 3, 1), ("a", 10, 4, 1)]
    assert left(harness) == NOTHING


@every_way
def test_a_record_in_the_millisecond_in_which_its_window_has_ended_is_in_the_next_one(
    mode: Mode,
) -> None:
    harness = step(mode, assigner=OnProcessingTime(), trigger=ProcessingTime())
    harness.push(("a", 1))
    harness.advance_processing_time(9)

    harness.push(("a", 2))
    harness.push(("b", 4))
    harness.advance_processing_time(12)
    harness.push(("a", 8))
    harness.advance_processing_time(19)

    assert sorted(rows(harness)) == [("a", 0, 1, 1), ("a", 10, 10, 1), ("b", 10, 4, 1)]
    assert left(harness) == NOTHING


@every_way
def test_windows_of_processing_time_know_no_late_records(mode: Mode) -> None:
    harness = step(mode, assigner=OnProcessingTime(), trigger=ProcessingTime(), lateness=100)
    harness.watermark(50)

    harness.push(("a", 1), 3)
    harness.advance_processing_time(9)

    assert rows(harness) == [("a", 0, 1, 1)]
    assert late(harness) == []
    assert left(harness) == NOTHING


@every_way
def test_the_end_of_the_input_does_not_fire_windows_of_processing_time(mode: Mode) -> None:
    harness = step(mode, assigner=OnProcessingTime(), trigger=ProcessingTime())
    harness.push(("a", 1), 3)

    harness.end()

    assert harness.values == []


@every_way
def test_windows_of_event_time_may_fire_by_the_clock(mode: Mode) -> None:
    harness = step(mode, trigger=ContinuousProcessingTime(timedelta(milliseconds=100)))
    harness.push(("a", 1), 1)

    harness.advance_processing_time(100)
    harness.push(("a", 2), 1)
    harness.advance_processing_time(300)
    harness.push(("a", 4), 1)
    harness.watermark(9)

    assert rows(harness) == [("a", 0, 1, 1), ("a", 0, 3, 2)]
    assert left(harness) == NOTHING
