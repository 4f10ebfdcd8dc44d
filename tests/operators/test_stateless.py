"""map, filter, flat_map, map_batch and key_by: values, timestamps, and errors of functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from aflow.errors import OperatorError
from aflow.operators.base import Operator
from aflow.operators.stateless import (
    FilterOperator,
    FlatMapOperator,
    KeyByOperator,
    MapBatchOperator,
    MapOperator,
)
from aflow.testing import At, OperatorHarness


def harness(operator: Callable[[], Operator]) -> OperatorHarness[int, Any]:
    return OperatorHarness(operator)


def twice(number: int) -> list[int]:
    return [number] * (number % 3)


timed = pytest.mark.parametrize("times", [None, [10, 20, 30, 40]], ids=["without time", "timed"])

CASES: dict[str, tuple[Callable[[], Operator], list[int], list[int]]] = {
    "map": (lambda: MapOperator(lambda n: -n), [-1, -2, -3, -4], [10, 20, 30, 40]),
    "filter": (lambda: FilterOperator(lambda n: n % 2), [1, 3], [10, 30]),
    "flat_map": (lambda: FlatMapOperator(twice), [1, 2, 2, 4], [10, 20, 20, 40]),
    "map_batch": (
        lambda: MapBatchOperator(lambda ns: [n * 2 for n in ns]),
        [2, 4, 6, 8],
        [10, 20, 30, 40],
    ),
}


@timed
@pytest.mark.parametrize("case", CASES)
def test_results_keep_the_timestamps_of_their_records(case: str, times: list[int] | None) -> None:
    operator, values, stamps = CASES[case]
    step = harness(operator)

    step.push_batch([1, 2, 3, 4], times)

    expected = stamps if times else [None] * len(values)
    assert step.output == [At(v, at) for v, at in zip(values, expected, strict=True)]


def test_a_filter_that_keeps_nothing_sends_nothing() -> None:
    step = harness(lambda: FilterOperator(lambda _: False))

    step.push(1)

    assert step.output == []


def broken(number: int) -> int:
    return 10 // (number - 2)


def broken_while_iterated(number: int) -> Iterator[int]:
    yield number
    yield broken(number)


@timed
@pytest.mark.parametrize(
    "operator",
    [
        lambda: MapOperator(broken),
        lambda: FilterOperator(broken),
        lambda: FlatMapOperator(broken_while_iterated),
        lambda: KeyByOperator(broken),
    ],
    ids=["map", "filter", "flat_map", "key_by"],
)
def test_the_record_on_which_a_function_failed_is_named(
    operator: Callable[[], Operator], times: list[int] | None
) -> None:
    step = harness(operator)

    with pytest.raises(OperatorError, match="ZeroDivisionError") as info:
        step.push_batch([1, 2, 3, 4], times)

    assert (info.value.operator, info.value.record) == ("step", 2)
    assert info.value.timestamp == (20 if times else None)


def test_map_batch_must_return_a_result_for_each_value() -> None:
    step = harness(lambda: MapBatchOperator(lambda ns: ns[:1]))

    with pytest.raises(OperatorError, match="got 2 values and returned 1"):
        step.push_batch([1, 2])


def test_map_batch_may_change_the_list_it_is_given() -> None:
    def grab(numbers: list[int]) -> Iterable[int]:
        numbers.reverse()
        return numbers

    given = [1, 2]
    step = harness(lambda: MapBatchOperator(grab))  # type: ignore[arg-type]

    step.push_batch(given)

    assert (step.values, given) == ([2, 1], [1, 2])
