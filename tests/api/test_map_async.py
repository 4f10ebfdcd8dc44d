"""Steps that call: what may be called."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial

import pytest

import aflow as af
from aflow.testing import CollectSink, run_flow


async def times(factor: int, number: int) -> int:
    return factor * number


class Doubling:
    """Callable objects, and methods, are functions too."""

    async def __call__(self, number: int) -> int:
        return 2 * number

    async def method(self, number: int) -> int:
        return 2 * number


FUNCTIONS: dict[str, Callable[[int], Awaitable[int]]] = {
    "partial": partial(times, 2),
    "object": Doubling(),
    "method": Doubling().method,
    "lambda": lambda number: times(2, number),
}


@pytest.mark.parametrize("fn", FUNCTIONS.values(), ids=FUNCTIONS)
def test_a_function_that_returns_an_awaitable_can_be_called(
    fn: Callable[[int], Awaitable[int]],
) -> None:
    flow, sink = af.Flow("numbers"), CollectSink[int]()
    flow.source(range(4)).map_async(fn).to(sink)

    run_flow(flow)

    assert sink.values == [0, 2, 4, 6]


def test_the_results_of_a_record_have_its_timestamp() -> None:
    async def twice(number: int) -> list[int]:
        return [number, number]

    flow, sink = af.Flow("numbers"), CollectSink[int]()
    flow.source(range(3)).event_time(lambda number: number * 10).flat_map_async(twice).to(sink)

    run_flow(flow)

    assert sink.values == [0, 0, 1, 1, 2, 2]
    assert sink.timestamps == [0, 0, 10, 10, 20, 20]
