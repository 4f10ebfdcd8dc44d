"""Latency of the results of a query, at a constant rate that does not wait for the pipeline.

Events are sent at the times for which they are planned, and latency counts from there, so a stall is not hidden. A
result is caused by the event that completes it: by the event of its timestamp, or, for windows and timers, by the first
event with which the watermark passes it.
"""

from __future__ import annotations

import asyncio
import gc
import time
from array import array
from bisect import bisect_left
from collections.abc import Iterable
from typing import Any, Final

import aflow as af
from aflow.connect import Batch, Sink, Writer, WriterContext
from bench.harness import percentile, run_async
from bench.nexmark.catalog import NexmarkQuery
from bench.nexmark.model import MarketEvent
from bench.nexmark.settings import NexmarkSettings

#: Events per second of the clock.
RATE: Final = 5_000
#: Event time passes this many times faster than the clock, so that windows end within the run.
SPEED: Final = 20
SETTINGS: Final = NexmarkSettings(rate=RATE / SPEED)
#: Events of a run: 50 s of event time.
EVENTS: Final = 12_500
#: Share of the events at the beginning whose results are not counted.
WARM_UP: Final = 0.1


class ArrivalSink(Sink[Any]):
    """Notes the timestamp of each result, and the time (``perf_counter`` seconds) of its arrival."""

    def __init__(self) -> None:
        self.timestamps: Final = array("q")
        self.arrivals: Final = array("d")

    async def writer(self, context: WriterContext) -> Writer[Any]:
        return _ArrivalWriter(self)


class _ArrivalWriter(Writer[Any]):
    def __init__(self, sink: ArrivalSink) -> None:
        self._sink: Final = sink

    def write(self, batch: Batch[Any]) -> None:
        now = time.perf_counter()
        assert batch.timestamps is not None
        self._sink.timestamps.extend(batch.timestamps)
        self._sink.arrivals.extend(now for _ in batch.timestamps)


def latencies(query: NexmarkQuery, events: list[MarketEvent]) -> list[float]:
    """Return the latency, in seconds, of each result of ``events`` of ``SETTINGS`` after the warm-up.

    Results that only the end of the input causes have none, and queries of processing time have none at all.
    """
    if query.delay is None or query.to_files:
        return []
    gc.collect()
    gc.freeze()
    try:
        sink, start = run_async(_run(query, events))
    finally:
        gc.unfreeze()
    results = zip(sink.timestamps, sink.arrivals, strict=True)
    return delays(((at, arrival - start) for at, arrival in results), events, query.delay)


def delays(
    results: Iterable[tuple[int, float]], events: list[MarketEvent], delay: int
) -> list[float]:
    """Return the seconds from the planned time of the event that causes each result to its arrival.

    ``results`` are timestamps, and arrivals in seconds since the first event. An event causes a result if it is the
    first one that is at least ``delay`` later in event time.
    """
    times = [event.at for event in events]
    found: list[float] = []
    for timestamp, arrival in results:
        cause = bisect_left(times, timestamp + delay)
        if len(events) * WARM_UP <= cause < len(events):
            found.append(arrival - cause / RATE)
    return found


def latency_figures(query: NexmarkQuery, events: list[MarketEvent]) -> dict[str, float]:
    """Return the median and the 99th percentile in milliseconds, by the names of their figures."""
    found = latencies(query, events)
    return {
        f"{query.name}_p{round(share * 100)}_ms": round(percentile(found, share) * 1000, 2)
        for share in (0.5, 0.99)
        if found
    }


async def _run(query: NexmarkQuery, events: list[MarketEvent]) -> tuple[ArrivalSink, float]:
    source = af.PushSource[MarketEvent](capacity=10_000)
    sink = ArrivalSink()
    async with query.build(source, sink).start() as job:
        start = time.perf_counter()
        sent = 0
        while sent < len(events):
            due = min(len(events), int((time.perf_counter() - start) * RATE) + 1)
            await source.send_many(events[sent:due])
            sent = due
            await asyncio.sleep(0.001)
        source.close()
        await job.wait()
    return sink, start
