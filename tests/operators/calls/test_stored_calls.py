"""The records of calls under way in snapshots: bytes, and any parallelism."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aflow.errors import CheckpointError, RestoreError
from aflow.machines.calls.settings import CallOrder
from aflow.model.batch import BATCH_RECORDS
from aflow.model.codecs import Pickled, codec_for
from aflow.model.key_groups import DEFAULT_KEY_GROUPS, key_group, subtask_of
from aflow.operators.calls.stored import CALLS
from aflow.state.snapshot import OperatorSnapshot
from aflow.testing import At
from tests.operators.calls.harness import CallHarness


@dataclass(frozen=True)
class Order:
    id: int
    customer: str


class Opaque:
    """Nothing that can be stored without being told how."""

    def __init__(self, number: int) -> None:
        self.number = number


def snapshot_of(step: CallHarness) -> OperatorSnapshot:
    snapshot = step.snapshot()
    assert snapshot is not None
    return snapshot


def restored(step: CallHarness, **settings: Any) -> CallHarness:
    again = CallHarness(**settings)
    again.restore(snapshot_of(step))
    return again


# ------------------------------------------------------------------------------------------------- bytes


def test_a_step_with_nothing_in_flight_stores_nothing() -> None:
    step = CallHarness()
    step.push("a")
    step.returns("a", 1)

    assert step.snapshot() == OperatorSnapshot()


def test_plain_values_and_dataclasses_are_stored_without_being_told() -> None:
    step = CallHarness()
    step.push(Order(1, "ada"), Order(2, "bob"), at=[5, 6])

    again = restored(step)
    for order in (Order(1, "ada"), Order(2, "bob")):
        again.returns(order, order.id)

    assert again.output == [At(1, 5), At(2, 6)]


def test_records_with_timestamps_and_without_keep_their_order() -> None:
    step = CallHarness()
    step.push("a", at=[1])
    step.push("b")
    step.push("c", at=[3])

    again = restored(step)

    assert again.asked == ["a", "b", "c"]
    assert [call.timestamp for call in again.under_way] == [1, None, 3]


def test_more_records_than_a_batch_holds_keep_their_order() -> None:
    step = CallHarness(capacity=2 * BATCH_RECORDS + 1)
    values = list(range(2 * BATCH_RECORDS + 1))
    step.push(*values)

    again = restored(step, capacity=len(values))

    assert len(snapshot_of(step).operator[CALLS]) == 3
    assert again.asked == values


def test_what_was_captured_does_not_change_when_results_leave_before_it_is_bytes() -> None:
    step = CallHarness()
    step.push("a", "b")
    captured = step.step.capture(changes=True)
    assert captured is not None
    step.returns("a", 1)
    again = CallHarness()

    again.restore(captured.encoded())

    assert again.asked == ["a", "b"]


def test_a_value_that_cannot_be_stored_fails_the_checkpoint_and_says_what_to_do() -> None:
    step = CallHarness()
    step.push(Opaque(1))

    with pytest.raises(
        CheckpointError,
        match=r"step 'step' cannot store the records .*Opaque.*of=…, .*codec=Pickled",
    ):
        step.snapshot()


def test_a_value_of_another_type_than_was_declared_fails_the_checkpoint() -> None:
    step = CallHarness(codec=codec_for(Order), typed=True)
    step.push("no order")

    with pytest.raises(CheckpointError, match=r"step 'step' cannot store the records .*Order"):
        step.snapshot()


def test_a_codec_stores_what_it_is_for() -> None:
    pickled: dict[str, Any] = {"codec": Pickled[Opaque](), "typed": True}
    step = CallHarness(**pickled)
    step.push(Opaque(1), Opaque(2))

    again = restored(step, **pickled)

    assert [value.number for value in again.asked] == [1, 2]


def test_bytes_that_cannot_be_read_fail_the_restore() -> None:
    step = CallHarness()

    with pytest.raises(RestoreError, match="step 'step' cannot read the records"):
        step.restore(OperatorSnapshot(operator={CALLS: (b"rubbish",)}))


TYPED: dict[str, Any] = {"codec": codec_for(Order), "typed": True}


@pytest.mark.parametrize(("before", "after", "how"), [({}, TYPED, "without"), (TYPED, {}, "with")])
def test_a_type_that_came_or_went_fails_the_restore(
    before: dict[str, Any], after: dict[str, Any], how: str
) -> None:
    step = CallHarness(**before)
    step.push(Order(1, "ada"))

    with pytest.raises(RestoreError, match=rf"were stored {how} a type \(of= or codec=\): restore"):
        restored(step, **after)


def test_records_without_keys_cannot_go_on_in_a_step_that_is_keyed() -> None:
    step = CallHarness()
    step.push("a")

    with pytest.raises(RestoreError, match=r"step 'step': .* belonged to no keys"):
        restored(step, order=CallOrder.BY_KEY, key=len)


def test_records_with_keys_go_on_in_a_step_that_is_not_keyed() -> None:
    step = CallHarness(order=CallOrder.BY_KEY, key=len)
    step.push("a", "b")

    assert restored(step).asked == ["a", "b"]


# ------------------------------------------------------------------------------------------- parallelism


def third(value: int) -> int:
    return value // 3


def subtasks(
    count: int, *snapshots: OperatorSnapshot, key: Callable[[int], Hashable] | None
) -> list[CallHarness]:
    order = CallOrder.ORDERED if key is None else CallOrder.BY_KEY
    steps = [
        CallHarness(subtask=subtask, parallelism=count, key=key, order=order, capacity=3)
        for subtask in range(count)
    ]
    if snapshots:
        for step in steps:
            step.restore(*snapshots)
    return steps


def push(steps: Sequence[CallHarness], values: Sequence[int], key: Any) -> None:
    for value in values:
        step = steps[value % len(steps)]
        if key is not None:
            group = key_group(key(value), DEFAULT_KEY_GROUPS)
            step = steps[subtask_of(group, DEFAULT_KEY_GROUPS, len(steps))]
        step.push(value)


def complete(steps: Sequence[CallHarness], choice: Callable[[int], bool]) -> None:
    """Have the calls return for which ``choice`` is true; others, that begin then, may stay."""
    for step in steps:
        for value in [value for value in step.asked if choice(value)]:
            step.returns(value, value)


def drain(steps: Sequence[CallHarness]) -> None:
    for _ in range(100):
        complete(steps, lambda _: True)
    assert not any(step.under_way for step in steps)


@settings(deadline=None)
@given(
    keyed=st.booleans(),
    counts=st.lists(st.sampled_from([1, 2, 3]), min_size=2, max_size=4).map(lambda more: [1, *more])
    | st.just([1, 3, 2]),
    completed=st.sets(st.integers(0, 59)),
    data=st.data(),
)
def test_another_parallelism_loses_nothing_doubles_nothing_and_keeps_keys_in_order(
    keyed: bool, counts: list[int], completed: set[int], data: st.DataObject
) -> None:
    key = third if keyed else None
    values = iter(range(60))
    came: list[int] = []
    left: list[int] = []
    snapshots: list[OperatorSnapshot] = []
    steps: list[CallHarness] = []
    for count in counts:
        steps = subtasks(count, *snapshots, key=key)
        new = [next(values) for _ in range(data.draw(st.integers(0, 12)))]
        came += new
        push(steps, new, key)
        complete(steps, completed.__contains__)
        snapshots = [snapshot_of(step) for step in steps]
        left += [value for step in steps for value in step.values]
    before = [len(step.values) for step in steps]

    drain(steps)
    left += [
        value for step, count in zip(steps, before, strict=True) for value in step.values[count:]
    ]

    assert sorted(left) == came
    if keyed:
        assert [by_key(left, key) for key in range(20)] == [by_key(came, key) for key in range(20)]


def by_key(values: Sequence[int], key: int) -> list[int]:
    return [value for value in values if third(value) == key]


@pytest.mark.parametrize("counts", [(1, 3), (3, 2), (3, 1), (2, 3)])
def test_records_without_keys_go_to_the_subtask_of_the_same_number_or_share_one(
    counts: tuple[int, int],
) -> None:
    before, after = counts
    steps = subtasks(before, key=None)
    push(steps, range(6), None)

    again = subtasks(after, *map(snapshot_of, steps), key=None)
    drain(again)

    shares = [step.values for step in steps]
    assert shares == [[]] * before
    assert [step.values for step in again] == [
        [value for old in range(number, before, after) for value in range(old, 6, before)]
        for number in range(after)
    ]
