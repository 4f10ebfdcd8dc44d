"""Windows that merge: their contents, memory, timers and firings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest

from aflow.errors import FlowDefinitionError, OperatorError
from aflow.machines.windows.assigners import WindowAssigner
from aflow.machines.windows.merging_window_set import Merged
from aflow.machines.windows.trigger import MergeContext, Trigger, TriggerContext, TriggerResult
from aflow.machines.windows.triggers import (
    ContinuousEventTime,
    ContinuousProcessingTime,
    EventTime,
    Never,
    ProcessingTime,
    Purging,
)
from aflow.model.time import MAX_TIMESTAMP, TimeDomain, Timestamp
from aflow.model.windows import TimeWindow
from aflow.operators.base import StateSize
from aflow.operators.windows.function import WindowContext, WindowFunction
from aflow.state.specs import ValueState
from aflow.testing import Mode
from tests.operators.windows.window_steps import (
    NOTHING,
    SUM,
    Event,
    Says,
    late,
    left,
    numbers,
    step,
)

every_way = pytest.mark.parametrize("mode", Mode)


@dataclass(frozen=True)
class Sessions(WindowAssigner[object]):
    """Assigns 10 ms from each record."""

    of_domain: TimeDomain = TimeDomain.EVENT

    @property
    def domain(self) -> TimeDomain:
        return self.of_domain

    @property
    def merging(self) -> bool:
        return True

    def assign(self, value: object, timestamp: Timestamp) -> list[TimeWindow]:
        return [TimeWindow(timestamp, timestamp + 10)]


def rows(harness: Any) -> list[tuple[Any, ...]]:
    """Return key, start and end of the window, value and firing of each result."""
    return [(w.key, w.window.start, w.window.end, w.value, w.firing) for w in harness.values]


@every_way
def test_windows_that_touch_merge_with_the_contents_of_both(mode: Mode) -> None:
    harness = step(mode, assigner=Sessions(), apply=numbers)
    harness.push(("a", 1), 0)
    harness.push(("a", 2), 20)
    apart = harness.size

    harness.push(("a", 3), 10)
    together = harness.size
    harness.watermark(29)

    ((key, start, end, value, firing),) = rows(harness)
    assert (key, start, end, sorted(value), firing) == ("a", 0, 30, [1, 2, 3], 1)
    assert apart == StateSize(entries=2 + 1, event_timers=2)
    assert together == StateSize(entries=1 + 1, event_timers=1)
    assert left(harness) == NOTHING


@every_way
def test_windows_of_different_keys_do_not_merge(mode: Mode) -> None:
    harness = step(mode, assigner=Sessions())
    harness.push(("a", 1), 0)
    harness.push(("b", 2), 5)

    harness.watermark(MAX_TIMESTAMP)

    assert rows(harness) == [("a", 0, 10, 1, 1), ("b", 5, 15, 2, 1)]


@every_way
def test_a_merged_window_continues_the_greatest_count_of_firings(mode: Mode) -> None:
    harness = step(mode, assigner=Sessions(), lateness=100)
    harness.push(("a", 1), 0)
    harness.watermark(15)
    harness.push(("a", 2), 5)
    harness.push(("a", 4), 30)

    harness.push(("a", 8), 21)
    harness.push(("a", 16), 14)
    harness.watermark(50)

    assert rows(harness) == [
        ("a", 0, 10, 1, 1),
        ("a", 0, 15, 3, 2),
        ("a", 0, 40, 31, 3),
    ]


@every_way
def test_the_merged_window_decides_if_a_record_is_late(mode: Mode) -> None:
    harness = step(mode, assigner=Sessions())
    harness.push(("a", 1), 8)
    harness.watermark(12)

    harness.push(("a", 2), 0)
    harness.push(("b", 4), 0)
    harness.watermark(30)

    assert rows(harness) == [("a", 0, 18, 3, 1)]
    assert late(harness) == [("b", 4)]
    assert left(harness) == NOTHING


class Counts(Trigger[Event]):
    """Fires at the third record; counts of merged windows are added."""

    def on_element(
        self, value: Event, timestamp: Timestamp, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        count = ctx.get("count", 0) + 1
        ctx.put("count", count)
        return TriggerResult.FIRE if count == 3 else TriggerResult.CONTINUE

    def on_merge(self, window: TimeWindow, ctx: MergeContext) -> None:
        ctx.put("count", sum(ctx.merged("count", 0)))

    def clear(self, window: TimeWindow, ctx: TriggerContext) -> None:
        ctx.drop("count")


@every_way
def test_the_memory_set_by_on_merge_survives_the_clearing_of_the_former_windows(mode: Mode) -> None:
    harness = step(mode, assigner=Sessions(), trigger=Counts())
    harness.push(("a", 1), 0)
    harness.push(("a", 2), 20)

    harness.push(("a", 4), 10)

    assert rows(harness) == [("a", 0, 30, 7, 1)]
    harness.watermark(29)
    assert left(harness) == NOTHING


@every_way
def test_timers_of_a_window_that_was_merged_are_ignored(mode: Mode) -> None:
    asked: list[int] = []

    class Leaves(Never):
        def on_element(
            self, value: object, timestamp: int, window: TimeWindow, ctx: TriggerContext
        ) -> TriggerResult:
            ctx.set_event_timer(window.start + 3)
            return TriggerResult.CONTINUE

        def on_event_time(self, at: int, window: TimeWindow, ctx: TriggerContext) -> TriggerResult:
            asked.append(at)
            return TriggerResult.CONTINUE

    harness = step(mode, assigner=Sessions(), trigger=Leaves())
    harness.push(("a", 1), 1)
    harness.push(("a", 1), 0)

    harness.watermark(10)

    # 4 was set for the window from 1 to 11, now part of the one from 0; 10 is the end of that.
    assert asked == [3, 10]
    assert left(harness) == NOTHING


class Shelves(WindowAssigner[Event]):
    """Assigns a window from -100 to 100, and windows inside it, which merge into it once there are two."""

    @property
    def merging(self) -> bool:
        return True

    def assign(self, value: Event, timestamp: Timestamp) -> list[TimeWindow]:
        return [TimeWindow(0, value[1]) if value[1] else TimeWindow(-100, 100)]

    def merge(self, windows: Sequence[TimeWindow]) -> list[Merged]:
        return [Merged(TimeWindow(-100, 100), list(windows))] if len(windows) > 2 else []


@every_way
@pytest.mark.parametrize("continuous", [ContinuousEventTime, ContinuousProcessingTime])
def test_a_window_unchanged_by_a_merge_fires_at_its_next_multiple(
    mode: Mode, continuous: Callable[[timedelta], Trigger[Event]]
) -> None:
    harness = step(
        mode,
        assigner=Shelves(),
        trigger=continuous(timedelta(milliseconds=50)),
        apply=numbers,
    )
    for number in (0, 10, 20):
        harness.push(("a", number), 5)

    harness.advance_processing_time(50)
    harness.watermark(60)

    assert rows(harness) == [("a", -100, 100, [0, 10, 20], 1)]
    harness.watermark(99)
    assert left(harness) == NOTHING


@every_way
def test_a_window_unchanged_by_a_merge_keeps_all_counts(
    mode: Mode,
) -> None:
    harness = step(mode, assigner=Shelves(), trigger=Counts(), apply=numbers)

    for number in (0, 10, 20):
        harness.push(("a", number), 5)

    assert rows(harness) == [("a", -100, 100, [0, 10, 20], 1)]
    harness.watermark(99)
    assert left(harness) == NOTHING


@every_way
def test_a_purged_window_still_merges(mode: Mode) -> None:
    harness = step(mode, assigner=Sessions(), trigger=Purging(EventTime[Event]()), lateness=100)
    harness.push(("a", 1), 0)
    harness.watermark(9)

    harness.push(("a", 2), 5)
    harness.watermark(14)

    assert rows(harness) == [("a", 0, 10, 1, 1), ("a", 0, 15, 2, 2)]


@every_way
def test_sessions_of_processing_time_end_while_the_source_is_idle(mode: Mode) -> None:
    harness = step(mode, assigner=Sessions(TimeDomain.PROCESSING), trigger=ProcessingTime())
    harness.push(("a", 1))
    harness.advance_processing_time(6)
    harness.push(("a", 2))

    harness.advance_processing_time(20)

    assert rows(harness) == [("a", 0, 16, 3, 1)]
    assert left(harness) == NOTHING


@every_way
def test_a_record_whose_windows_touch_each_other_is_in_the_merged_one_once_for_each(
    mode: Mode,
) -> None:
    class Two(Sessions):
        def assign(self, value: object, timestamp: Timestamp) -> list[TimeWindow]:
            return [TimeWindow(timestamp, timestamp + 5), TimeWindow(timestamp + 5, timestamp + 10)]

    harness = step(mode, assigner=Two(), apply=numbers)
    harness.push(("a", 1), 0)

    harness.watermark(9)

    assert rows(harness) == [("a", 0, 10, [1, 1], 1)]


class Remembers(WindowFunction[str, int, int]):
    state = ValueState("state", of=int)

    def process(self, value: int, ctx: WindowContext[str]) -> Iterable[int]:
        total = ctx.state(self.state)
        total.set(total.get(0) + value)
        return [total.get(0)]


@every_way
def test_functions_of_merging_windows_have_state_of_the_key(mode: Mode) -> None:
    harness = step(mode, assigner=Sessions(), accumulation=SUM, function=Remembers())
    harness.push_batch([("a", 1), ("a", 2)], [0, 50])

    harness.watermark(100)

    assert harness.values == [1, 3]


def test_functions_of_merging_windows_have_no_state_of_the_window() -> None:
    class Wants(Remembers):
        def process(self, value: int, ctx: WindowContext[str]) -> Iterable[int]:
            ctx.window_state(self.state).set(1)
            return []

    harness = step(assigner=Sessions(), accumulation=SUM, function=Wants())
    harness.push(("a", 1), 0)

    with pytest.raises(OperatorError, match="windows that merge") as failed:
        harness.watermark(9)
    assert isinstance(failed.value.__cause__, FlowDefinitionError)


@every_way
def test_no_state_is_kept_of_late_records_that_touch_no_window(mode: Mode) -> None:
    harness = step(mode, assigner=Sessions(), trigger=Says(TriggerResult.FIRE, merges=True))
    harness.watermark(100)

    harness.push(("a", 1), 0)

    assert late(harness) == [("a", 1)]
    assert left(harness) == NOTHING
