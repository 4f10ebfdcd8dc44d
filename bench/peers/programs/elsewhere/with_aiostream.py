"""The jobs in aiostream, which has no windows, keys or checkpoints."""

from __future__ import annotations

import asyncio
import operator
import time

from aiostream import pipe, stream

from bench.peers.programs.protocol import CALL, Outcome, Run, Task, main
from bench.peers.programs.work import (
    add_one,
    double,
    is_event,
    keep,
    same,
    sent_when_due,
    time_of_sending,
)


def stateless(task: Task) -> Run:
    async def work() -> int:
        steps = (
            stream.iterate(range(task.records))
            | pipe.map(add_one)
            | pipe.filter(keep)
            | pipe.map(double)
            | pipe.reduce(operator.add, 0)
        )
        return int(await steps)

    return lambda: Outcome(asyncio.run(work()))


def calls(task: Task) -> Run:
    async def call(number: int) -> int:
        await asyncio.sleep(CALL)
        return double(number)

    async def work() -> int:
        results = stream.iterate(range(task.records)) | pipe.map(
            call, ordered=False, task_limit=task.in_flight
        )
        return int(await (results | pipe.reduce(operator.add, 0)))

    return lambda: Outcome(asyncio.run(work()), settings="ordered=False, task_limit=…")


def latency(task: Task) -> Run:
    async def work() -> list[float]:
        times = (
            stream.iterate(sent_when_due(task.records))
            | pipe.map(same)
            | pipe.filter(is_event)
            | pipe.map(time_of_sending)
        )
        async with times.stream() as arriving:
            return [time.perf_counter() - at async for at in arriving]

    return lambda: Outcome.of_delays(asyncio.run(work()))


if __name__ == "__main__":
    main("aiostream", {"stateless": stateless, "calls": calls, "latency": latency})
