"""A reduction keeps one value for each key and emits it after each record."""

from __future__ import annotations

import operator
from datetime import UTC, datetime

import pytest

from aflow.errors import InternalError, OperatorError
from aflow.model.batch import Batch
from aflow.model.key_groups import key_group
from aflow.operators.accumulation import reducing
from aflow.operators.keyed_accumulate import KeyedAccumulateOperator
from aflow.state.snapshot import OperatorSnapshot, merge
from tests.operators.driver import Drive, Driver, emitted_values, subtasks


def sums() -> KeyedAccumulateOperator:
    return KeyedAccumulateOperator(reducing(operator.add))


def test_the_first_record_of_a_key_is_taken_as_it_is(drive: Drive) -> None:
    step = drive(sums)

    step.push(1, 10, 2, at=[100, 101, 102], keys=["a", "b", "a"])
    step.push(3, at=[103], keys=["a"])

    assert step.batches() == [Batch([1, 10, 3], [100, 101, 102]), Batch([6], [103])]


def test_the_reduced_value_is_the_first_argument_and_the_record_the_second(drive: Drive) -> None:
    step = drive(
        lambda: KeyedAccumulateOperator(reducing(lambda so_far, value: f"{so_far}({value})"))
    )

    step.push("a", "b", "c", keys=[1, 1, 1])

    assert step.new_values() == ["a", "a(b)", "a(b)(c)"]


def test_falsy_values_are_values(drive: Drive) -> None:
    step = drive(lambda: KeyedAccumulateOperator(reducing(min)))

    step.push(3, 0, 5, keys=["a"] * 3)

    assert step.new_values() == [3, 0, 0]


def test_values_without_a_declared_type_are_restored_exactly(drive: Drive) -> None:
    step = drive(lambda: KeyedAccumulateOperator(reducing(max)))
    early, late = datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 2, tzinfo=UTC)

    step.push((early, "x"), keys=["a"]).push((late, "y"), keys=["a"])

    assert step.new_values() == [(early, "x"), (late, "y")]


def test_an_error_of_the_function_names_step_key_record_and_timestamp() -> None:
    step = Driver(sums)

    with pytest.raises(OperatorError) as e:
        step.push(1, "x", at=[10, 20], keys=["a", "a"])

    assert (e.value.record, e.value.key, e.value.timestamp) == ("x", "a", 20)
    assert isinstance(e.value.__cause__, TypeError)


@pytest.mark.parametrize("parallelism", [1, 2, 5])
def test_values_of_three_subtasks_are_restored_in_any_number(parallelism: int) -> None:
    keys = [f"key {number}" for number in range(50)]
    three = subtasks(sums, 3)
    for number, key in enumerate(keys):
        three[key_group(key) * 3 // 128].push(number, keys=[key])

    new = subtasks(sums, parallelism, merge(old.snapshot() for old in three))
    for key in keys:
        new[key_group(key) * parallelism // 128].push(1000, keys=[key])

    assert sorted(emitted_values(new)) == [1000 + number for number in range(50)]


def test_a_restored_subtask_holds_the_keys_of_its_own_key_groups_only() -> None:
    keys = [f"key {number}" for number in range(50)]
    everything = Driver(sums).push(*range(50), keys=keys).snapshot()

    halves = subtasks(sums, 2, everything)

    snapshots: list[OperatorSnapshot] = [half.snapshot() for half in halves]
    assert max(snapshots[0].keyed) < 64 <= min(snapshots[1].keyed)
    assert merge(snapshots) == everything


def test_a_batch_without_keys_is_our_mistake() -> None:
    with pytest.raises(InternalError, match="'step' is keyed and got a batch without keys"):
        Driver(sums).push(1)
