"""The jobs in FastStream with a NATS server, which each record passes through. It has no windows, keys or checkpoints.

``AFLOW_PEERS_NATS`` is the address of the server.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from typing import Any

from faststream.nats import NatsBroker

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

_SUBJECT = "records"


def _broker() -> NatsBroker:
    return NatsBroker(os.environ["AFLOW_PEERS_NATS"], logger=None, pending_size=64 << 20)


async def _sum(task: Task, handled: Callable[[int], Awaitable[int]], **how: Any) -> int:
    """Send all numbers through the server, and return the sum of what ``handled`` makes of them."""
    broker, total, seen, done = _broker(), 0, 0, asyncio.Event()

    @broker.subscriber(
        _SUBJECT, pending_msgs_limit=task.records, pending_bytes_limit=1 << 30, **how
    )
    async def handle(number: int) -> None:
        nonlocal total, seen
        # Not `+=`: it would read the sum before the wait.
        result = await handled(number)
        total += result
        seen += 1
        if seen == task.records:
            done.set()

    async with broker:
        await broker.start()
        for number in range(task.records):
            await broker.publish(number, _SUBJECT)
        await done.wait()
    return total


def stateless(task: Task) -> Run:
    async def handled(number: int) -> int:
        more = add_one(number)
        return double(more) if keep(more) else 0

    return lambda: Outcome(
        asyncio.run(_sum(task, handled)), settings="core NATS; sender in the same process"
    )


def calls(task: Task) -> Run:
    async def handled(number: int) -> int:
        await asyncio.sleep(CALL)
        return double(number)

    return lambda: Outcome(
        asyncio.run(_sum(task, handled, max_workers=task.in_flight)),
        settings="max_workers=…; sender in the same process",
    )


def latency(task: Task) -> Run:
    async def work() -> list[float]:
        broker, delays, done = _broker(), list[float](), asyncio.Event()

        @broker.subscriber(_SUBJECT)
        async def handle(event: tuple[int, float]) -> None:
            event = same(event)
            if is_event(event):
                delays.append(time.perf_counter() - time_of_sending(event))
            if len(delays) == task.records:
                done.set()

        async with broker:
            await broker.start()
            async for event in sent_when_due(task.records):
                await broker.publish(event, _SUBJECT)
            await done.wait()
        return delays

    return lambda: Outcome.of_delays(asyncio.run(work()), "through the server")


if __name__ == "__main__":
    main("faststream", {"stateless": stateless, "calls": calls, "latency": latency})
