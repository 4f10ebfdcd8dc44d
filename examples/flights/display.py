"""Progress of a job: one line, redrawn on a terminal, or printed once a second elsewhere."""

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

import aflow as af
from flights.flight import to_datetime

_DRAW_EVERY_S: Final = 0.2
_PRINT_EVERY_S: Final = 1.0

#: Later than any date: the watermark of a source at its end.
_END: Final = 253_402_300_800_000


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of the replay."""

    flights: int
    watermark: int | None
    """Epoch ms."""
    windows: int
    late: int

    @classmethod
    def of(cls, metrics: af.metrics.JobMetrics) -> Progress:
        """Return the progress from the metrics of the job."""
        steps = metrics.steps
        branches = steps["airport hours"], steps["carrier days"]
        return cls(
            flights=steps["flights"].records_out,
            watermark=steps["departed"].watermark,
            windows=steps["hourly"].records_in + steps["daily"].records_in,
            late=sum(branch.sides.get("late", 0) for branch in branches),
        )

    def line(self, elapsed_s: float) -> str:
        """Return a line of at most 80 characters, after ``elapsed_s`` seconds."""
        rate = self.flights / elapsed_s if elapsed_s > 0 else 0
        return (
            f"{self.flights:>7,} flights, {rate:>7,.0f}/s, watermark {watermark_text(self.watermark)}, "
            f"{self.windows:,} windows, {self.late:,} late"
        )


def progress_line(metrics: af.metrics.JobMetrics, elapsed_s: float) -> str:
    """Return the line of the replay."""
    return Progress.of(metrics).line(elapsed_s)


class ProgressDisplay:
    """Show the progress of a job on ``console``. ``line`` formats metrics and elapsed seconds."""

    def __init__(
        self, console: Console, line: Callable[[af.metrics.JobMetrics, float], str] = progress_line
    ) -> None:
        self._console = console
        self._line = line
        #: The line on the terminal; None if the console is no terminal.
        self._live: Live | None = None
        self._started = time.monotonic()

    @contextmanager
    def shown(self) -> Generator[None]:
        """Draw the line during the block, if this is a terminal, and restore the cursor."""
        if not self._console.is_terminal:
            yield
            return
        # The event loop of the job draws: no thread competes with it.
        with Live(console=self._console, auto_refresh=False) as live:
            self._live = live
            try:
                yield
            finally:
                self._live = None

    def say(self, text: str) -> None:
        """Print a message."""
        self._console.print(text, markup=False)

    async def follow(self, job: af.Job) -> None:
        """Show the progress of ``job`` periodically, until cancelled."""
        while True:
            await asyncio.sleep(_PRINT_EVERY_S if self._live is None else _DRAW_EVERY_S)
            self.update(job.metrics())

    def update(self, metrics: af.metrics.JobMetrics) -> None:
        """Show the progress once."""
        line = self._line(metrics, time.monotonic() - self._started)
        if self._live is None:
            self._console.print(line, soft_wrap=True)
        else:
            self._live.update(Text(line, no_wrap=True, overflow="ellipsis"), refresh=True)


def watermark_text(watermark: int | None) -> str:
    """Return a watermark (epoch ms) for a line of progress."""
    if watermark is None:
        return "not yet"
    if watermark >= _END:
        return "at the end"
    return f"{to_datetime(watermark):%d %b %H:%M}"
