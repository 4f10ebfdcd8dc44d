"""Results with and without an iteration."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

import aflow as af
from aflow.testing import VirtualClock
from aflow.testing.virtual_time import virtual_time


async def endless() -> AsyncIterator[int]:
    number = 0
    while True:
        yield number
        number += 1


@virtual_time
async def test_leaving_the_block_does_not_wait_for_results_without_a_consumer() -> None:
    flow, results = af.Flow("results"), af.ResultSink[int](capacity=2)
    flow.source(endless()).to(results)

    async with flow.start(options=af.Options(clock=VirtualClock())) as job:
        numbers = job.results(results)
        first = await anext(numbers)

    assert first == 0
    assert not job.running


@virtual_time
async def test_a_failure_ends_the_iteration_with_its_cause() -> None:
    flow, results = af.Flow("results"), af.ResultSink[float]()
    flow.source([1, 0]).map(lambda n: 1 / n, name="invert").to(results)

    async def iterate() -> None:
        async with flow.start(options=af.Options(clock=VirtualClock())) as job:
            async for _ in job.results(results):
                pass

    with pytest.raises(af.OperatorError, match="invert"):
        await iterate()


@virtual_time
async def test_results_arrive_while_the_job_runs() -> None:
    flow, results = af.Flow("results"), af.ResultSink[int]()
    flow.source(endless()).to(results)
    seen: list[int] = []

    async with flow.start(options=af.Options(clock=VirtualClock())) as job:
        async for number in job.results(results):
            seen.append(number)
            if len(seen) == 5:
                break

    assert seen == [0, 1, 2, 3, 4]
