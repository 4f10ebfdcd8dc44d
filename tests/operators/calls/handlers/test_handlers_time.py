"""Handlers, watermarks and timers: who runs in front of whom."""

from __future__ import annotations

from typing import Any

import pytest

from aflow.errors import OperatorError
from aflow.machines.calls.on_error import DeadLetter, Drop, FailedCall, Fallback, OnError
from aflow.model.time import MAX_TIMESTAMP, MIN_TIMESTAMP, TimeDomain
from aflow.operators.calls.async_process import (
    AsyncContext,
    AsyncKeyedProcess,
    FiredTimer,
)
from aflow.state.specs import ValueState
from tests.operators.calls.handlers.processes import (
    FAILED,
    Adding,
    Doing,
    Ringing,
    Start,
    do,
    total,
)


def test_a_key_is_held_until_the_results_of_its_handler_have_left(start: Start) -> None:
    step = start(Adding()).push(1, keys=["a"]).watermark(5).push(2, 4, keys=["b", "b"])

    step.resume("b").resume("b")

    assert step.keys == ["a"]
    assert (total(step, "b"), step.new_values()) == (None, [])
    step.finish()
    assert step.new_items() == [("a1", None), 5, ("b2", None), ("b6", None)]


def test_a_watermark_comes_behind_the_timers_that_are_due_at_it(start: Start) -> None:
    step = start(Ringing()).push([7, 3, 9], [5], keys=["a", "b"]).finish()
    step.new_items()

    step.watermark(8)
    assert (sorted(map(str, step.keys)), step.new_items()) == (["a", "b"], [])
    step.finish()

    items = step.new_items()
    assert [item for item in items if item != 8 and item[0][0] == "a"] == [
        (("a", 3, 8), 3),
        (("a", 7, 8), 7),
    ]
    assert items[-1] == 8


def test_a_timer_that_a_handler_sets_while_the_watermark_waits_rings_in_front_of_it(
    start: Start,
) -> None:
    step = start(Ringing()).push([3], keys=["a"]).watermark(8).push([20], keys=["a"])

    step.finish()

    assert step.new_items() == [
        (("a", [3], MIN_TIMESTAMP), None),
        (("a", 3, 8), 3),
        8,
        (("a", [20], 8), None),
    ]


def test_a_timer_that_a_timer_sets_rings_too(start: Start) -> None:
    step = start(Ringing()).push([5], keys=["a"]).finish()
    step.new_items()

    step.watermark(8).finish()

    assert step.new_items() == [(("a", 5, 8), 5), (("a", 4, 8), 4), 8]


def test_a_timer_that_sets_itself_again_rings_again(start: Start) -> None:
    class Twice(AsyncKeyedProcess[str, int, Any]):
        rung = ValueState("rung", of=int)

        async def process(self, value: int, ctx: AsyncContext[str]) -> None:
            ctx.set_event_timer(value)

        async def on_timer(self, at: int, ctx: AsyncContext[str]) -> list[Any]:
            rung = ctx.state(self.rung).get(0) + 1
            ctx.state(self.rung).set(rung)
            if rung < 2:
                ctx.set_event_timer(at)
            return [(at, rung)]

    step = start(Twice()).push(3, keys=["a"]).watermark(8)

    assert step.new_items() == [((3, 1), 3), ((3, 2), 3), 8]


def test_a_timer_that_an_earlier_handler_deletes_does_not_ring(start: Start) -> None:
    step = start(Ringing()).push([3, 4], keys=["a"]).push([-3], keys=["a"]).watermark(8)

    step.finish()

    assert (("a", 4, 8), 4) in (items := step.new_items())
    assert (("a", 3, 8), 3) not in items
    assert step.step.size().event_timers == 0


def test_records_of_other_keys_run_while_a_watermark_waits(start: Start) -> None:
    step = start(Ringing()).push([3], keys=["a"]).watermark(8).watermark(9)

    step.push([30], keys=["b"])

    assert step.keys == ["a", "b"]


def test_a_timer_set_for_a_moment_that_has_passed_rings_with_the_next_watermark(
    start: Start,
) -> None:
    step = start(Ringing()).watermark(8).push([3], keys=["a"]).finish()
    assert step.new_items() == [8, (("a", [3], 8), None)]

    step.watermark(9).finish()

    assert step.new_items() == [(("a", 3, 9), 3), 9]


