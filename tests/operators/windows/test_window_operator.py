"""Windows that do not merge: triggers, contents, timers, clean-up; without and with a restore after each step."""

from __future__ import annotations

from typing import Any

import pytest

from aflow.errors import OperatorError
from aflow.machines.windows.assigners import (
    GlobalWindows,
    SessionWindows,
    SlidingWindows,
    TumblingWindows,
    WindowAssigner,
)
from aflow.machines.windows.trigger import Trigger, TriggerContext, TriggerResult
from aflow.machines.windows.triggers import (
    Count,
    Never,
    Purging,
)
from aflow.model.batch import BATCH_RECORDS, Batch
from aflow.model.elements import Watermark
from aflow.model.time import MAX_TIMESTAMP, Timestamp
from aflow.model.windows import GLOBAL_WINDOW, TimeWindow
from aflow.operators.base import StateSize
from aflow.operators.windows.window_operator import WindowOperator
from aflow.testing import At, Mode
from tests.operators.driver import Driver
from tests.operators.windows.window_steps import (
    NOTHING,
    Everywhere,
    Says,
    late,
    left,
    logic,
    numbers,
    rows,
    step,
)

every_way = pytest.mark.parametrize("mode", Mode)


# ------------------------------------------------------------------------------------- event time


@every_way
def test_apply_gets_the_records_of_a_window_in_the_order_of_their_arrival(mode: Mode) -> None:
    harness = step(mode, apply=numbers)
    harness.push_batch([("a", 1), ("b", 2), ("a", 3), ("a", 4)], [5, 1, 2, 12])

    harness.watermark(9)

    assert sorted(rows(harness)) == [("a", 0, [1, 3], 1), ("b", 0, [2], 1)]


@every_way
def test_a_change_that_apply_makes_to_its_list_is_not_in_a_later_firing(mode: Mode) -> None:
    def emptied(events: list[Any]) -> int:
        count = len(events)
        events.clear()
        return count

    harness = step(mode, trigger=Count(1), apply=emptied)

    harness.push(("a", 1), 1)
    harness.push(("a", 2), 1)

    assert rows(harness) == [("a", 0, 1, 1), ("a", 0, 2, 2)]


@every_way
def test_results_have_the_last_timestamp_of_the_window_and_precede_the_watermark(
    mode: Mode,
) -> None:
    harness = step(mode)
    harness.push(("a", 1), 3)

    harness.watermark(12)

    first, second = harness.output
    assert isinstance(first, At)
    assert first.timestamp == 9
    assert second == Watermark(12)


@every_way
def test_windows_that_are_due_together_fire_in_the_order_of_time(mode: Mode) -> None:
    harness = step(mode)
    harness.push_batch([("a", 1), ("a", 2), ("a", 3)], [25, 5, 15])

    harness.watermark(MAX_TIMESTAMP)

    assert rows(harness) == [("a", 0, 2, 1), ("a", 10, 3, 1), ("a", 20, 1, 1)]


@every_way
def test_within_the_lateness_a_record_fires_its_window_again_for_its_key_only(mode: Mode) -> None:
    harness = step(mode, lateness=5)
    harness.push_batch([("a", 1), ("b", 10)], [1, 1])
    harness.watermark(9)
    first = len(harness.values)

    harness.push(("a", 2), 2)
    harness.watermark(13)
    harness.push(("c", 7), 3)
    harness.watermark(14)
    harness.push(("a", 4), 4)

    assert rows(harness)[first:] == [("a", 0, 3, 2), ("c", 0, 7, 1)]
    assert late(harness) == [("a", 4)]
    assert left(harness) == NOTHING


@every_way
def test_a_record_is_late_only_if_all_its_windows_were_removed(mode: Mode) -> None:
    harness = step(mode, assigner=SlidingWindows(20, 10), apply=numbers)
    harness.watermark(9)

    harness.push(("a", 1), 5)
    harness.watermark(19)
    harness.push(("a", 2), 5)
    harness.watermark(MAX_TIMESTAMP)

    assert rows(harness) == [("a", 0, [1], 1)]
    assert late(harness) == [("a", 2)]


