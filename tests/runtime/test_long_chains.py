"""Flows with more steps in a row than the stack of Python has room for."""

from __future__ import annotations

import pytest

import aflow as af

pytestmark = pytest.mark.asyncio


@pytest.mark.parametrize("parallelism", [1, 2])
async def test_five_hundred_steps_in_a_row_run_in_order(parallelism: int) -> None:
    flow, results = af.Flow("long"), af.CollectSink[int]()
    stream: af.Stream[int] = flow.source(range(20))
    for _ in range(500):
        stream = stream.flat_map(lambda number: (number + 1,))
    stream.to(results)

    await flow.run(parallelism=parallelism)

    assert results.values == list(range(500, 520))
