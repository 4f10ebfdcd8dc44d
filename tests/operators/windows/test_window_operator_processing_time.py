"""The general window operator in processing time: windows that fire by the clock, in both modes."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from aflow.machines.windows.assigners import (
    SessionWindows,
    SlidingWindows,
    TumblingWindows,
    WindowAssigner,
)
from aflow.machines.windows.trigger import Trigger
from aflow.machines.windows.triggers import (
    ContinuousProcessingTime,
    ProcessingTime,
    Purging,
)
from aflow.model.time import TimeDomain
from aflow.testing import Mode
from tests.operators.windows.window_steps import (
    NOTHING,
    Harness,
    OnProcessingTime,
    late,
    left,
    rows,
    step,
)

every_way = pytest.mark.parametrize("mode", Mode)


@every_way
def test_a_window_of_processing_time_fires_while_the_source_is_idle(mode: Mode) -> None:
    harness = step(mode, assigner=OnProcessingTime(), trigger=ProcessingTime())
    harness.push(("a", 1))
    harness.advance_processing_time(8)
    harness.push(("a", 2))
    harness.advance_processing_time(10)
    fired = rows(harness)

    harness.push(("a", 4))
    harness.advance_processing_time(30)

    assert fired == [("a", 0, 3, 1)]
    assert rows(harness) == [("a", 0, 3, 1), ("a", 10, 4, 1)]
    assert left(harness) == NOTHING


@every_way
def test_a_record_of_the_last_millisecond_of_a_window_is_in_it(mode: Mode) -> None:
    harness = step(mode, assigner=OnProcessingTime(), trigger=ProcessingTime())
    harness.push(("a", 1))
    harness.advance_processing_time(9)
    fired = rows(harness)

    harness.push(("a", 2))
    harness.push(("b", 4))
    harness.advance_processing_time(10)
    harness.push(("a", 8))
    harness.advance_processing_time(20)

    assert fired == []
    assert sorted(rows(harness)) == [("a", 0, 3, 1), ("a", 10, 8, 1), ("b", 0, 4, 1)]
    assert left(harness) == NOTHING


@every_way
def test_a_session_of_processing_time_ends_a_gap_after_its_last_record(mode: Mode) -> None:
    sessions = SessionWindows(10, TimeDomain.PROCESSING)
    harness = step(mode, assigner=sessions, trigger=ProcessingTime())
    harness.push(("a", 1))
    harness.advance_processing_time(9)
    harness.push(("a", 2))
    harness.advance_processing_time(18)
    fired = rows(harness)
    harness.advance_processing_time(19)

    assert fired == []
    assert rows(harness) == [("a", 0, 3, 1)]
    assert left(harness) == NOTHING


@every_way
def test_windows_of_processing_time_have_no_late_records(mode: Mode) -> None:
    harness = step(mode, assigner=OnProcessingTime(), trigger=ProcessingTime(), lateness=100)
    harness.watermark(50)

    harness.push(("a", 1), 3)
    harness.advance_processing_time(10)

    assert rows(harness) == [("a", 0, 1, 1)]
    assert late(harness) == []
    assert left(harness) == NOTHING


@every_way
@pytest.mark.parametrize(
    "windows",
    [
        TumblingWindows(10, domain=TimeDomain.PROCESSING),
        SlidingWindows(10, 4, domain=TimeDomain.PROCESSING),
        SessionWindows(3, TimeDomain.PROCESSING),
    ],
    ids=str,
)
def test_a_continuous_trigger_emits_all_records_by_the_end_of_each_window(
    mode: Mode, windows: WindowAssigner[object]
) -> None:
    def run(trigger: Trigger[Any]) -> Harness:
        harness = step(mode, assigner=windows, trigger=trigger)
        for number in range(40):
            if number % 13 < 9:
                harness.push(("a", 1))
            harness.advance_processing_time(number + 1)
        harness.advance_processing_time(100)
        return harness

    default = totals(run(ProcessingTime()))
    for every in (2, 3, 5, 10, 20):
        harness = run(Purging(ContinuousProcessingTime(timedelta(milliseconds=every))))

        assert totals(harness) == default, f"every {every}"
        assert left(harness) == NOTHING, f"every {every}"


def totals(harness: Harness) -> dict[tuple[str, int], int]:
    """Return the sum of all firings of each window."""
    found: dict[tuple[str, int], int] = {}
    for key, start, value, _ in rows(harness):
        found[key, start] = found.get((key, start), 0) + value
    return found


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
