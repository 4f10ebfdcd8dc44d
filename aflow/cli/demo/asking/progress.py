"""What ``aflow demo weather`` says while it runs."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.console import Console

from aflow.cli.demo.asking.apart import Apart
from aflow.cli.demo.asking.course import Course
from aflow.cli.demo.asking.pipeline import ASK
from aflow.cli.demo.progress import Follower, shown_watermark
from aflow.model.time import Timestamp
from aflow.runtime.job import Job
from aflow.runtime.metrics import CallMetrics, JobMetrics


@dataclass(frozen=True, slots=True)
class Standing:
    """How far the pipeline has come."""

    flights: int
    """Those with an answer."""
    watermark: Timestamp | None
    calls: CallMetrics

    @classmethod
    def of(cls, metrics: JobMetrics) -> Standing:
        """Reads it from the metrics of the job."""
        step = metrics.steps[ASK]
        assert step.calls is not None
        return cls(flights=step.records_out, watermark=step.watermark, calls=step.calls)

    def lines(self, elapsed_s: float, causes: Counter[str]) -> str:
        """Two lines, after ``elapsed_s`` seconds and retries for ``causes``."""
        calls = self.calls
        rate = calls.calls / elapsed_s if elapsed_s > 0 else 0
        again = ", ".join(f"{count:,} × {cause}" for cause, count in sorted(causes.items()))
        return (
            f"{self.flights:>7,} flights, {calls.calls:>6,} calls ({rate:,.0f}/s), "
            f"{calls.in_flight:>2} of {calls.limit} under way, {shown_watermark(self.watermark)}\n"
            f"        {calls.cache_hits:,} known, {calls.merged:,} shared, again: {again or 'none'}"
        )


class Watch:
    """Looks at a job: tells how far it is, and takes samples of its limit."""

    def __init__(self, console: Console, service: Apart, causes: Counter[str]) -> None:
        self._service = service
        self._causes = causes
        self._follower = Follower(console, self._lines)
        self.course = Course()
        #: Those of the job's end.
        self.metrics = JobMetrics(steps={}, tasks=[])
        self._began = time.monotonic()

    @contextmanager
    def shown(self) -> Generator[None]:
        """Draws on the terminal meanwhile."""
        with self._follower.shown():
            yield

    async def follow(self, job: Job) -> None:
        """Look at ``job`` until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follower.follow(job))
            group.create_task(self.course.watch(job, self._service, ASK))

    def ended(self, metrics: JobMetrics) -> None:
        """The job has ended with ``metrics``."""
        self.metrics = metrics
        self._follower.tell(metrics)

    def _lines(self, metrics: JobMetrics, elapsed_s: float) -> str:
        return Standing.of(metrics).lines(elapsed_s, self._causes)