@every_way
def test_a_record_in_no_window_is_late_only_if_it_is_before_the_watermark(mode: Mode) -> None:
    harness = step(mode, assigner=SlidingWindows(2, 10), apply=numbers)
    harness.watermark(20)

    harness.push(("a", 1), 25)
    harness.push(("a", 2), 15)

    assert late(harness) == [("a", 2)]


@every_way
def test_a_window_whose_clean_up_time_lies_beyond_the_end_of_time_is_kept(mode: Mode) -> None:
    harness = step(mode, lateness=MAX_TIMESTAMP)
    harness.push(("a", 1), 1)
    harness.watermark(MAX_TIMESTAMP - 1)

    harness.push(("a", 2), 2)

    assert rows(harness) == [("a", 0, 1, 1), ("a", 0, 3, 2)]


def test_records_without_timestamps_are_refused_where_event_time_is_needed() -> None:
    harness = step()

    with pytest.raises(OperatorError, match=r"^step 'step' needs event time.* call \.event_time"):
        harness.push(("a", 1))


@every_way
def test_a_custom_assigner_assigns_the_windows(mode: Mode) -> None:
    class ByValue(WindowAssigner[tuple[str, int]]):
        def assign(self, value: tuple[str, int], timestamp: Timestamp) -> list[TimeWindow]:
            return [TimeWindow(0, value[1]), TimeWindow(0, 100)]

    harness = step(mode, assigner=ByValue(), apply=numbers)
    harness.push(("a", 20), 1)
    harness.push(("a", 30), 1)

    harness.watermark(MAX_TIMESTAMP)

    assert [(w.window.end, w.value) for w in harness.values] == [
        (20, [20]),
        (30, [30]),
        (100, [20, 30]),
    ]


# ---------------------------------------------------------------------------------------- triggers


@every_way
def test_a_purged_window_starts_empty_and_continues_counting_its_firings(mode: Mode) -> None:
    harness = step(mode, trigger=Purging(Count(2)))

    for number in range(5):
        harness.push(("a", number), 1)
    harness.watermark(9)

    assert rows(harness) == [("a", 0, 1, 1), ("a", 0, 5, 2)]
    assert left(harness) == NOTHING


@every_way
def test_a_window_without_end_counts_from_one_again_after_a_purge_and_keeps_no_state(
    mode: Mode,
) -> None:
    harness = step(mode, assigner=Everywhere(), trigger=Purging(Count(2)))

    for number in range(4):
        harness.push(("a", number), 1)

    assert [(w.window, w.value, w.firing) for w in harness.values] == [
        (GLOBAL_WINDOW, 1, 1),
        (GLOBAL_WINDOW, 5, 1),
    ]
    assert left(harness) == NOTHING


class Twice(WindowAssigner[object]):
    """Assigns the global window twice."""

    def assign(self, value: object, timestamp: Timestamp) -> list[TimeWindow]:
        return [GLOBAL_WINDOW, GLOBAL_WINDOW]


@every_way
@pytest.mark.parametrize(
    ("size", "results"), [(1, [1, 1, 2, 2]), (2, [1 + 1, 2 + 2]), (3, [1 + 1 + 2])]
)
def test_a_record_that_is_in_a_window_twice_counts_twice(
    mode: Mode, size: int, results: list[int]
) -> None:
    harness = step(mode, assigner=Twice(), trigger=Purging(Count(size)))

    harness.push_batch([("a", 1), ("a", 2)], [0, 0])

    assert [one.value for one in harness.values] == results


@every_way
def test_the_memory_of_a_trigger_in_a_window_without_end_outlives_a_purge(mode: Mode) -> None:
    class EverySecond(Says):
        def on_element(
            self, value: object, timestamp: int, window: TimeWindow, ctx: TriggerContext
        ) -> TriggerResult:
            seen = ctx.get("seen", 0) + 1
            ctx.put("seen", seen)
            return TriggerResult.PURGE if seen % 2 else TriggerResult.FIRE_AND_PURGE

    harness = step(mode, assigner=Everywhere(), trigger=EverySecond(TriggerResult.FIRE))

    for number in range(6):
        harness.push(("a", number), 1)

    assert [(w.value, w.firing) for w in harness.values] == [(1, 1), (3, 1), (5, 1)]
    assert harness.size == StateSize(entries=1)


