"""Calls with very many results: what leaves is cut into batches as everywhere."""

from __future__ import annotations

import pytest

import aflow as af
from aflow.model.batch import BATCH_RECORDS


@pytest.mark.asyncio
@pytest.mark.parametrize("timed", [True, False])
async def test_many_results_of_a_call_leave_in_batches_of_the_usual_size(timed: bool) -> None:
    sizes: list[int] = []

    def counted(values: list[int]) -> list[int]:
        sizes.append(len(values))
        return values

    async def many(number: int) -> range:
        return range(5_000)

    flow, sink = af.Flow("many"), af.CollectSink[int]()
    numbers = flow.source([1, 2])
    stream = numbers.event_time(lambda number: number) if timed else numbers
    stream.flat_map_async(many).map_batch(counted).to(sink)
    await flow.run()

    assert sum(sizes) == 10_000
    assert max(sizes) <= BATCH_RECORDS
