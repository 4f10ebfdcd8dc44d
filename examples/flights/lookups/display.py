"""Progress of the lookups: two lines, and a trace of the concurrency limit over time."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import aiohttp
import msgspec
from rich.console import Console

import aflow as af
from flights.display import ProgressDisplay, watermark_text
from flights.lookups.pipeline import LOOKUP
from flights.lookups.service import Counts
from flights.lookups.service_process import ServiceProcess

_SAMPLE_EVERY_S: Final = 0.05

#: Bars of a sparkline, from the lowest to the highest.
_BARS: Final = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of the pipeline."""

    flights: int
    """Flights with an answer."""
    watermark: int | None
    """Epoch ms."""
    calls: af.metrics.CallMetrics

    @classmethod
    def of(cls, metrics: af.metrics.JobMetrics) -> Progress:
        """Return the progress from the metrics of the job."""
        step = metrics.steps[LOOKUP]
        assert step.calls is not None
        return cls(flights=step.records_out, watermark=step.watermark, calls=step.calls)

    def lines(self, elapsed_s: float, causes: Counter[str]) -> str:
        """Return two lines, after ``elapsed_s`` seconds and retries for ``causes``."""
        calls = self.calls
        rate = calls.calls / elapsed_s if elapsed_s > 0 else 0
        retries = ", ".join(f"{count:,} × {cause}" for cause, count in sorted(causes.items()))
        return (
            f"{self.flights:>7,} flights, {calls.calls:>6,} calls ({rate:,.0f}/s), "
            f"{calls.in_flight:>2} of {calls.limit} in flight, {watermark_text(self.watermark)}\n"
            f"        {calls.cache_hits:,} cached, {calls.merged:,} shared, retries: {retries or 'none'}"
        )


@dataclass(frozen=True, slots=True)
class Sample:
    """Limit and capacity at one time."""

    at_s: float
    limit: int
    """Concurrent calls that the pipeline allowed."""
    capacity: int
    """Concurrent requests that the service accepted."""


class LimitTrace:
    """Samples of a run."""

    def __init__(self) -> None:
        self.samples: list[Sample] = []
        self._started = time.monotonic()

    async def record(self, job: af.Job, service: ServiceProcess, step: str) -> None:
        """Take samples of ``job`` until cancelled. Raises ``SourceError`` if ``service`` has ended."""
        async with aiohttp.ClientSession(service.url) as http:
            while True:
                await asyncio.sleep(_SAMPLE_EVERY_S)
                counts = await _counts(http)
                calls = job.metrics().steps[step].calls
                if calls is not None:
                    at = time.monotonic() - self._started
                    self.samples.append(Sample(at, calls.limit, counts.capacity))


async def _counts(http: aiohttp.ClientSession) -> Counts:
    try:
        async with http.get("/counts") as response:
            return msgspec.json.decode(await response.read(), type=Counts)
    except aiohttp.ClientError as exc:
        # Without a service each of the flights would make twenty attempts.
        raise af.errors.SourceError(
            f"the weather service ended before the pipeline: {exc}"
        ) from exc


class LookupDisplay:
    """Show the progress of a job, and record its limit."""

    def __init__(self, console: Console, service: ServiceProcess, causes: Counter[str]) -> None:
        self._service = service
        self._causes = causes
        self._display = ProgressDisplay(console, self._lines)
        self.trace = LimitTrace()

    @contextmanager
    def shown(self) -> Generator[None]:
        """Draw on the terminal during the block."""
        with self._display.shown():
            yield

    def say(self, text: str) -> None:
        """Print a message."""
        self._display.say(text)

    async def follow(self, job: af.Job) -> None:
        """Show the progress of ``job`` and record its limit, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._display.follow(job))
            group.create_task(self.trace.record(job, self._service, LOOKUP))

    def update(self, metrics: af.metrics.JobMetrics) -> None:
        """Show the progress once."""
        self._display.update(metrics)

    def _lines(self, metrics: af.metrics.JobMetrics, elapsed_s: float) -> str:
        return Progress.of(metrics).lines(elapsed_s, self._causes)


def sparkline(values: Sequence[int], *, width: int, maximum: int) -> str:
    """Draw ``values`` as at most ``width`` bars; each bar is a mean if there are more values."""
    bars = min(width, len(values))
    cuts = [len(values) * bar // bars for bar in range(bars + 1)] if bars else []
    parts = [values[start:end] for start, end in pairwise(cuts)]
    means = [sum(part) / len(part) for part in parts]
    return "".join(_BARS[min(len(_BARS) - 1, int(mean / maximum * len(_BARS)))] for mean in means)
