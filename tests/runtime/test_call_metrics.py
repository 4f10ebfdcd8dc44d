"""Metrics of the calls of asynchronous steps."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

import aflow as af


async def half(number: int) -> float:
    if number % 2:
        raise ValueError("odd")
    return number / 2


def called(numbers: af.Stream[int]) -> af.Stream[float]:
    return numbers.map_async(
        half,
        name="half",
        capacity=3,
        retry=af.Retry(attempts=2, delay=timedelta(0)),
        on_error=af.calls.Drop(),
    )


@pytest.mark.asyncio
async def test_calls_are_counted_by_outcome() -> None:
    flow = af.Flow("numbers")
    called(flow.source(range(5))).to(af.CollectSink())

    async with flow.start() as job:
        await job.wait()
        calls = job.metrics().steps["half"].calls

    assert calls == af.metrics.CallMetrics(
        calls=7,
        retries=2,
        timeouts=0,
        dropped=2,
        dead_letters=0,
        fallbacks=0,
        abandoned=0,
        cache_hits=0,
        cache_misses=0,
        merged=0,
        in_flight=0,
        waiting=0,
        limit=3,
    )


@pytest.mark.asyncio
async def test_calls_of_all_subtasks_are_added_up() -> None:
    flow = af.Flow("numbers")
    called(flow.source(range(10)).rebalance(2)).to(af.CollectSink())

    async with flow.start() as job:
        await job.wait()
        calls = job.metrics().steps["half"].calls

    assert calls is not None
    assert (calls.calls, calls.dropped, calls.limit) == (15, 5, 6)


@pytest.mark.asyncio
async def test_calls_under_way_and_waiting_records_are_counted_while_they_last() -> None:
    flow, answer, three = af.Flow("numbers"), asyncio.Event(), asyncio.Semaphore(0)

    async def wait(number: int) -> int:
        three.release()
        await answer.wait()
        return number

    flow.source(range(5)).map_async(wait, name="wait", capacity=3).to(af.CollectSink())
    async with flow.start() as job:
        for _ in range(3):
            await three.acquire()
        calls = job.metrics().steps["wait"].calls
        answer.set()
        await job.wait()

    assert calls is not None
    assert (calls.in_flight, calls.waiting, calls.limit) == (3, 2, 3)


@pytest.mark.asyncio
async def test_other_steps_make_no_calls() -> None:
    flow = af.Flow("numbers")
    flow.source(range(5)).map(lambda n: n, name="same").to(af.CollectSink())

    async with flow.start() as job:
        await job.wait()

        assert job.metrics().steps["same"].calls is None
