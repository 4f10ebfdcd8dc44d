"""A fold keeps an accumulator for each key and emits it after each record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from aflow.errors import CheckpointError, InternalError, OperatorError
from aflow.model.batch import Batch
from aflow.model.elements import Watermark
from aflow.model.key_groups import key_group
from aflow.operators.accumulation import folding
from aflow.operators.keyed_accumulate import KeyedAccumulateOperator
from aflow.state.snapshot import merge
from tests.operators.driver import Drive, Driver, emitted_values, subtasks


@dataclass(frozen=True)
class Total:
    amount: int = 0
    records: int = 0


def add(total: Total, amount: int) -> Total:
    return Total(total.amount + amount, total.records + 1)


def totals() -> KeyedAccumulateOperator:
    return KeyedAccumulateOperator(folding(Total, add), Total)


def test_each_record_gives_its_key_s_accumulator_with_its_timestamp(drive: Drive) -> None:
    step = drive(totals)

    step.push(1, 10, 2, at=[100, 101, 102], keys=["a", "b", "a"])
    step.push(3, at=[103], keys=["a"])

    assert step.batches() == [
        Batch([Total(1, 1), Total(10, 1), Total(3, 2)], [100, 101, 102]),
        Batch([Total(6, 3)], [103]),
    ]


def test_results_without_event_time_have_no_timestamps(drive: Drive) -> None:
    step = drive(totals)

    step.push(1, keys=["a"])

    assert step.batches() == [Batch([Total(1, 1)])]


def test_watermarks_are_forwarded(drive: Drive) -> None:
    step = drive(totals)

    step.watermark(10)

    assert step.batches() == [Watermark(10)]


def test_an_accumulator_may_be_none(drive: Drive) -> None:
    seen: list[object] = []

    def second_is_none(acc: int | None, value: int) -> int | None:
        seen.append(acc)
        return None if value == 2 else value

    step = drive(lambda: KeyedAccumulateOperator(folding(lambda: 0, second_is_none)))

    step.push(1, 2, 3, keys=["a", "a", "a"])

    assert seen == [0, 1, None]


def test_each_key_gets_an_initial_accumulator_of_its_own(drive: Drive) -> None:
    def append(acc: list[int], value: int) -> list[int]:
        return [*acc, value]

    step = drive(lambda: KeyedAccumulateOperator(folding(list[int], append), list[int]))

    step.push(1, 2, 3, keys=["a", "b", "a"])

    assert step.new_values() == [[1], [2], [1, 3]]


def test_an_error_of_the_function_names_step_key_record_and_timestamp() -> None:
    step = Driver(
        lambda: KeyedAccumulateOperator(folding(lambda: 1, lambda acc, value: acc / value))
    )

    with pytest.raises(OperatorError) as e:
        step.push(1, 0, 2, at=[10, 20, 30], keys=["a", "b", "c"])

    assert (e.value.record, e.value.key, e.value.timestamp) == (0, "b", 20)


def test_an_error_of_initial_names_the_step_too() -> None:
    def broken() -> Any:
        raise LookupError("no rate")

    step = Driver(lambda: KeyedAccumulateOperator(folding(broken, lambda acc, value: acc)))

    with pytest.raises(OperatorError, match="record 1, key 'a': LookupError: no rate"):
        step.push(1, keys=["a"])


def test_an_accumulator_with_the_type_of_the_annotated_initial_function_needs_no_declaration() -> (
    None
):
    old = Driver(lambda: KeyedAccumulateOperator(folding(Total, add))).push(1, keys=["a"])
    new = Driver(lambda: KeyedAccumulateOperator(folding(Total, add))).restored(old.snapshot())

    assert new.push(2, keys=["a"]).new_values() == [Total(3, 2)]


def test_an_accumulator_that_cannot_be_stored_is_named_with_the_remedy() -> None:
    untold = folding(lambda: Total(), lambda total, value: add(total, value))
    step = Driver(lambda: KeyedAccumulateOperator(untold)).push(1, keys=["a"])

    with pytest.raises(CheckpointError, match=r"'accumulator' of step 'step' .*declare of=Total"):
        step.snapshot()


def test_keys_of_a_declared_type_are_restored() -> None:
    def make() -> KeyedAccumulateOperator:
        return KeyedAccumulateOperator(folding(Total, add), Total, Total)

    old = Driver(make).push(1, keys=[Total(7)])
    new = Driver(make).restored(old.snapshot())

    assert new.push(2, keys=[Total(7)]).new_values() == [Total(3, 2)]


@pytest.mark.parametrize("parallelism", [1, 2, 5])
def test_accumulators_of_three_subtasks_are_restored_in_any_number(parallelism: int) -> None:
    keys = [f"key {number}" for number in range(50)]
    three = subtasks(totals, 3)
    for number, key in enumerate(keys):
        three[key_group(key) * 3 // 128].push(number, keys=[key])

    new = subtasks(totals, parallelism, merge(old.snapshot() for old in three))
    for key in keys:
        new[key_group(key) * parallelism // 128].push(0, keys=[key])

    expected = {Total(number, 2) for number in range(50)}
    assert set(emitted_values(new)) == expected


def test_a_batch_without_keys_is_our_mistake() -> None:
    with pytest.raises(InternalError, match="'step' is keyed and got a batch without keys"):
        Driver(totals).push(1)
