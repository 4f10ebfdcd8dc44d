"""What the demo says while it runs: a line that is drawn anew on a terminal, or one line a second elsewhere."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn

from aflow.model.time import MAX_TIMESTAMP, Timestamp, to_datetime
from aflow.runtime.job import Job
from aflow.runtime.metrics import JobMetrics

_DRAW_EVERY_S: Final = 0.2
_PRINT_EVERY_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class Standing:
    """How far the replay has come."""

    flights: int
    watermark: Timestamp | None
    hours: int
    days: int
    late: int

    @classmethod
    def of(cls, metrics: JobMetrics) -> Standing:
        """Reads it from the metrics of the job; step names are those of the pipeline."""
        steps = metrics.steps
        hours, days = steps["airport hours"], steps["carrier days"]
        return cls(
            flights=steps["flights"].records_out,
            watermark=steps["departed"].watermark,
            hours=steps["hourly"].records_in,
            days=steps["daily"].records_in,
            late=hours.sides.get("late", 0) + days.sides.get("late", 0),
        )

    def line(self, elapsed_s: float) -> str:
        """It all in one line, after ``elapsed_s`` seconds."""
        rate = self.flights / elapsed_s if elapsed_s > 0 else 0
        return (
            f"{self.flights:>7,} flights, {rate:>7,.0f}/s | watermark {_shown(self.watermark)} | "
            f"{self.hours:,} airport hours, {self.days:,} carrier days | {self.late:,} late"
        )


class Follower:
    """Follows one job on ``console``, of which it is known that it has ``total`` records."""

    def __init__(self, console: Console, total: int) -> None:
        self._console = console
        self._bar: tuple[Progress, TaskID] | None = None
        self._total = total
        self._began = time.monotonic()

    @contextmanager
    def shown(self) -> Generator[None]:
        """Draws the line meanwhile, if this is a terminal; leaves the cursor as it was, whatever happens."""
        if not self._console.is_terminal:
            yield
            return
        columns = (BarColumn(bar_width=20), TextColumn("{task.description}", markup=False))
        # Drawn by the job's own loop: no thread that a Ctrl-C could leave behind.
        with Progress(*columns, console=self._console, auto_refresh=False) as progress:
            self._bar = progress, progress.add_task("", total=self._total)
            try:
                yield
            finally:
                self._bar = None

    async def follow(self, job: Job) -> None:
        """Tell of ``job`` again and again, until cancelled."""
        while True:
            await asyncio.sleep(_PRINT_EVERY_S if self._bar is None else _DRAW_EVERY_S)
            self.tell(job.metrics())

    def tell(self, metrics: JobMetrics) -> None:
        """Show how far it is now."""
        standing = Standing.of(metrics)
        line = standing.line(time.monotonic() - self._began)
        if self._bar is None:
            self._console.print(line, soft_wrap=True)
        else:
            progress, task = self._bar
            progress.update(task, description=line, completed=standing.flights, refresh=True)


def _shown(watermark: Timestamp | None) -> str:
    if watermark is None:
        return "not yet"
    if watermark >= MAX_TIMESTAMP:
        return "at the end"
    return f"{to_datetime(watermark):%d %b %Y %H:%M} UTC"
