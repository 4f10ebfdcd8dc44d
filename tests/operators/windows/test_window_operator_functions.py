"""Window functions: context, state, side outputs, life cycle; evictors; failures and their messages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from aflow.errors import CheckpointError, FlowDefinitionError, OperatorError, RestoreError
from aflow.machines.windows.assigners import SessionWindows, TumblingWindows
from aflow.machines.windows.trigger import TriggerContext, TriggerResult
from aflow.machines.windows.triggers import Count, ProcessingTime
from aflow.model.key_groups import key_group
from aflow.model.tags import Tag
from aflow.model.time import MAX_TIMESTAMP
from aflow.model.windows import TimeWindow
from aflow.operators.base import StateSize
from aflow.operators.windows.function import WindowContext, WindowFunction
from aflow.operators.windows.panes import PaneAggregateOperator
from aflow.state.specs import ListState, ValueState
from aflow.testing import At, Mode
from tests.operators.backends import BackendHarness as OperatorHarness
from tests.operators.windows.window_steps import (
    SUM,
    Event,
    KeepsLast,
    OnProcessingTime,
    Says,
    late,
    numbers,
    step,
)

every_way = pytest.mark.parametrize("mode", Mode)


class Totals(WindowFunction[str, int, tuple[str, int, int, int]]):
    """Emits key, start, value and firing, with the total of the key over all windows, and of the window over its
    firings.
    """

    of_key = ValueState("total", of=int)
    of_window = ListState("of window", of=int)
    note = Tag[str]("note")

    def process(self, value: int, ctx: WindowContext[str]) -> Iterator[tuple[str, int, int, int]]:
        total = ctx.state(self.of_key)
        total.set(total.get(0) + value)
        ctx.window_state(self.of_window).add(value)
        ctx.side(self.note, f"{ctx.key}: {total.get()}, {ctx.window_state(self.of_window).get()}")
        yield ctx.key, ctx.window.start, value, ctx.firing


def notes(harness: OperatorHarness[Event, Any]) -> list[At[str]]:
    return harness.side(Totals.note)


@every_way
def test_a_function_has_state_of_the_key_and_of_the_window(mode: Mode) -> None:
    harness = step(mode, accumulation=SUM, function=Totals(), lateness=5)
    harness.push_batch([("a", 1), ("a", 10)], [1, 11])
    harness.watermark(9)
    harness.push(("a", 2), 1)

    harness.watermark(30)

    assert harness.values == [("a", 0, 1, 1), ("a", 0, 3, 2), ("a", 10, 10, 1)]
    assert notes(harness) == [At("a: 1, [1]", 9), At("a: 4, [1, 3]", 9), At("a: 14, [10]", 19)]
    assert harness.size == StateSize(entries=1)  # of the key: kept


@every_way
def test_results_of_a_function_have_the_last_timestamp_of_the_window(mode: Mode) -> None:
    harness = step(mode, accumulation=SUM, function=Totals())
    harness.push(("a", 1), 1)

    harness.watermark(9)

    assert harness.output[0] == At(("a", 0, 1, 1), 9)


@every_way
def test_a_function_without_accumulation_gets_all_records(mode: Mode) -> None:
    class Spread(WindowFunction[str, list[Event], int]):
        def process(self, value: list[Event], ctx: WindowContext[str]) -> list[int]:
            return [max(numbers(value)) - min(numbers(value))]

    harness = step(mode, function=Spread())
    harness.push_batch([("a", 3), ("a", 10), ("a", 5)], [1, 2, 3])

    harness.watermark(9)

    assert harness.values == [7]


@every_way
def test_a_function_gets_watermark_and_clock_and_may_return_no_result(mode: Mode) -> None:
    seen: list[tuple[int, int]] = []

    class Looks(WindowFunction[str, int, int]):
        def process(self, value: int, ctx: WindowContext[str]) -> None:
            seen.append((ctx.watermark, ctx.processing_time))

    harness = step(mode, accumulation=SUM, function=Looks())
    harness.advance_processing_time(77)
    harness.push(("a", 3), 1)

    harness.watermark(12)

    assert (seen, harness.values) == ([(12, 77)], [])


@every_way
def test_on_clear_is_called_for_each_key_and_window_before_its_state_is_cleared(
    mode: Mode,
) -> None:
    cleared: list[tuple[str, int, object]] = []

    class Clears(Totals):
        def on_clear(self, ctx: WindowContext[str]) -> None:
            cleared.append((ctx.key, ctx.window.start, ctx.window_state(self.of_window).get()))

    harness = step(mode, accumulation=SUM, function=Clears())
    harness.push_batch([("a", 1), ("b", 2), ("a", 4)], [1, 1, 11])

    harness.watermark(15)

    assert sorted(cleared, key=str) == [("a", 0, [1]), ("b", 0, [2])]


def test_the_context_is_valid_until_the_method_returns() -> None:
    kept: list[WindowContext[str]] = []

    class Keeps(WindowFunction[str, int, int]):
        def process(self, value: int, ctx: WindowContext[str]) -> None:
            kept.append(ctx)

    harness = step(accumulation=SUM, function=Keeps(), trigger=Count(1))
    harness.push(("a", 1), 1)

    with pytest.raises(OperatorError, match="before the method returns"):
        _ = kept[0].window


def test_state_that_is_not_declared_is_refused() -> None:
    class Guesses(WindowFunction[str, int, int]):
        def process(self, value: int, ctx: WindowContext[str]) -> None:
            ctx.state(ValueState[int]("other"))

    harness = step(accumulation=SUM, function=Guesses(), trigger=Count(1))

    with pytest.raises(OperatorError, match="not declared") as failed:
        harness.push(("a", 1), 1)
    assert isinstance(failed.value.__cause__, FlowDefinitionError)


def test_a_function_cannot_emit_to_the_late_output() -> None:
    class Sends(WindowFunction[str, int, int]):
        def process(self, value: int, ctx: WindowContext[str]) -> None:
            ctx.side(Tag[int]("late"), value)

    harness = step(accumulation=SUM, function=Sends())
    harness.push(("a", 1), 1)

    with pytest.raises(OperatorError, match="'late' of step 'step' has its late records"):
        harness.watermark(9)


def test_a_falsy_function_is_called_too() -> None:
    class Table(WindowFunction[str, int, str]):
        def __len__(self) -> int:
            return 0

        def process(self, value: int, ctx: WindowContext[str]) -> list[str]:
            return [f"{ctx.key} {value}"]

    harness = step(accumulation=SUM, function=Table())
    harness.push(("a", 1), 1)

    harness.watermark(9)

    assert harness.values == ["a 1"]


def test_each_subtask_opens_and_closes_a_copy_of_the_function() -> None:
    events: list[str] = []

    class Opens(WindowFunction[str, int, int]):
        factor = 0

        def open(self) -> None:
            self.factor = 2
            events.append("open")

        def process(self, value: int, ctx: WindowContext[str]) -> list[int]:
            return [value * self.factor]

        def close(self) -> None:
            events.append("close")

    function = Opens()
    with step(accumulation=SUM, function=function, trigger=Count(1)) as harness:
        harness.push(("a", 4), 1)

    assert (harness.values, events, function.factor) == ([8], ["open", "close"], 0)


# -------------------------------------------------------------------------------------- failures


class Fails(Says):
    """Raises an error in one of its methods."""

    def __init__(self, where: str) -> None:
        super().__init__(TriggerResult.CONTINUE)
        self._where = where

    def on_element(
        self, value: object, timestamp: int, window: TimeWindow, ctx: TriggerContext
    ) -> TriggerResult:
        if self._where == "element":
            raise ZeroDivisionError("no")
        return TriggerResult.CONTINUE

    def on_event_time(self, at: int, window: TimeWindow, ctx: TriggerContext) -> TriggerResult:
        if self._where == "time":
            raise ZeroDivisionError("no")
        return TriggerResult.CONTINUE

    def clear(self, window: TimeWindow, ctx: TriggerContext) -> None:
        if self._where == "clear":
            raise ZeroDivisionError("no")


def fails(*_: object) -> int:
    raise ZeroDivisionError("no")


def test_a_failure_while_a_record_is_handled_names_record_key_and_window() -> None:
    for harness in (step(trigger=Fails("element")), step(trigger=Count(1), apply=fails)):
        with pytest.raises(OperatorError) as failed:
            harness.push_batch([("a", 1)], [11])

        message = str(failed.value)
        assert "step 'step' failed on record ('a', 1), key 'a', timestamp 11" in message
        assert "window [10, 20)" in message
        assert failed.value.key == "a"
        assert isinstance(failed.value.__cause__, ZeroDivisionError)


def test_a_failure_in_a_timer_names_its_time_key_and_window() -> None:
    for harness in (
        step(trigger=Fails("time")),
        step(trigger=Fails("clear")),
        step(apply=fails),
    ):
        harness.push(("a", 1), 11)

        with pytest.raises(OperatorError) as failed:
            harness.watermark(30)

        message = str(failed.value)
        assert "failed in the event time timer at 19" in message
        assert "key 'a' in the window [10, 20)" in message
        assert isinstance(failed.value.__cause__, ZeroDivisionError)


def test_an_error_of_an_assigner_does_not_name_the_preceding_window() -> None:
    class Odd(OnProcessingTime):
        def assign(self, value: Any, timestamp: int) -> list[TimeWindow]:
            return [TimeWindow(0, 10 // value[1])]

    harness = step(assigner=Odd(), trigger=ProcessingTime())

    with pytest.raises(OperatorError) as failed:
        harness.push_batch([("a", 1), ("b", 0)])

    assert "key 'b'" in str(failed.value)
    assert "window" not in str(failed.value)


def test_a_trigger_must_return_a_trigger_result() -> None:
    nothing: Any = None
    harness = step(trigger=Says(nothing))

    with pytest.raises(OperatorError, match="Says returned None, not a TriggerResult"):
        harness.push(("a", 1), 1)


def test_a_timer_is_set_in_epoch_milliseconds() -> None:
    class Vague(Says):
        def on_element(
            self, value: object, timestamp: int, window: TimeWindow, ctx: TriggerContext
        ) -> TriggerResult:
            soon: Any = 1.5
            ctx.set_event_timer(soon)
            return TriggerResult.CONTINUE

    harness = step(trigger=Vague(TriggerResult.CONTINUE))

    with pytest.raises(OperatorError, match=r"epoch ms \(an int\), not to 1\.5"):
        harness.push(("a", 1), 1)


def test_contents_that_cannot_be_stored_are_named_with_key_and_window() -> None:
    harness: OperatorHarness[Any, Any] = step(apply=len)
    harness.push(("a", object()), 11)

    with pytest.raises(CheckpointError, match=r"step 'step' .* key 'a' .* window \[10, 20\)"):
        harness.snapshot()


def test_the_memory_of_a_trigger_must_be_plain_values() -> None:
    class Hoards(Says):
        def on_element(
            self, value: object, timestamp: int, window: TimeWindow, ctx: TriggerContext
        ) -> TriggerResult:
            ctx.put("all", object())
            return TriggerResult.CONTINUE

    harness = step(trigger=Hoards(TriggerResult.CONTINUE))
    harness.push(("a", 1), 11)

    with pytest.raises(CheckpointError, match=r"key 'a' .* window \[10, 20\)"):
        harness.snapshot()


def test_the_snapshot_of_another_kind_of_window_step_is_refused() -> None:
    other: OperatorHarness[Event, Any] = OperatorHarness(
        lambda: PaneAggregateOperator(TumblingWindows(10), SUM), key=lambda event: event[0]
    )
    other.push(("a", 1), 1)
    snapshot = other.snapshot()
    assert snapshot is not None

    with pytest.raises(RestoreError, match="window step cannot restore"):
        step().restore(snapshot)


FOLDED: dict[str, Any] = {"accumulation": SUM}
KEPT: dict[str, Any] = {"apply": numbers}
WITH_TIMESTAMPS: dict[str, Any] = {"apply": numbers, "evictor": KeepsLast(3, 2)}
MERGING: dict[str, Any] = {"accumulation": SUM, "assigner": SessionWindows(10)}


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        (KEPT, FOLDED, "each with an accumulator, and the snapshot holds .* each with records;"),
        (FOLDED, KEPT, "each with records, .* each with an accumulator;"),
        (KEPT, WITH_TIMESTAMPS, "each with records with timestamps, .* each with records;"),
        (MERGING, FOLDED, "windows that do not merge, .* holds windows that merge,"),
        (FOLDED, MERGING, "windows that merge, .* holds windows that do not merge,"),
    ],
)
def test_windows_do_not_restore_other_contents_or_windows_that_merge(
    before: dict[str, Any], after: dict[str, Any], says: str
) -> None:
    changed = step(**before)
    changed.push(("a", 1), 1)
    snapshot = changed.snapshot()
    assert snapshot is not None

    with pytest.raises(RestoreError, match=f"step 'step' has .*{says} .*give .* a new name"):
        step(**after).restore(snapshot)


# ----------------------------------------------------------------------------------------- scaling


def test_a_snapshot_continues_in_any_number_of_subtasks() -> None:
    keys = [f"key {n}" for n in range(30)]
    whole = step(accumulation=SUM, function=Totals(), lateness=20)
    whole.push_batch([(key, 1) for key in keys], [1] * len(keys))
    whole.watermark(9)
    snapshot = whole.snapshot()
    assert snapshot is not None
    halves = [
        step(accumulation=SUM, function=Totals(), lateness=20, subtask=n, parallelism=2)
        for n in range(2)
    ]

    for half in halves:
        half.restore(snapshot)
        for key in keys:
            try:
                half.push((key, 5), 2)
            except FlowDefinitionError:  # the key of the other subtask
                continue
        half.watermark(MAX_TIMESTAMP)

    results = [result for half in halves for result in half.values]
    assert sorted(results) == sorted((key, 0, 6, 2) for key in keys)
    assert sum(half.size.entries for half in halves) == len(keys)  # the state of keys
    assert all(late(half) == [] and half.size.event_timers == 0 for half in halves)


def test_each_key_continues_with_the_watermark_of_its_former_subtask() -> None:
    slow, fast = step(subtask=0, parallelism=2), step(subtask=1, parallelism=2)
    slow.watermark(9)
    fast.watermark(50)
    snapshots = [each.snapshot() for each in (slow, fast)]
    of_slow, of_fast = (
        next(k for k in map(str, range(99)) if key_group(k) in each.operator.context.key_groups)
        for each in (slow, fast)
    )
    whole = step()

    whole.restore(*[snapshot for snapshot in snapshots if snapshot is not None])
    whole.push_batch([(of_slow, 1), (of_slow, 2), (of_fast, 3), (of_fast, 4)], [9, 10, 49, 50])

    assert late(whole) == [(of_slow, 1), (of_fast, 3)]
