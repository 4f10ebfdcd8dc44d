"""The failure of a job, as the code in its ``async with`` block sees it."""

from __future__ import annotations

import pytest

import aflow as af
from aflow.testing import settle
from aflow.testing.virtual_time import virtual_time


def inverses(numbers: af.Source[int], results: af.Sink[float]) -> af.Flow:
    flow = af.Flow("inverses")
    flow.source(numbers, name="numbers").map(lambda n: 1 / n, name="invert").to(results, name="out")
    return flow


@virtual_time
async def test_a_refused_sender_gets_the_cause_of_the_failure() -> None:
    numbers = af.PushSource[int]()

    async def block() -> None:
        async with inverses(numbers, af.CollectSink()).start():
            await numbers.send(0)
            await settle()
            await numbers.send(1)

    with pytest.raises(af.OperatorError, match="'invert' failed on record 0"):
        await block()


@virtual_time
async def test_senders_that_wait_for_room_get_the_cause_of_the_failure() -> None:
    numbers = af.PushSource[int](capacity=1)

    async def block() -> None:
        async with inverses(numbers, af.CollectSink()).start():
            await numbers.send_many([1] * 10 + [0] + [1] * 100_000)

    with pytest.raises(af.OperatorError, match="'invert' failed on record 0"):
        await block()


@virtual_time
async def test_an_iteration_over_results_gets_the_cause_of_the_failure() -> None:
    results = af.ResultSink[float]()

    async def block() -> None:
        async with inverses(af.IterableSource([0]), results).start() as job:
            async for _ in job.results(results):
                pass

    with pytest.raises(af.OperatorError, match="'invert' failed on record 0"):
        await block()


@virtual_time
async def test_an_exception_of_the_block_itself_is_raised_as_it_is() -> None:
    numbers = af.PushSource[int]()

    async def block() -> None:
        async with inverses(numbers, af.CollectSink()).start():
            await numbers.send(0)
            await settle()
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await block()


@virtual_time
async def test_the_end_of_another_job_is_raised_as_it_is() -> None:
    numbers, others = af.PushSource[int](), af.PushSource[int]()
    others.close()

    async def block() -> None:
        async with inverses(numbers, af.CollectSink()).start():
            await others.send(1)

    with pytest.raises(af.JobStopped, match="is closed"):
        await block()


@virtual_time
async def test_a_failure_is_raised_once() -> None:
    numbers = af.PushSource[int]()

    async def block() -> None:
        async with inverses(numbers, af.CollectSink()).start() as job:
            await numbers.send(0)
            with pytest.raises(af.OperatorError):
                await job.wait()
            await numbers.send(1)

    with pytest.raises(af.JobStopped, match="has ended"):
        await block()
