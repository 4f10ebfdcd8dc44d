"""The order of records in sessions that keep them: that of arrival, in every order of merges."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aflow.machines.windows.assigners import DynamicSessionWindows, SessionWindows
from aflow.machines.windows.evictors import Evictor
from aflow.machines.windows.triggers import Count, EventTime
from aflow.model.codecs import PLAIN, CodecError
from aflow.model.key_groups import key_group
from aflow.model.time import MAX_TIMESTAMP
from aflow.model.windows import Windowed
from aflow.operators.base import Operator
from aflow.operators.joins.co_group import CoGroupOperator
from aflow.operators.windows.arrival_order import ArrivalOrder, ArrivalsCodec
from aflow.operators.windows.factory import window_operator
from aflow.operators.windows.function import WindowContext, WindowFunction
from aflow.operators.windows.logic import WindowLogic
from aflow.state.layouts import Many, state_codec
from aflow.testing import Mode, TwoInputHarness
from tests.operators.backends import BackendHarness as OperatorHarness
from tests.operators.windows.window_steps import Event, KeepsLast, logic, numbers

GAP = 5


class Whole(WindowFunction[str, list[Event], Any]):
    def process(self, value: list[Event], ctx: WindowContext[str]) -> list[Any]:
        return [Windowed(ctx.key, ctx.window, numbers(value), ctx.firing)]


def windows(**parts: Any) -> Callable[[], Operator]:
    made = logic(**{"assigner": SessionWindows(GAP), **parts})
    return lambda: window_operator(made)


class All(Evictor[Event]):
    """An evictor that keeps all records."""


STEPS: dict[str, Callable[[], Operator]] = {
    "apply": windows(apply=numbers),
    "apply, late": windows(apply=numbers, lateness=30),
    "apply, early": windows(apply=numbers, trigger=EventTime(early=Count(3))),
    "dynamic": windows(apply=numbers, assigner=DynamicSessionWindows(lambda _: GAP)),
    "process": windows(function=Whole()),
    "evictor": windows(apply=numbers, evictor=All()),
    "evictor that drops": windows(apply=numbers, evictor=KeepsLast(99, 99)),
}

TIMES = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 60)), min_size=1, max_size=25)


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("name", STEPS)
@given(records=TIMES)
@settings(max_examples=15, deadline=None)
def test_each_session_has_its_records_in_the_order_of_arrival(
    name: str, mode: Mode, records: list[tuple[str, int]]
) -> None:
    step = OperatorHarness[Event, Any](STEPS[name], key=lambda event: event[0], mode=mode)
    for number, (key, at) in enumerate(records):
        step.push((key, number), at)
    step.watermark(MAX_TIMESTAMP)

    last = {(one.key, one.window): one.value for one in step.values}
    assert all(value == sorted(value) for value in last.values())
    assert {number for value in last.values() for number in value} == set(range(len(records)))


@pytest.mark.parametrize("mode", Mode)
@pytest.mark.parametrize("evictor", [None, All()], ids=["all", "evictor"])
@given(records=TIMES)
@settings(max_examples=15, deadline=None)
def test_each_session_of_two_inputs_has_their_records_in_the_order_of_arrival(
    mode: Mode, evictor: Evictor[Any] | None, records: list[tuple[str, int]]
) -> None:
    made = WindowLogic(assigner=SessionWindows(GAP), trigger=EventTime(), evictor=evictor)
    step = TwoInputHarness[Event, Event, Any](
        lambda: CoGroupOperator(made, lambda lefts, rights: (numbers(lefts), numbers(rights))),
        left_key=lambda event: event[0],
        right_key=lambda event: event[0],
        mode=mode,
    )
    for number, (key, at) in enumerate(records):
        (step.left if number % 3 else step.right)((key, number), at)
    step.left_watermark(MAX_TIMESTAMP)
    step.right_watermark(MAX_TIMESTAMP)

    lists = [some for one in step.values for some in one.value]
    assert all(some == sorted(some) for some in lists)
    assert sorted(number for some in lists for number in some) == list(range(len(records)))


@pytest.mark.parametrize("name", STEPS)
def test_the_order_of_arrival_is_known_after_a_restore_from_several_subtasks(name: str) -> None:
    def step(subtask: int, parallelism: int) -> OperatorHarness[Event, Any]:
        return OperatorHarness(
            STEPS[name], key=lambda event: event[0], subtask=subtask, parallelism=parallelism
        )

    halves = [step(subtask, 2) for subtask in range(2)]
    owned = {half: key for half in halves for key in _keys_of(half)}
    for half, key in owned.items():
        for _ in range(1 if half is halves[0] else 40):
            half.push((key, 0), 100)
        half.push((key, 1), 90)
    snapshots = [half.snapshot() for half in halves]
    whole = step(0, 1)
    whole.restore(*[snapshot for snapshot in snapshots if snapshot is not None])

    for key in owned.values():
        whole.push((key, 2), 95)
    whole.watermark(MAX_TIMESTAMP)

    last = {one.key: one.value for one in whole.values}
    assert set(last) == set(owned.values())
    assert all(value == sorted(value) and value[-2:] == [1, 2] for value in last.values())


def _keys_of(half: OperatorHarness[Event, Any]) -> list[str]:
    """Return one key that the subtask owns."""
    context = half.operator.context
    return [next(key for key in map(str, range(99)) if key_group(key) in context.key_groups)]


@pytest.mark.parametrize(
    ("stored", "kind"),
    [("records", "str"), ([1, 2], "list"), ({"records": b""}, "dict")],
    ids=["no records", "without numbers", "without the list of numbers"],
)
def test_bytes_that_are_no_numbered_records_are_refused(stored: object, kind: str) -> None:
    codec = ArrivalsCodec(ArrivalOrder(), Many(state_codec(int)))

    with pytest.raises(CodecError, match=f"{kind} is not a list of numbered records"):
        codec.decode(PLAIN.encode(stored))
