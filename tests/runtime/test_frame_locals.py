"""The errors of restarts, which a job keeps, do not keep the records of the failed attempts."""

from __future__ import annotations

import asyncio
import gc
import traceback
from datetime import timedelta
from weakref import WeakSet

import aflow as af
from aflow.runtime.frame_locals import release_locals
from aflow.testing.virtual_time import settle, virtual_time


class Large:
    """A record that can be referred to weakly."""

    def __init__(self, number: int) -> None:
        self.number = number


def check(record: Large) -> Large:
    if record.number == 0:
        raise ValueError("as planned")
    return record


async def call(record: Large) -> Large:
    await asyncio.sleep(0.01)
    return check(record)


@virtual_time
async def test_records_in_flight_at_a_failure_are_released_and_the_traceback_has_its_lines() -> (
    None
):
    records = WeakSet[Large]()
    for name in ("plain", "called"):
        source = af.PushSource[Large]()
        flow = af.Flow(name)
        sent = flow.source(source, name="records").rebalance()
        checked = (
            sent.map(check, name="check") if name == "plain" else sent.map_async(call, name="check")
        )
        checked.to(af.CallbackSink(id), name="out")
        restart = af.restart.FixedDelay(1, timedelta(seconds=1))
        async with flow.start(restart=restart) as job:
            many = [Large(number) for number in range(100)]
            records.update(many)
            await source.send_many(many)
            del many
            await asyncio.sleep(2)
            await job.ready()
            gc.collect()

            assert len(records) <= 1  # the one that failed
            lines = traceback.format_exception(job.restarts[0].cause)
            assert any("in check" in line for line in lines)
        records.clear()


@virtual_time
async def test_a_coroutine_that_has_caught_the_error_and_waits_is_not_closed() -> None:
    caught: list[BaseException] = []

    async def waiting() -> str:
        try:
            check(Large(0))
        except ValueError as error:
            caught.append(error)
        await asyncio.sleep(1)
        return "continued"

    task = asyncio.create_task(waiting())
    await settle()
    release_locals(caught[0])

    assert await task == "continued"