@every_way
def test_an_empty_window_is_opened_again(mode: Mode) -> None:
    harness = step(mode, lateness=MAX_TIMESTAMP, trigger=Purging(Count(1)))

    harness.push_batch([("a", 1), ("a", 2), ("b", 3)], [1, 2, 3])
    harness.push(("a", 4), 4)

    assert [w.value for w in harness.values] == [1, 2, 3, 4]
    assert left(harness) == NOTHING


@every_way
def test_a_timer_beyond_the_end_of_time_is_not_set(mode: Mode) -> None:
    class Far(Says):
        def on_element(
            self, value: object, timestamp: int, window: TimeWindow, ctx: TriggerContext
        ) -> TriggerResult:
            ctx.set_event_timer(MAX_TIMESTAMP + 1)
            ctx.set_processing_timer(MAX_TIMESTAMP + 1)
            return TriggerResult.CONTINUE

    harness = step(mode, trigger=Far(TriggerResult.CONTINUE))

    harness.push(("a", 1), 1)

    assert harness.size == StateSize(entries=1, event_timers=1)


@every_way
def test_the_timer_of_a_purged_window_calls_the_trigger_and_no_function(mode: Mode) -> None:
    asked: list[int] = []

    class Early(Trigger[object]):
        def on_element(
            self, value: object, timestamp: int, window: TimeWindow, ctx: TriggerContext
        ) -> TriggerResult:
            ctx.set_event_timer(5)
            return TriggerResult.PURGE

        def on_event_time(self, at: int, window: TimeWindow, ctx: TriggerContext) -> TriggerResult:
            asked.append(at)
            return TriggerResult.FIRE

    for assigner in (TumblingWindows(10), Everywhere()):
        harness = step(mode, assigner=assigner, trigger=Early(), apply=numbers)
        asked.clear()
        harness.push(("a", 1), 1)
        harness.watermark(5)

        assert (asked, rows(harness)) == ([5], [])
        harness.watermark(9)
        assert left(harness) == NOTHING


@every_way
def test_a_trigger_has_memory_for_each_key_and_window(mode: Mode) -> None:
    class EverySecond(Trigger[object]):
        def on_element(
            self, value: object, timestamp: int, window: TimeWindow, ctx: TriggerContext
        ) -> TriggerResult:
            seen = ctx.get("seen", 0) + 1
            ctx.put("seen", seen)
            if seen < 2:
                return TriggerResult.CONTINUE
            ctx.drop("seen")
            return TriggerResult.FIRE

    harness = step(mode, trigger=EverySecond())

    for key, at in (("a", 1), ("b", 1), ("a", 11), ("a", 2), ("b", 2), ("a", 3)):
        harness.push((key, 1), at)

    assert rows(harness) == [("a", 0, 2, 1), ("b", 0, 2, 1)]
    assert (
        harness.size.entries == 3 + 2
    )  # contents of (a, 0), (b, 0), (a, 10); memory of (a, 0), (a, 10)
    harness.watermark(19)
    assert left(harness) == NOTHING


@every_way
@pytest.mark.parametrize("assigner", [TumblingWindows(10), SessionWindows(9)], ids=str)
def test_a_trigger_cannot_delete_the_clean_up_timer(
    mode: Mode, assigner: WindowAssigner[Any]
) -> None:
    class Deletes(Says):
        def on_element(
            self, value: object, timestamp: int, window: TimeWindow, ctx: TriggerContext
        ) -> TriggerResult:
            ctx.delete_event_timer(window.max_timestamp)
            return TriggerResult.CONTINUE

    harness = step(mode, assigner=assigner, trigger=Deletes(TriggerResult.CONTINUE, merges=True))
    harness.push(("a", 1), 1)

    harness.watermark(9)

    assert left(harness) == NOTHING


