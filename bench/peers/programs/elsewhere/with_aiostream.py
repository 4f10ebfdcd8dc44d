"""The jobs in aiostream, which has no windows, keys or checkpoints."""

from __future__ import annotations

import asyncio
import operator
import time
from collections.abc import AsyncIterator

from aiostream import pipe, stream

from bench.peers.programs.protocol import CALL, RATE, Outcome, Run, Task, main
from bench.peers.programs.work import add_one, double, due, keep


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
    async def events() -> AsyncIterator[tuple[int, float]]:
        for event in due(task.records, RATE):
            if (wait := event[1] - time.perf_counter()) > 0:
                await asyncio.sleep(wait)
            yield event

    async def work() -> list[float]:
        times = (
            stream.iterate(events())
            | pipe.map(lambda event: event)
            | pipe.filter(lambda event: event[0] >= 0)
            | pipe.map(lambda event: event[1])
        )
        async with times.stream() as arriving:
            return [time.perf_counter() - at async for at in arriving]

    def run() -> Outcome:
        delays = asyncio.run(work())
        return Outcome(len(delays), delays=delays)

    return run


if __name__ == "__main__":
    main("aiostream", {"stateless": stateless, "calls": calls, "latency": latency})
