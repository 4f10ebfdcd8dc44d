"""Records of one batch that meet different watermarks, in steps with timers."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

import aflow as af
from aflow.errors import OperatorError
from aflow.machines.calls.on_error import OnError
from aflow.model.batch import Batch
from aflow.model.elements import Watermark
from aflow.operators.keyed_function import KeyedProcessOperator
from aflow.testing import OperatorHarness

SEEN = af.Tag[str]("seen")


class Counted(af.KeyedProcess[str, int, str]):
    """A negative value sets a timer at its amount; each record and timer tells how many records there were."""

    count = af.ValueState("count", of=int)

    def process(self, value: int, ctx: af.Context[str]) -> Iterable[str]:
        if value == 13:
            raise ValueError("unlucky record")
        cell = ctx.state(self.count)
        cell.set(cell.get(0) + 1)
        if value < 0:
            ctx.set_event_timer(-value)
        ctx.side(SEEN, f"{value} at {ctx.watermark}")
        return [f"{ctx.key}{cell.get()} at {ctx.watermark}"]

    def on_timer(self, at: int, ctx: af.Context[str]) -> Iterable[str]:
        if at == 66:
            raise ValueError("unlucky timer")
        return [f"{ctx.key} timer {at} after {ctx.state(self.count).get()}"]


def step(on_error: OnError[int] | None = None) -> OperatorHarness[int, str]:
    policy = af.calls.Fail() if on_error is None else on_error
    return OperatorHarness(
        lambda: KeyedProcessOperator(Counted()).with_policy(policy), key=lambda _: "a"
    )


def handle(
    harness: OperatorHarness[int, str], values: list[int], met: list[int]
) -> list[str | Watermark]:
    times = [100] * len(values)
    harness.operator.process(Batch(values, times, ["a"] * len(values), met))
    return [
        one if isinstance(one, Watermark) else getattr(one, "value", "") for one in harness.output
    ]


def test_a_timer_fires_before_the_first_record_that_meets_its_time() -> None:
    output = handle(step(), [-50, 1, 2, 3], [10, 49, 52, 60])

    assert output == [
        *("a1 at 10", "a2 at 49"),
        "a timer 50 after 2",
        Watermark(52),
        *("a3 at 52", "a4 at 60"),
    ]


def test_a_timer_for_the_past_fires_when_the_watermark_next_advances() -> None:
    harness = step()

    output = handle(harness, [1, -5, 2, 3], [10, 20, 20, 21])
    harness.watermark(21)

    assert output[2:] == ["a3 at 20", Watermark(20), "a timer 5 after 3", Watermark(21), "a4 at 21"]
    assert harness.output[len(output) :] == []


def test_a_timer_that_the_last_record_sets_for_the_past_waits_for_a_greater_watermark() -> None:
    harness = step()
    handle(harness, [1, -5], [10, 20])

    harness.watermark(20)
    at_once = list(harness.output)
    harness.watermark(21)

    assert at_once[2:] == [Watermark(20)]
    assert [getattr(one, "value", one) for one in harness.output[3:]] == [
        "a timer 5 after 2",
        Watermark(21),
    ]


def test_side_outputs_carry_the_watermarks_of_their_records() -> None:
    harness = step()

    handle(harness, [-50, 1, 2], [10, 49, 52])

    assert [one.value for one in harness.side(SEEN)] == ["-50 at 10", "1 at 49", "2 at 52"]


def test_the_error_of_a_timer_names_the_timer_and_not_the_next_record() -> None:
    with pytest.raises(OperatorError, match="timer at 66") as error:
        handle(step(af.calls.Drop()), [-66, 1], [10, 70])

    assert error.value.timestamp == 66


def test_a_dropped_record_leaves_the_others_at_their_watermarks() -> None:
    output = handle(step(af.calls.Drop()), [-50, 13, 1, 13, 2], [10, 20, 52, 60, 61])

    assert output == [
        "a1 at 10",
        "a timer 50 after 1",
        Watermark(52),
        *("a2 at 52", "a3 at 61"),
    ]


def test_the_job_fails_after_the_results_of_the_records_before_the_failed_one() -> None:
    harness = step()

    with pytest.raises(OperatorError, match="unlucky record"):
        handle(harness, [-50, 1, 13], [10, 52, 53])

    assert [getattr(one, "value", one) for one in harness.output][-2:] == [
        Watermark(52),
        "a2 at 52",
    ]


class Reads(af.KeyedProcess[str, int, int]):
    """Emit the watermark that the record meets, unless its value is 0."""

    def process(self, value: int, ctx: af.Context[str]) -> Iterable[int]:
        return [ctx.watermark] if value else []


def test_the_watermark_is_that_of_the_record_at_any_time_and_not_below_the_one_before() -> None:
    harness = OperatorHarness[int, int](lambda: KeyedProcessOperator(Reads()), key=lambda _: "a")
    harness.watermark(15)

    harness.operator.process(Batch([1, 0, 1, 1], [100] * 4, ["a"] * 4, [10, 12, 15, 30]))
    harness.operator.process(Batch([1], [100], ["a"]))

    values = [getattr(one, "value", one) for one in harness.output]
    assert values == [Watermark(15), 15, 15, 30, 30]