@every_way
def test_a_timer_that_a_trigger_does_not_delete_has_no_effect_after_the_window_was_removed(
    mode: Mode,
) -> None:
    class Leaves(Says):
        def on_element(
            self, value: object, timestamp: int, window: TimeWindow, ctx: TriggerContext
        ) -> TriggerResult:
            ctx.set_event_timer(50)
            return TriggerResult.CONTINUE

        def on_event_time(self, at: int, window: TimeWindow, ctx: TriggerContext) -> TriggerResult:
            assert at == 9, "asked for a window that is gone"
            return TriggerResult.CONTINUE

    harness = step(mode, trigger=Leaves(TriggerResult.CONTINUE))
    harness.push(("a", 1), 1)
    harness.watermark(9)
    waiting = harness.size

    harness.watermark(60)

    assert waiting == StateSize(event_timers=1)
    assert left(harness) == NOTHING


@every_way
def test_a_trigger_that_sets_a_timer_in_each_timer_ends_with_the_input(mode: Mode) -> None:
    class Again(Says):
        def on_element(
            self, value: object, timestamp: int, window: TimeWindow, ctx: TriggerContext
        ) -> TriggerResult:
            ctx.set_event_timer(timestamp + 10)
            return TriggerResult.CONTINUE

        def on_event_time(self, at: int, window: TimeWindow, ctx: TriggerContext) -> TriggerResult:
            ctx.set_event_timer(at + 10)
            return TriggerResult.FIRE

    harness = step(mode, assigner=Everywhere(), trigger=Again(TriggerResult.CONTINUE))
    harness.push(("a", 1), 1)
    harness.watermark(30)

    harness.watermark(MAX_TIMESTAMP)

    assert [w.firing for w in harness.values] == [1, 2, 3]


@every_way
def test_records_without_timestamps_may_be_in_the_one_global_window(mode: Mode) -> None:
    harness = step(mode, assigner=GlobalWindows(), trigger=Purging(Count(2)), apply=numbers)

    for number in range(5):
        harness.push(("a", number))

    assert [w.value for w in harness.values] == [[0, 1], [2, 3]]


@every_way
def test_the_keys_of_a_window_share_one_timer_for_its_end(mode: Mode) -> None:
    harness = step(mode, apply=numbers)

    harness.push_batch([(f"key {n}", n) for n in range(100)], [1] * 100)

    assert harness.size == StateSize(entries=100, event_timers=1)


@every_way
def test_no_state_of_many_keys_and_windows_is_kept(mode: Mode) -> None:
    harness = step(mode, assigner=SlidingWindows(30, 10), apply=numbers, lateness=25)
    keys = 40
    for start in range(0, 200, 20):
        harness.push_batch(
            [(f"key {n}", n) for n in range(keys)], [start + n % 20 for n in range(keys)]
        )
        harness.watermark(start)
    held = harness.size

    harness.watermark(1000)

    assert held.entries > 100
    assert left(harness) == NOTHING


# ------------------------------------------------------------------------------------------ output


def test_results_are_emitted_in_batches_of_at_most_a_thousand() -> None:
    driver = Driver(lambda: WindowOperator(logic(apply=numbers)))
    keys = [f"key {n}" for n in range(2 * BATCH_RECORDS + 10)]
    driver.push(*[(key, 1) for key in keys], at=[1] * len(keys), keys=keys)

    driver.watermark(9)

    *batches, last = driver.batches()
    sizes = [len(batch) for batch in batches if isinstance(batch, Batch)]
    assert (max(sizes), sum(sizes), last) == (BATCH_RECORDS, len(keys), Watermark(9))


def test_a_window_that_never_fires_emits_nothing_and_is_cleaned_up() -> None:
    harness = step(trigger=Never())
    harness.push(("a", 1), 1)

    harness.watermark(9)

    assert (harness.values, left(harness)) == ([], NOTHING)
