"""What the demo says while it runs: a line that is drawn anew on a terminal, or one line a second elsewhere."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from rich.console import Console
from rich.live import Live
from rich.text import Text

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
    windows: int
    late: int

    @classmethod
    def of(cls, metrics: JobMetrics) -> Standing:
        """Reads it from the metrics of the job; step names are those of the pipeline."""
        steps = metrics.steps
        branches = steps["airport hours"], steps["carrier days"]
        return cls(
            flights=steps["flights"].records_out,
            watermark=steps["departed"].watermark,
            windows=steps["hourly"].records_in + steps["daily"].records_in,
            late=sum(branch.sides.get("late", 0) for branch in branches),
        )

    def line(self, elapsed_s: float) -> str:
        """It all in one line of at most 80 characters, after ``elapsed_s`` seconds."""
        rate = self.flights / elapsed_s if elapsed_s > 0 else 0
        return (
            f"{self.flights:>7,} flights, {rate:>7,.0f}/s, watermark {shown_watermark(self.watermark)}, "
            f"{self.windows:,} windows, {self.late:,} late"
        )


def how_far(metrics: JobMetrics, elapsed_s: float) -> str:
    """The line of the replay."""
    return Standing.of(metrics).line(elapsed_s)


class Follower:
    """Tells on ``console`` how far a job is, in the words of ``line``, which is given metrics and seconds so far."""

    def __init__(
        self, console: Console, line: Callable[[JobMetrics, float], str] = how_far
    ) -> None:
        self._console = console
        self._line = line
        #: What is drawn anew; None if the console is no terminal.
        self._live: Live | None = None
        self._began = time.monotonic()

    @contextmanager
    def shown(self) -> Generator[None]:
        """Draws the line meanwhile, if this is a terminal; leaves the cursor as it was, whatever happens."""
        if not self._console.is_terminal:
            yield
            return
        # Drawn by the job's own loop: no thread that competes with it.
        with Live(console=self._console, auto_refresh=False) as live:
            self._live = live
            try:
                yield
            finally:
                self._live = None

    async def follow(self, job: Job) -> None:
        """Tell of ``job`` again and again, until cancelled."""
        while True:
            await asyncio.sleep(_PRINT_EVERY_S if self._live is None else _DRAW_EVERY_S)
            self.tell(job.metrics())

    def tell(self, metrics: JobMetrics) -> None:
        """Show how far it is now."""
        line = self._line(metrics, time.monotonic() - self._began)
        if self._live is None:
            self._console.print(line, soft_wrap=True)
        else:
            self._live.update(Text(line, no_wrap=True, overflow="ellipsis"), refresh=True)


def shown_watermark(watermark: Timestamp | None) -> str:
    """For a line of progress: in words where it is no date."""
    if watermark is None:
        return "not yet"
    if watermark >= MAX_TIMESTAMP:
        return "at the end"
    return f"{to_datetime(watermark):%d %b %H:%M}"
