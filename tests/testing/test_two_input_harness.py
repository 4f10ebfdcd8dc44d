"""The harness of steps with two inputs combines watermarks and status as a job does."""

from __future__ import annotations

import doctest
from collections.abc import Callable, Iterable
from typing import Any, assert_type

import pytest

from aflow.errors import FlowDefinitionError, JobStopped
from aflow.model.batch import Batch
from aflow.model.elements import ACTIVE, IDLE
from aflow.model.key_groups import key_group
from aflow.model.tags import Tag
from aflow.model.time import MAX_TIMESTAMP
from aflow.operators.base import StateSize, TwoInputOperator
from aflow.operators.broadcast_process import BroadcastContext, BroadcastProcess, ControlContext
from aflow.operators.context import Context
from aflow.operators.keyed_function import CoProcess
from aflow.state.broadcast import BroadcastState
from aflow.state.specs import ValueState
from aflow.testing import At, Mode, TwoInputHarness, Watermark, two_input_harness

REFUSED: Tag[str] = Tag("refused")

Harness = TwoInputHarness[str, int, str]


class Both(TwoInputOperator):
    """Emit records with the name of their input."""

    def process_left(self, batch: Batch[Any]) -> None:
        self._emit("left", batch)

    def process_right(self, batch: Batch[Any]) -> None:
        self._emit("right", batch)

    def end_input(self) -> None:
        self.output.emit(Batch(["end"]))

    def _emit(self, side: str, batch: Batch[Any]) -> None:
        self.output.emit(Batch([f"{side} {value}" for value in batch.values], batch.timestamps))


class Quote(CoProcess[str, str, int, str]):
    """Emit the last left word for each right number, and the key at 100."""

    last = ValueState("last", of=str)

    def process_left(self, value: str, ctx: Context[str]) -> None:
        ctx.state(self.last).set(value)
        ctx.set_event_timer(100)

    def process_right(self, value: int, ctx: Context[str]) -> Iterable[str]:
        word = ctx.state(self.last).get()
        if word is None:
            ctx.side(REFUSED, str(value))
            return []
        return [f"{word} {value}"]

    def on_timer(self, at: int, ctx: Context[str]) -> Iterable[str]:
        return [f"{ctx.key} at {at}"]


class Greet(BroadcastProcess[None, str, str, str]):
    """Emit each name with the greeting of the control stream."""

    greeting = BroadcastState("greeting", key=str, of=str)

    def process(self, value: str, ctx: BroadcastContext[None]) -> Iterable[str]:
        return [f"{ctx.state(self.greeting).get('now', 'no greeting,')} {value}"]

    def process_broadcast(self, value: str, ctx: ControlContext) -> None:
        ctx.state(self.greeting).put("now", value)


def word_key(value: str) -> str:
    return value[0]


def number_key(value: int) -> str:
    return "ab"[value % 2]


def quoting(mode: Mode = Mode.STRAIGHT) -> Harness:
    return TwoInputHarness.of(Quote(), left_key=word_key, right_key=number_key, mode=mode)


@pytest.fixture
def both() -> Harness:
    return TwoInputHarness(Both)


def test_the_records_of_each_input_are_processed_by_their_own_method(both: Harness) -> None:
    both.left("a", 1)
    both.right_batch([1, 2], [2, 3])
    both.left_batch(["b"])

    assert both.take() == [At("left a", 1), At("right 1", 2), At("right 2", 3), At("left b")]


def test_the_step_gets_the_smaller_watermark(both: Harness) -> None:
    both.left_watermark(10)
    both.right_watermark(5)
    both.right_watermark(7)
    both.right_watermark(20)
    both.watermark(30)

    assert both.output == [Watermark(5), Watermark(7), Watermark(10), Watermark(20), Watermark(30)]


def test_an_idle_input_is_not_waited_for_until_it_is_active_and_has_caught_up(
    both: Harness,
) -> None:
    both.watermark(10)
    both.left_idle()
    both.right_watermark(20)
    both.left_active()
    both.left_watermark(15)
    both.right_watermark(30)
    both.left_watermark(35)
    both.right_watermark(40)

    assert both.output == [Watermark(10), Watermark(20), Watermark(30), Watermark(35)]


def test_the_step_is_idle_when_both_inputs_are(both: Harness) -> None:
    both.right_idle()
    one = both.take()
    both.left_idle()
    two = both.take()
    both.right_active()

    assert (one, two, both.take()) == ([], [IDLE], [ACTIVE])
    both.idle()
    both.active()
    assert both.take() == [IDLE, ACTIVE]


