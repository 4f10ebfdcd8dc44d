"""A function of two keyed streams: both share the state and the timers of a key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aflow.errors import FlowDefinitionError, InternalError, OperatorError
from aflow.model.key_groups import key_group, subtask_of
from aflow.model.tags import Tag
from aflow.model.time import MAX_TIMESTAMP, MIN_TIMESTAMP, TimeDomain
from aflow.operators.base import StateSize
from aflow.operators.context import Context
from aflow.operators.keyed_function import CoProcess, CoProcessOperator, check_co_process
from aflow.operators.process import check_process_function
from aflow.state.broadcast import BroadcastState
from aflow.state.specs import ListState, ValueState
from aflow.testing import At, Mode, TwoInputHarness, Watermark

UNPAID: Tag[str] = Tag("unpaid")

Order = tuple[str, int]
"""Key and amount; so are payments."""


class Payments(CoProcess[str, Order, Order, str]):
    """Orders on the left, payments on the right; an order that is not paid after 10 ms is sent to a side output."""

    order = ValueState("order", of=int)
    paid = ListState("paid", of=int)

    def process_left(self, value: Order, ctx: Context[str]) -> Iterable[str] | None:
        assert ctx.timestamp is not None
        ctx.state(self.order).set(value[1])
        ctx.set_event_timer(ctx.timestamp + 10)
        return self._settled(ctx)

    def process_right(self, value: Order, ctx: Context[str]) -> Iterable[str] | None:
        ctx.state(self.paid).add(value[1])
        return self._settled(ctx)

    def on_timer(self, at: int, ctx: Context[str]) -> Iterable[str]:
        if ctx.state(self.order).get() is not None:
            ctx.side(UNPAID, ctx.key)
        self._forget(ctx)
        yield f"{ctx.key} closed"

    def _settled(self, ctx: Context[str]) -> Iterable[str] | None:
        order = ctx.state(self.order).get()
        if order is None or sum(ctx.state(self.paid)) < order:
            return None
        self._forget(ctx)
        return [f"{ctx.key} paid"]

    def _forget(self, ctx: Context[str]) -> None:
        ctx.state(self.order).clear()
        ctx.state(self.paid).clear()


def by_name(record: Order) -> str:
    return record[0]


Harness = TwoInputHarness[Order, Order, str]


def payments(mode: Mode = Mode.STRAIGHT, **place: Any) -> Harness:
    return TwoInputHarness(
        lambda: CoProcessOperator(Payments()),
        left_key=by_name,
        right_key=by_name,
        mode=mode,
        **place,
    )


@pytest.mark.parametrize("mode", Mode)
def test_both_inputs_read_and_write_the_state_of_one_key(mode: Mode) -> None:
    harness = payments(mode)

    harness.left(("a", 10), 1)
    harness.right(("a", 4), 2)
    harness.right(("b", 99), 3)
    harness.right(("a", 6), 4)
    harness.left(("b", 99), 5)

    assert harness.output == [At("a paid", 4), At("b paid", 5)]
    assert harness.size == StateSize(entries=0, event_timers=2)


@pytest.mark.parametrize("mode", Mode)
def test_event_timers_wait_for_the_slower_input(mode: Mode) -> None:
    harness = payments(mode)

    harness.left(("a", 10), 1)
    harness.left_watermark(50)
    early = harness.take()
    harness.right_watermark(10)
    harness.right_watermark(11)

    assert early == []
    assert harness.take() == [Watermark(10), At("a closed", 11), Watermark(11)]
    assert harness.side(UNPAID) == [At("a", 11)]
    assert harness.size == StateSize()


@pytest.mark.parametrize("mode", Mode)
def test_timers_of_either_input_are_those_of_the_key(mode: Mode) -> None:
    class Alarm(CoProcess[str, str, str, Any]):
        def process_left(self, value: str, ctx: Context[str]) -> None:
            ctx.set_event_timer(10)
            ctx.set_processing_timer(20)

        def process_right(self, value: str, ctx: Context[str]) -> None:
            ctx.set_event_timer(10)
            ctx.delete_processing_timer(20)

        def on_timer(self, at: int, ctx: Context[str]) -> Iterable[Any]:
            return [(ctx.key, ctx.timer_domain, at)]

    harness = TwoInputHarness.of(Alarm(), left_key=str, right_key=str, mode=mode)

    harness.left("a")
    harness.left("b")
    harness.right("a")
    harness.advance_processing_time(20)
    harness.watermark(10)

    first, *at_one_moment = harness.values
    assert first == ("b", TimeDomain.PROCESSING, 20)
    assert sorted(at_one_moment) == [("a", TimeDomain.EVENT, 10), ("b", TimeDomain.EVENT, 10)]


def test_the_context_has_the_common_watermark() -> None:
    class Tell(CoProcess[str, str, str, int]):
        def process_left(self, value: str, ctx: Context[str]) -> list[int]:
            return [ctx.watermark]

        process_right = process_left

    harness = TwoInputHarness.of(Tell(), left_key=str, right_key=str)

    harness.left("a")
    harness.left_watermark(10)
    harness.left("a")
    harness.right_watermark(5)
    harness.right("a")

    assert harness.values == [MIN_TIMESTAMP, MIN_TIMESTAMP, 5]


def test_state_and_timers_of_two_subtasks_are_restored_in_three() -> None:
    names = [f"name {number}" for number in range(40)]
    two = [payments(subtask=index, parallelism=2) for index in range(2)]
    for name in names:
        _of(name, two).left((name, 5), 1)
    snapshots = [snapshot for one in two if (snapshot := one.snapshot()) is not None]

    three = [payments(subtask=index, parallelism=3) for index in range(3)]
    for one in three:
        one.restore(*snapshots)
    for name in names[:20]:
        _of(name, three).right((name, 5), 2)
    for one in three:
        one.watermark(11)

    values = Counter(value for one in three for value in one.values)
    assert values == Counter([f"{n} paid" for n in names[:20]] + [f"{n} closed" for n in names])
    unpaid = [record.value for one in three for record in one.side(UNPAID)]
    assert sorted(unpaid) == sorted(names[20:])


def _of(name: str, harnesses: list[Harness]) -> Harness:
    return harnesses[subtask_of(key_group(name), 128, len(harnesses))]


def test_the_watermark_of_a_restored_step_does_not_decrease() -> None:
    old, new = payments(), payments()
    old.watermark(100)
    snapshot = old.snapshot()
    assert snapshot is not None

    new.restore(snapshot)
    new.watermark(60)
    new.watermark(110)

    assert new.output == [Watermark(110)]


@pytest.mark.parametrize("side", ["left", "right"])
def test_an_error_of_a_handler_names_step_key_record_and_timestamp(side: str) -> None:
    class Dividing(CoProcess[str, Order, Order, float]):
        def process_left(self, value: Order, ctx: Context[str]) -> list[float]:
            return [1 / value[1]]

        process_right = process_left

    harness = TwoInputHarness.of(Dividing(), left_key=by_name, right_key=by_name)
    push = harness.left_batch if side == "left" else harness.right_batch

    with pytest.raises(OperatorError) as e:
        push([("a", 1), ("b", 0), ("c", 2)], [10, 20, 30])

    assert (e.value.record, e.value.key, e.value.timestamp) == (("b", 0), "b", 20)
    assert isinstance(e.value.__cause__, ZeroDivisionError)


def test_an_input_without_keys_is_our_bug() -> None:
    harness = TwoInputHarness[Order, Order, str](lambda: CoProcessOperator(Payments()))

    with pytest.raises(InternalError, match="is keyed and got a batch without keys"):
        harness.right(("a", 1))


def test_each_subtask_has_a_copy_that_is_opened_and_closed_once() -> None:
    events: list[str] = []

    class Telling(Payments):
        def open(self) -> None:
            events.append("open")

        def close(self) -> None:
            events.append("close")

    with TwoInputHarness.of(Telling(), left_key=by_name, right_key=by_name):
        pass

    assert events == ["open", "close"]


class AsyncRight(Payments):
    async def process_right(self, value: Order, ctx: Context[str]) -> None:  # type: ignore[override]  # pyright: ignore[reportIncompatibleMethodOverride]
        return None


class TwoOfOneName(Payments):
    again = ValueState("order", of=int)


class Ruled(Payments):
    rules = BroadcastState("rules", key=str, of=int)


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        pytest.param(AsyncRight(), r"AsyncRight\.process_right is a coroutine", id="async"),
        pytest.param(TwoOfOneName(), "TwoOfOneName.again: another state", id="name taken"),
        pytest.param(
            Ruled(), "can only be declared in a BroadcastProcess; use MapState", id="broadcast"
        ),
        pytest.param(Payments, r"write Payments\(\)", id="class"),
        pytest.param(5, "a CoProcess is needed, not 5; subclass CoProcess", id="no function"),
    ],
)
def test_an_invalid_function_is_refused(function: object, reason: str) -> None:
    with pytest.raises(FlowDefinitionError, match=reason):
        check_co_process(function)


def test_a_message_names_the_call_that_takes_a_co_process() -> None:
    with pytest.raises(FlowDefinitionError, match=r"call \.connect\(other\) before \.process"):
        check_process_function(Payments())


# ---------------------------------------------------------------------------------- any order


class Totals(CoProcess[int, int, int, tuple[int, int, int]]):
    """Emits the totals of each key for both inputs at the end of time."""

    left = ValueState("left", of=int)
    right = ValueState("right", of=int)

    def process_left(self, value: int, ctx: Context[int]) -> None:
        self._add(ctx, self.left, value)

    def process_right(self, value: int, ctx: Context[int]) -> None:
        self._add(ctx, self.right, value)

    def _add(self, ctx: Context[int], spec: ValueState[int], value: int) -> None:
        ctx.state(spec).set(ctx.state(spec).get(0) + value)
        ctx.set_event_timer(MAX_TIMESTAMP)

    def on_timer(self, at: int, ctx: Context[int]) -> Iterable[tuple[int, int, int]]:
        yield ctx.key, ctx.state(self.left).get(0), ctx.state(self.right).get(0)


def _key(value: int) -> int:
    return value % 3


Act = tuple[bool, int, int]
"""A value of the left (or right) input, and the watermark of that input after it."""


@given(acts=st.lists(st.tuples(st.booleans(), st.integers(0, 50), st.integers(0, 5)), max_size=30))
@settings(max_examples=60, deadline=None)
@pytest.mark.parametrize("mode", Mode)
def test_in_any_order_of_the_inputs_the_end_has_the_batch_answer(
    mode: Mode, acts: list[Act]
) -> None:
    harness = TwoInputHarness.of(Totals(), left_key=_key, right_key=_key, mode=mode)
    reached = {True: 0, False: 0}

    for on_left, value, by in acts:
        push: Callable[[int], None] = harness.left if on_left else harness.right
        push(value)
        reached[on_left] += by
        (harness.left_watermark if on_left else harness.right_watermark)(reached[on_left])
    harness.end()

    keys = {_key(value) for _, value, _ in acts}
    assert sorted(harness.values) == [
        (
            key,
            sum(v for on_left, v, _ in acts if on_left and _key(v) == key),
            sum(v for on_left, v, _ in acts if not on_left and _key(v) == key),
        )
        for key in sorted(keys)
    ]
    marks = [one.timestamp for one in harness.output if isinstance(one, Watermark)]
    assert marks == sorted(set(marks))