def test_a_watermark_with_nothing_in_front_of_it_goes_on_at_once(start: Start) -> None:
    step = start(Ringing()).push([30], keys=["a"]).finish()
    step.new_items()

    step.watermark(8)

    assert step.new_items() == [8]
    assert not step.step.busy


def test_a_watermark_that_is_not_news_is_not_sent_on(start: Start) -> None:
    assert start(Ringing()).watermark(8).watermark(8).watermark(7).new_items() == [8]


def test_an_end_of_time_rings_all_timers(start: Start) -> None:
    step = start(Ringing()).push([30, 20], keys=["a"]).finish()
    step.new_items()

    step.watermark(MAX_TIMESTAMP).finish()

    assert [item for item in step.new_items() if item != MAX_TIMESTAMP] == [
        (("a", 20, MAX_TIMESTAMP), 20),
        (("a", 30, MAX_TIMESTAMP), 30),
    ]


def test_idleness_keeps_its_place_among_records(start: Start) -> None:
    step = start(Adding()).push(1, keys=["a"])

    step.idle()
    step.active()
    assert step.batches() == []
    step.finish()

    assert [type(one).__name__ for one in step.batches()] == ["Batch", "Idle", "Active"]


def test_processing_timers_ring_by_the_clock(start: Start) -> None:
    step = start(Doing()).push(do(lambda ctx: ctx.set_processing_timer(50)), keys=["a"], at=[4])
    step.finish().new_items()

    step.clock(49)
    assert step.keys == []
    step.clock(50).finish()

    assert step.new_items() == [((TimeDomain.PROCESSING, 50, None), None)]
    assert step.step.size().processing_timers == 0


def test_a_processing_timer_that_is_deleted_while_it_waits_for_its_turn_does_not_ring(
    start: Start,
) -> None:
    step = start(Doing()).push(do(lambda ctx: ctx.set_processing_timer(50)), keys=["a"]).finish()
    step.push(do(lambda ctx: ctx.delete_processing_timer(50)), keys=["a"]).clock(50).new_values()

    step.finish()

    assert (step.new_values(), step.step.busy) == ([None], False)


def test_processing_timers_do_not_ring_after_the_end_of_the_input(start: Start) -> None:
    step = start(Doing(), timeout=1000)
    step.push(do(lambda ctx: ctx.set_processing_timer(50)), keys=["a"]).finish()
    step.push(do(lambda ctx: None), keys=["b"])

    step.end_input()
    step.clock(60)

    assert step.keys == ["b"]


def test_a_failed_timer_is_named(start: Start) -> None:
    step = start(Doing()).push(do(lambda ctx: ctx.set_event_timer(13)), keys=["a"]).finish()

    with pytest.raises(
        OperatorError, match=r"in the event time timer at 13 \(.*\) of key 'a'"
    ) as error:
        step.watermark(20)
    assert (error.value.key, error.value.timestamp) == ("a", 13)
    assert isinstance(error.value.__cause__, ValueError)


@pytest.mark.parametrize(
    ("policy", "values", "letters"),
    [
        pytest.param(Drop(), [], [], id="drop"),
        pytest.param(
            DeadLetter(FAILED),
            [],
            [FailedCall(FiredTimer("a", 13, TimeDomain.EVENT), "ValueError", "unlucky", 1)],
            id="dead letter",
        ),
        pytest.param(
            Fallback[Any](lambda value, error: [value]),
            [FiredTimer("a", 13, TimeDomain.EVENT)],
            [],
            id="fallback",
        ),
    ],
)
def test_a_timer_that_has_failed_for_good_is_gone(
    start: Start, policy: OnError[Any], values: list[Any], letters: list[Any]
) -> None:
    step = start(Doing(), on_error=policy)
    step.push(do(lambda ctx: ctx.set_event_timer(13)), keys=["a"]).finish().new_values()

    step.watermark(20)

    assert (step.new_values(), step.side_values("failed")) == (values, letters)
    assert step.step.size().event_timers == 0


def test_a_process_that_sets_timers_needs_a_handler_for_them(start: Start) -> None:
    class Deaf(AsyncKeyedProcess[str, int, str]):
        async def process(self, value: int, ctx: AsyncContext[str]) -> None:
            ctx.set_event_timer(1)

    step = start(Deaf()).push(1, keys=["a"])

    with pytest.raises(OperatorError, match="Deaf sets timers and needs an on_timer method"):
        step.watermark(1)