def test_an_input_that_has_ended_no_longer_holds_time_back(both: Harness) -> None:
    both.left_end()
    both.right_watermark(20)
    both.right_end()

    assert both.output == [Watermark(20), Watermark(MAX_TIMESTAMP), At("end")]


def test_the_end_of_both_is_one_end(both: Harness) -> None:
    both.left_end()
    both.end()

    assert both.output == [Watermark(MAX_TIMESTAMP), At("end")]


def _right_goes_back(harness: Harness) -> None:
    harness.right_watermark(10)
    harness.right_watermark(9)


def _both_go_back_on_the_left(harness: Harness) -> None:
    harness.left_watermark(10)
    harness.watermark(9)


def _no_values(harness: Harness) -> None:
    harness.right_batch([])


@pytest.mark.parametrize(
    ("misuse", "complaint"),
    [
        (_right_goes_back, "9 is before 10 of the right input"),
        (_both_go_back_on_the_left, "9 is before 10 of the left input"),
        (_no_values, "at least one value"),
    ],
)
def test_input_that_no_runtime_would_send_is_refused(
    both: Harness, misuse: Callable[[Harness], None], complaint: str
) -> None:
    with pytest.raises(FlowDefinitionError, match=complaint):
        misuse(both)


def test_an_input_that_has_ended_takes_nothing_more(both: Harness) -> None:
    both.left_end()

    with pytest.raises(JobStopped, match="the left input of this harness has ended"):
        both.left("a")
    with pytest.raises(JobStopped, match="the left input of this harness has ended"):
        both.left_watermark(MAX_TIMESTAMP)
    both.right(1)
    assert both.values == ["right 1"]


def test_after_its_end_a_harness_does_nothing_more(both: Harness) -> None:
    both.end()

    for act in (both.left_idle, both.end, lambda: both.right(1), lambda: both.watermark(1)):
        with pytest.raises(JobStopped, match="this harness was ended"):
            act()


@pytest.mark.parametrize("mode", Mode)
def test_state_timers_sides_and_size_are_available_in_all_modes(mode: Mode) -> None:
    harness = quoting(mode)

    harness.right(2, 1)
    harness.left("apple", 2)
    harness.right(2, 3)
    size = harness.size
    harness.left_watermark(200)
    early = harness.values
    harness.right_watermark(100)

    assert harness.side(REFUSED) == [At("2", 1)]
    assert size == StateSize(entries=1, event_timers=1)
    assert early == ["apple 2"]
    assert harness.take() == [At("apple 2", 3), At("a at 100", 100), Watermark(100)]
    assert harness.size == StateSize(entries=1)


def test_a_new_harness_restores_a_snapshot() -> None:
    first, second = quoting(), quoting()
    first.left("apple")
    snapshot = first.snapshot()
    assert snapshot is not None

    second.restore(snapshot)
    second.right(2)

    assert second.values == ["apple 2"]


def test_keys_of_another_subtask_are_refused_on_both_inputs() -> None:
    harness = TwoInputHarness[str, int, str](
        Both,
        left_key=word_key,
        right_key=number_key,
        subtask=key_group("a"),
        parallelism=128,
    )

    harness.left("a")
    harness.right(2)
    with pytest.raises(FlowDefinitionError, match="key 'b' is never sent to subtask"):
        harness.left("b")
    with pytest.raises(FlowDefinitionError, match="key 'b' is never sent to subtask"):
        harness.right(1)


def test_a_broadcast_process_without_left_key_reads_a_stream_without_keys() -> None:
    harness = TwoInputHarness.of(Greet())

    harness.left("Ann")
    harness.right("hello")
    harness.left("Bob")

    assert harness.values == ["no greeting, Ann", "hello Bob"]
    assert_type(harness, TwoInputHarness[str, str, str])


def test_keys_that_are_missing_or_too_many_are_refused() -> None:
    with pytest.raises(FlowDefinitionError, match="Quote is a CoProcess and needs left_key="):
        TwoInputHarness.of(Quote(), left_key=word_key)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]
    with pytest.raises(FlowDefinitionError, match="Greet is a BroadcastProcess, whose control"):
        TwoInputHarness.of(Greet(), right_key=word_key)  # type: ignore[call-overload]  # pyright: ignore[reportCallIssue, reportArgumentType]


def test_the_example_of_the_class_is_true() -> None:
    assert doctest.testmod(two_input_harness).failed == 0
