"""A flow is a description: it can be started again, with the same sources and sinks."""

from __future__ import annotations

import asyncio

import aflow as af


def test_a_push_source_takes_records_as_soon_as_the_flow_is_started_again() -> None:
    async def twice() -> list[int]:
        numbers, seen = af.PushSource[int](), af.CollectSink[int]()
        flow = af.Flow("again")
        flow.source(numbers).to(seen)
        for number in (1, 2):
            async with flow.start():
                await numbers.send(number)
        return seen.values

    assert asyncio.run(twice()) == [1, 2]


def test_two_jobs_of_one_flow_run_side_by_side() -> None:
    async def both() -> list[int]:
        seen = af.CollectSink[int]()
        flow = af.Flow("twice")
        flow.source(range(2000)).map(lambda n: n + 1).to(seen)
        async with asyncio.TaskGroup() as group:
            group.create_task(flow.run())
            group.create_task(flow.run())
        return seen.values

    assert sorted(asyncio.run(both())) == sorted([*range(1, 2001)] * 2)
