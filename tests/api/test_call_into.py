"""Results of calls combined with their inputs: ``map_async(…, into=…)``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, assert_type

import pytest

import aflow as af


async def squared(number: int) -> int:
    if number < 0:
        raise ValueError("no root")
    return number * number


def ran(build: Callable[[af.Stream[int]], af.Stream[Any]], numbers: list[int]) -> list[Any]:
    flow, results = af.Flow("numbers"), af.CollectSink[Any]()
    build(flow.source(numbers)).to(results)
    asyncio.run(flow.run())
    return results.values


def test_a_value_is_emitted_with_its_result() -> None:
    def build(numbers: af.Stream[int]) -> af.Stream[str]:
        together = numbers.map_async(squared, into=lambda n, square: f"{n} → {square}")
        assert_type(together, af.Stream[str])
        return together

    assert ran(build, [1, 2, 3]) == ["1 → 1", "2 → 4", "3 → 9"]


def test_a_fallback_is_combined_with_its_value_too() -> None:
    def build(numbers: af.Stream[int]) -> af.Stream[tuple[int, int]]:
        return numbers.map_async(
            squared,
            into=lambda n, square: (n, square),
            on_error=af.calls.Fallback(lambda n, error: 0),
        )

    assert ran(build, [2, -1]) == [(2, 4), (-1, 0)]


def test_records_without_a_result_are_not_put_together() -> None:
    def build(numbers: af.Stream[int]) -> af.Stream[tuple[int, int]]:
        return numbers.map_async(
            squared, into=lambda n, square: (n, square), on_error=af.calls.Drop()
        )

    assert ran(build, [2, -1, 3]) == [(2, 4), (3, 9)]


def test_a_mistake_in_it_fails_the_job_and_names_the_record() -> None:
    def build(numbers: af.Stream[int]) -> af.Stream[float]:
        return numbers.map_async(
            squared,
            name="square",
            into=lambda n, square: square / (n - 2),
            on_error=af.calls.Drop(),
        )

    with pytest.raises(af.OperatorError, match=r"step 'square' failed on record 2: ZeroDivision"):
        ran(build, [1, 2, 3])


def test_an_object_that_is_not_callable_is_refused() -> None:
    numbers: Any = af.Flow("numbers").source([1])

    with pytest.raises(af.FlowDefinitionError, match=r"map_async\(into=…\) takes a function"):
        numbers.map_async(squared, into="together")
