"""Stopping a job at any moment and in any interleaving: no accepted record is lost, and no caller waits for ever."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

import aflow as af
from aflow.testing import CollectSink, FlowDriver
from aflow.testing.virtual_time import run


async def send_until_stopped(source: af.PushSource[int], records: int) -> int:
    """Return the number of accepted records."""
    for sent in range(records):
        try:
            await source.send(sent)
        except af.JobStopped:
            return sent
    return records


async def stopped_after(steps: int, options: af.Options, parallelism: int) -> tuple[int, int]:
    """Return the number of records accepted before the job was drained, and of those counted in windows."""
    source, counts, flow = af.PushSource[int](capacity=3), CollectSink[int](), af.Flow("counts")
    (
        flow.source(source)
        .event_time(lambda n: n)
        .key_by(lambda n: n % 5)
        .window(af.Tumbling(timedelta(milliseconds=7)))
        .fold(int, lambda count, _: count + 1, name="count")
        .map(lambda result: result.value)
        .to(counts)
    )
    async with (
        FlowDriver(flow, parallelism=parallelism, options=options) as driver,
        asyncio.TaskGroup() as group,
    ):
        sending = group.create_task(send_until_stopped(source, 50))
        for _ in range(steps):
            await asyncio.sleep(0)
        await driver.job.stop(drain=True)
    return sending.result(), sum(counts.values)


@pytest.mark.parametrize("chaining", [True, False], ids=["chained", "apart"])
@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("seed", [None, 1, 2], ids=repr)
def test_accepted_records_are_counted_whenever_the_job_is_drained(
    seed: int | None, parallelism: int, chaining: bool
) -> None:
    options = af.Options(batch_records=2, channel_records=2, chaining=chaining)

    results = [
        run(stopped_after(steps, options, parallelism), seed=seed) for steps in range(2, 50, 6)
    ]

    assert [counted for _, counted in results] == [accepted for accepted, _ in results]
    assert len({accepted for accepted, _ in results}) > 3


def test_a_sender_is_refused_even_if_the_job_stops_before_reading() -> None:
    async def stop_at_once() -> None:
        source, flow = af.PushSource[int](capacity=1), af.Flow("short")
        flow.source(source).to(CollectSink[int]())
        async with FlowDriver(flow) as driver, asyncio.TaskGroup() as group:
            group.create_task(send_until_stopped(source, 5))
            await driver.job.stop()

    for seed in range(20):
        run(stop_at_once, seed=seed)
