"""The operator harness replaces the runtime: steps, clock, snapshots, and output in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, TypeVar, assert_type

import pytest

import aflow as af
from aflow.machines.windows.assigners import TumblingWindows
from aflow.model.batch import Batch
from aflow.model.elements import ACTIVE, IDLE
from aflow.model.key_groups import key_group
from aflow.model.time import MAX_TIMESTAMP, Timestamp
from aflow.operators.accumulation import Accumulation, folding
from aflow.operators.base import Operator, StateSize
from aflow.operators.keyed_accumulate import KeyedAccumulateOperator
from aflow.operators.stateless import MapOperator
from aflow.operators.windows.panes import PaneAggregateOperator
from aflow.testing import At, Mode, OperatorHarness, Watermark

T = TypeVar("T")
#: Sides of the windows' late records.
LATE = af.Tag[str]("late")


class Shout(af.ProcessFunction[str, str]):
    quiet = af.Tag[str]("quiet")

    def process(self, value: str, ctx: af.ProcessContext) -> Iterable[str] | None:
        if not value:
            ctx.side(self.quiet, value)
            return None
        return [value.upper()]


class CountTo3(af.KeyedProcess[str, str, str]):
    """Emit ``key=count`` for each third record, and by a timer 10 s of processing time after the first."""

    count = af.ValueState("count", of=int)

    def process(self, value: str, ctx: af.Context[str]) -> Iterable[str] | None:
        cell = ctx.state(self.count)
        count = (cell.get() or 0) + 1
        if count == 1:
            ctx.set_processing_timer(ctx.processing_time + 10_000)
        cell.set(count)
        return [f"{ctx.key}={count}"] if count % 3 == 0 else None

    def on_timer(self, at: Timestamp, ctx: af.Context[str]) -> Iterable[str]:
        yield f"{ctx.key} had {ctx.state(self.count).get()} at {at}"


class Ticking(Operator):
    """Emit the time whenever its alarm fires, and set it again ``period`` ms later; without state."""

    def __init__(self, period: int, ahead: int = 0) -> None:
        self._period = period
        self._ahead = ahead

    def process(self, batch: Batch[Any]) -> None:
        self.context.alarm.set(self.context.clock.now() + self._ahead)

    def on_processing_time(self, now: Timestamp) -> None:
        self.output.emit(Batch([now]))
        self.context.alarm.set(now + self._period)


class Emitting(Operator, Generic[T]):
    """Call a function with its output."""

    def __init__(self, act: Callable[[Operator], None]) -> None:
        self._act = act

    def process(self, batch: Batch[Any]) -> None:
        self._act(self)


def first_letter(value: str) -> str:
    return value[0]


def test_records_are_emitted_with_their_timestamps_and_the_elements_between_them_in_order() -> None:
    harness = OperatorHarness[int, int](lambda: MapOperator(lambda n: n * 2))

    harness.push(1, 100)
    harness.watermark(100)
    harness.idle()
    harness.active()
    harness.push_batch([2, 3], [200, datetime(1970, 1, 1, tzinfo=UTC)])
    harness.end()

    assert harness.output == [
        At(2, 100),
        Watermark(100),
        IDLE,
        ACTIVE,
        At(4, 200),
        At(6, 0),
        Watermark(MAX_TIMESTAMP),
    ]
    assert harness.values == [2, 4, 6]


def test_take_returns_the_elements_since_the_last_take() -> None:
    harness = OperatorHarness.of(Shout())

    harness.push("a")
    first = harness.take()
    harness.push("b")
    second = harness.take()

    assert (first, second, harness.take()) == ([At("A")], [At("B")], [])
    assert harness.values == ["A", "B"]


def test_a_side_output_is_kept_apart() -> None:
    harness = OperatorHarness.of(Shout())

    harness.push("", 5)
    harness.push("a", 6)

    assert harness.side(Shout.quiet) == [At("", 5)]
    assert harness.output == [At("A", 6)]


@pytest.mark.parametrize("mode", Mode)
def test_a_keyed_process_keeps_state_and_timers_in_all_modes(mode: Mode) -> None:
    harness = OperatorHarness.of(CountTo3(), key=first_letter, mode=mode, start=1_000)

    for value in ("a1", "b1", "a2", "a3"):
        harness.push(value)
    harness.advance_processing_time(timedelta(seconds=10))

    assert harness.values == ["a=3", "a had 3 at 11000", "b had 1 at 11000"]
    assert harness.now == 11_000


@pytest.mark.parametrize("mode", Mode)
def test_windows_fire_and_drop_late_records_in_all_modes(mode: Mode) -> None:
    def windows() -> PaneAggregateOperator:
        count = Accumulation(lambda _: 1, lambda so_far, _: so_far + 1)
        return PaneAggregateOperator(TumblingWindows(10, 0), count)

    harness = OperatorHarness[str, af.Windowed[str, int]](windows, key=first_letter, mode=mode)

    harness.push_batch(["a", "b", "a"], [1, 2, 3])
    harness.watermark(9)
    harness.push("a", 4)
    harness.watermark(9)

    assert [(one.key, one.value) for one in harness.values] == [("a", 2), ("b", 1)]


def test_records_before_the_watermark_are_late() -> None:
    count = Accumulation(lambda _: 1, lambda so_far, _: so_far + 1)
    harness = OperatorHarness[str, object](
        lambda: PaneAggregateOperator(TumblingWindows(10, 0), count), key=first_letter
    )

    harness.watermark(9)
    harness.push("a", 4)

    assert harness.side(LATE) == [At("a", 4)]


@pytest.mark.parametrize("mode", Mode)
def test_the_size_counts_state_and_timers(mode: Mode) -> None:
    harness = OperatorHarness.of(CountTo3(), key=first_letter, mode=mode)

    for value in ("a1", "b1", "a2"):
        harness.push(value)
    before = harness.size
    harness.advance_processing_time(10_000)

    assert before == StateSize(entries=2, processing_timers=2)
    assert harness.size == StateSize(entries=2)


def test_a_step_that_remembers_nothing_has_no_size() -> None:
    assert OperatorHarness.of(Shout()).size == StateSize()


def test_restoring_mode_finds_state_that_no_snapshot_holds() -> None:
    class Forgetful(af.KeyedProcess[str, str, int]):
        def open(self) -> None:
            self.seen = 0

        def process(self, value: str, ctx: af.Context[str]) -> list[int]:
            self.seen += 1
            return [self.seen]

    straight, restoring = (
        OperatorHarness.of(Forgetful(), key=first_letter, mode=mode)
        for mode in (Mode.STRAIGHT, Mode.RESTORING)
    )
    for harness in (straight, restoring):
        harness.push("a")
        harness.push("a")

    assert straight.values == [1, 2]
    assert restoring.values == [1, 1]


def test_an_alarm_fires_at_each_of_its_times_in_order() -> None:
    harness = OperatorHarness[str, int](lambda: Ticking(period=100, ahead=50))

    harness.push("start")
    harness.advance_processing_time(49)
    before = harness.values
    harness.advance_processing_time(300)

    assert before == []
    assert harness.values == [50, 150, 250]
    assert harness.now == 300


def test_an_alarm_in_the_past_fires_at_once() -> None:
    harness = OperatorHarness[str, int](lambda: Ticking(period=100), start=5)

    harness.push("start")

    assert harness.values == [5]


def test_an_alarm_that_fires_for_ever_is_an_error() -> None:
    harness = OperatorHarness[str, int](lambda: Ticking(period=0))

    with pytest.raises(AssertionError, match="registers itself again must register a later time"):
        harness.push("start")


def test_a_restart_continues_from_a_snapshot_and_a_new_harness_from_a_stored_one() -> None:
    first = OperatorHarness.of(CountTo3(), key=first_letter)
    first.push("a")
    first.restart()
    first.push("a")
    snapshot = first.snapshot()
    assert snapshot is not None

    second = OperatorHarness.of(CountTo3(), key=first_letter, start=first.now)
    second.restore(snapshot)
    second.push("a")

    assert second.values == ["a=3"]


def test_a_restart_closes_the_old_operator_and_opens_another() -> None:
    events: list[str] = []

    class Telling(af.ProcessFunction[int, int]):
        def open(self) -> None:
            events.append("open")

        def close(self) -> None:
            events.append("close")

        def process(self, value: int, ctx: af.ProcessContext) -> None:
            events.append(str(value))

    with OperatorHarness.of(Telling()) as harness:
        harness.push(1)
        harness.restart()
        harness.push(2)
    harness.close()

    assert events == ["open", "1", "close", "open", "2", "close"]


def test_snapshots_of_two_subtasks_restore_into_three() -> None:
    keys = [chr(letter) for letter in range(ord("a"), ord("z") + 1)]

    def subtasks(count: int) -> list[OperatorHarness[str, int]]:
        return [
            OperatorHarness[str, int](
                lambda: KeyedAccumulateOperator(folding(int, lambda n, _: n + 1)),
                key=first_letter,
                subtask=index,
                parallelism=count,
                key_groups=12,
            )
            for index in range(count)
        ]

    def push_all(harnesses: list[OperatorHarness[str, int]]) -> None:
        for key in keys:
            harnesses[key_group(key, 12) * len(harnesses) // 12].push(key)

    two, three = subtasks(2), subtasks(3)
    push_all(two)
    snapshots = [snapshot for one in two if (snapshot := one.snapshot()) is not None]
    for one in three:
        one.restore(*snapshots)
    push_all(three)

    assert [count for one in three for count in one.values] == [2] * len(keys)


def test_a_key_of_another_subtask_is_refused() -> None:
    first, second = (
        OperatorHarness[str, int](
            lambda: KeyedAccumulateOperator(folding(int, lambda n, _: n + 1)),
            key=first_letter,
            subtask=index,
            parallelism=2,
        )
        for index in range(2)
    )
    owner, other = (first, second) if key_group("a") < 64 else (second, first)

    owner.push("a")
    with pytest.raises(af.FlowDefinitionError, match="key 'a' is never sent to subtask"):
        other.push("a")


def test_the_call_raises_errors_of_the_step() -> None:
    harness = OperatorHarness.of(CountTo3(), key=first_letter)

    class Failing(af.ProcessFunction[int, int]):
        def process(self, value: int, ctx: af.ProcessContext) -> list[int]:
            return [1 // value]

    failing = OperatorHarness.of(Failing())
    with pytest.raises(af.OperatorError, match="step 'step' failed on record 0") as caught:
        failing.push(0)

    assert caught.value.record == 0
    assert harness.values == []


def _emits_nothing(operator: Operator) -> None:
    operator.output.emit(Batch([]))


def _emits_a_smaller_watermark(operator: Operator) -> None:
    operator.output.watermark(2)
    operator.output.watermark(1)


def _loses_a_timestamp(operator: Operator) -> None:
    operator.output.emit(Batch([1, 2], [1]))


@pytest.mark.parametrize(
    ("act", "complaint"),
    [
        (_emits_nothing, "an empty batch"),
        (_emits_a_smaller_watermark, "watermark 1 after 2"),
        (_loses_a_timestamp, "2 values with 1 timestamps"),
    ],
    ids=["an empty batch", "a watermark that goes back", "a missing timestamp"],
)
def test_an_operator_that_breaks_its_contract_fails_the_test(
    act: Callable[[Operator], None], complaint: str
) -> None:
    harness = OperatorHarness[int, int](lambda: Emitting[int](act))

    with pytest.raises(AssertionError, match=complaint):
        harness.push(1)


def _push_no_value(harness: OperatorHarness[int, int]) -> None:
    harness.push_batch([])


def _push_unequal_columns(harness: OperatorHarness[int, int]) -> None:
    harness.push_batch([1, 2], [1])


def _push_without_time_zone(harness: OperatorHarness[int, int]) -> None:
    harness.push(1, datetime(2020, 1, 1))  # noqa: DTZ001


def _push_a_smaller_watermark(harness: OperatorHarness[int, int]) -> None:
    harness.watermark(5)
    harness.watermark(4)


def _set_the_clock_back(harness: OperatorHarness[int, int]) -> None:
    harness.advance_processing_time(-1)


def _restore_late(harness: OperatorHarness[int, int]) -> None:
    harness.push(1)
    harness.restore()


@pytest.mark.parametrize(
    ("misuse", "complaint"),
    [
        (_push_no_value, "at least one value"),
        (_push_unequal_columns, "2 values and 1 timestamps"),
        (_push_without_time_zone, "no time zone"),
        (_push_a_smaller_watermark, "4 is before 5"),
        (_set_the_clock_back, "cannot be set back to -1"),
        (_restore_late, "must be the first call"),
    ],
)
def test_input_that_no_runtime_would_send_is_refused(
    misuse: Callable[[OperatorHarness[int, int]], object], complaint: str
) -> None:
    harness = OperatorHarness[int, int](lambda: MapOperator(lambda n: n))

    with pytest.raises(af.FlowDefinitionError, match=complaint):
        misuse(harness)


@pytest.mark.parametrize("how", ["ended", "closed"])
def test_after_its_end_a_harness_does_nothing_more(how: str) -> None:
    harness = OperatorHarness[int, int](lambda: MapOperator(lambda n: n))
    if how == "ended":
        harness.end()
    else:
        harness.close()

    with pytest.raises(af.JobStopped, match=f"was {how}"):
        harness.push(1)


def test_a_keyed_process_without_key_is_refused() -> None:
    with pytest.raises(af.FlowDefinitionError, match="CountTo3 is a KeyedProcess and needs key="):
        OperatorHarness.of(CountTo3())  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]


@pytest.mark.parametrize("subtask", [-1, 2])
def test_a_subtask_that_is_not_there_is_refused(subtask: int) -> None:
    with pytest.raises(af.FlowDefinitionError, match=f"no subtask {subtask} of 2"):
        OperatorHarness[int, int](lambda: MapOperator(lambda n: n), subtask=subtask, parallelism=2)


def test_types_follow_from_the_process_function() -> None:
    keyed = OperatorHarness.of(CountTo3(), key=first_letter)
    plain = OperatorHarness.of(Shout())

    assert_type(keyed, OperatorHarness[str, str])
    assert_type(plain.values, list[str])
    assert_type(plain.side(Shout.quiet), list[At[str]])
