"""Windows at both ends of the range of timestamps lose no record, and are cleaned up when all input ends."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from aflow.machines.windows.assigners import (
    DynamicSessionWindows,
    SessionWindows,
    SlidingWindows,
    TumblingWindows,
    WindowAssigner,
)
from aflow.machines.windows.triggers import ContinuousEventTime, EventTime, Purging
from aflow.model.time import MAX_TIMESTAMP, MIN_TIMESTAMP
from aflow.operators.accumulation import folding
from aflow.operators.base import Operator, StateSize
from aflow.operators.windows.panes import PaneAggregateOperator
from aflow.operators.windows.sessions import SessionAggregateOperator
from aflow.operators.windows.window_operator import WindowOperator
from aflow.testing import Mode
from tests.operators.backends import BackendHarness as OperatorHarness
from tests.operators.windows.window_steps import Event, late, logic

SUM = folding(int, lambda total, event: total + event[1], lambda a, b: a + b)
CONTINUOUS = ContinuousEventTime(timedelta(milliseconds=7))


def general(assigner: WindowAssigner[Any], lateness: int, **parts: Any) -> Callable[[], Operator]:
    made = logic(assigner=assigner, lateness=lateness, accumulation=SUM, **parts)
    return lambda: WindowOperator(made)


STEPS: dict[str, Callable[[int], Callable[[], Operator]]] = {
    "tumbling": lambda kept: (
        lambda: PaneAggregateOperator(TumblingWindows(1000), SUM, lateness=kept)
    ),
    "sliding": lambda kept: (
        lambda: PaneAggregateOperator(SlidingWindows(1000, 300), SUM, lateness=kept)
    ),
    "panes": lambda kept: (
        lambda: PaneAggregateOperator(SlidingWindows(1000, 300), SUM, lateness=kept)
    ),
    "gaps": lambda kept: (
        lambda: PaneAggregateOperator(SlidingWindows(100, 150), SUM, lateness=kept)
    ),
    "sessions": lambda kept: lambda: SessionAggregateOperator(1000, SUM, lateness=kept),
    "general": lambda kept: general(TumblingWindows(1000), kept),
    "general sliding": lambda kept: general(SlidingWindows(1000, 300), kept),
    "general sessions": lambda kept: general(SessionWindows(1000), kept),
    "general gaps": lambda kept: general(DynamicSessionWindows(lambda _: 1000), kept),
    "continuous": lambda kept: general(TumblingWindows(1000), kept, trigger=CONTINUOUS),
    "early": lambda kept: general(
        TumblingWindows(1000), kept, trigger=EventTime(early=Purging(CONTINUOUS))
    ),
}

NEAR_THE_ENDS = [
    MIN_TIMESTAMP,
    MIN_TIMESTAMP + 1,
    MIN_TIMESTAMP + 700,
    MAX_TIMESTAMP - 700,
    MAX_TIMESTAMP - 1,
    MAX_TIMESTAMP,
]


def found(harness: OperatorHarness[Event, Any]) -> dict[int, int]:
    """Return the last result of each window by its start."""
    return {result.window.start: result.value for result in harness.values}


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("kept", [0, 500])
@pytest.mark.parametrize("name", [name for name in STEPS if name not in ("gaps", "early")])
def test_each_window_of_a_record_near_an_end_of_time_emits_it_by_the_end(
    name: str, kept: int, mode: Mode
) -> None:
    # A test for each time would be a tenth of all tests of `make unit`.
    for at in NEAR_THE_ENDS:
        step = OperatorHarness[Event, Any](STEPS[name](kept), key=lambda event: event[0], mode=mode)
        step.push(("a", 1), at)
        step.push(("a", 2), at)
        if at > 0:
            step.watermark(at - 1)

        step.watermark(MAX_TIMESTAMP)

        windows = (
            1
            if "sliding" not in name and name != "panes"
            else len(SlidingWindows(1000, 300).assign(None, at))
        )
        assert sorted(found(step).values()) == [3] * windows, f"at {at}"
        assert late(step) == [], f"at {at}"
        assert all(result.window.max_timestamp <= MAX_TIMESTAMP for result in step.values)
        assert step.size == StateSize(), f"at {at}"


@pytest.mark.parametrize("at", NEAR_THE_ENDS)
def test_purged_parts_of_a_window_near_an_end_of_time_add_up(at: int) -> None:
    step = OperatorHarness[Event, Any](STEPS["early"](0), key=lambda event: event[0])
    step.push(("a", 1), at)
    step.push(("a", 2), at)

    step.watermark(MAX_TIMESTAMP)

    assert sum(result.value for result in step.values) == 3


@pytest.mark.parametrize("name", STEPS)
def test_a_job_that_is_continued_after_the_end_of_its_input_takes_new_records(name: str) -> None:
    former = OperatorHarness[Event, Any](STEPS[name](500), key=lambda event: event[0])
    former.push(("a", 1), MAX_TIMESTAMP)
    former.watermark(MAX_TIMESTAMP)
    snapshot = former.snapshot()
    assert snapshot is not None

    step = OperatorHarness[Event, Any](STEPS[name](500), key=lambda event: event[0])
    step.restore(snapshot)
    step.push(("a", 4), 50)
    step.watermark(MAX_TIMESTAMP)

    assert late(step) == []
    assert sum(result.value for result in step.values if result.firing == 1) > 0
