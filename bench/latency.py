"""``latency``: latency of single events through three operators, one of them keyed, at 5,000 events a second."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import aflow as af
from bench.harness import Budget, Measurement, percentile, run_async

RATE = 5_000
KEYS = 100

Send = Callable[["Ping"], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Ping:
    """An event and the time (``perf_counter`` seconds) of its sending."""

    number: int
    sent: float


def measure(records: int, rounds: int) -> Measurement:
    """Measure with events sent one by one into a ``PushSource``, against an asyncio program with a queue."""
    ours: list[float] = []
    bare: list[float] = []
    for _ in range(rounds):
        ours += run_async(_through_aflow(records))
        bare += run_async(_through_queue(records))
    if not len(ours) == len(bare) == records * rounds:
        raise SystemExit(
            f"latency: {len(ours):,} and {len(bare):,} delays of {records * rounds:,} events; nothing was measured"
        )
    return Measurement(
        "latency",
        {
            "records": records,
            "seconds": round(records / RATE, 2),
            "records_per_s": RATE,
            **_percentiles("", ours),
            **_percentiles("baseline_", bare),
            "rounds": rounds,
            "verified": True,
        },
        [Budget("p50_ms", at_most=0.3), Budget("p99_ms", at_most=3)],
    )


def _percentiles(prefix: str, delays: list[float]) -> dict[str, float]:
    return {
        f"{prefix}p{round(share * 100)}_ms": round(percentile(delays, share) * 1000, 3)
        for share in (0.5, 0.9, 0.99)
    }


async def _through_aflow(records: int) -> list[float]:
    delays: list[float] = []
    flow, pings = af.Flow("latency"), af.PushSource[Ping]()
    (
        flow.source(pings)
        .map(lambda ping: ping)
        .filter(lambda ping: ping.number >= 0)
        .key_by(lambda ping: ping.number % KEYS)
        .reduce(lambda _, ping: ping, name="latest")
        .to(af.CallbackSink(lambda ping: delays.append(time.perf_counter() - ping.sent)))
    )
    async with flow.start() as job:
        await _send_all(records, pings.send)
        pings.close()
        await job.wait()
    return delays


async def _through_queue(records: int) -> list[float]:
    delays: list[float] = []
    queue: asyncio.Queue[Ping | None] = asyncio.Queue(1024)

    async def work() -> None:
        latest: dict[int, Ping] = {}
        while (ping := await queue.get()) is not None:
            if ping.number >= 0:
                latest[ping.number % KEYS] = ping
                delays.append(time.perf_counter() - ping.sent)

    async with asyncio.TaskGroup() as group:
        group.create_task(work())
        await _send_all(records, queue.put)
        await queue.put(None)
    return delays


async def _send_all(records: int, send: Send) -> None:
    """Send at 5,000 a second: at each wake-up, about every millisecond, all events that are due."""
    start = time.perf_counter()
    sent = 0
    while sent < records:
        due = min(records, int((time.perf_counter() - start) * RATE) + 1)
        while sent < due:
            await send(Ping(sent, time.perf_counter()))
            sent += 1
        await asyncio.sleep(0.001)
