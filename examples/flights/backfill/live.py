"""The pipeline as a live job, from the savepoint or from the beginning."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from rich.console import Console

import aflow as af
from flights.backfill.files import Computation, HistoryFiles
from flights.backfill.pipeline import build
from flights.display import ProgressDisplay, watermark_text
from flights.job import NO_RECOVERY, Ended, Recovery, run_job

#: Interval of the checkpoints of the job that starts from the savepoint.
_INTERVAL: Final = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class LiveRun:
    """A live job that has ended."""

    ended: Ended
    seconds: float


def run_live(
    console: Console,
    files: HistoryFiles,
    computation: Computation,
    planes: Path,
    *,
    parallelism: int,
) -> LiveRun:
    """Run the job until it ends, from the savepoint if ``computation`` is ``LIVE``. Raises any error of the job."""
    started = time.monotonic()
    flow = build(
        files.flights_source(),
        files.weather_source(),
        **files.sinks(computation),
        planes=planes,
    )
    recovery = NO_RECOVERY
    if computation is Computation.LIVE:
        recovery = Recovery(
            checkpointing=af.Checkpointing(storage=files.checkpoints, every=_INTERVAL),
            restore=str(files.savepoint),
        )
    display = ProgressDisplay(console, _line)
    ended = run_job(flow, display, parallelism=parallelism, recovery=recovery)
    return LiveRun(ended, time.monotonic() - started)


def _line(metrics: af.metrics.JobMetrics, elapsed_s: float) -> str:
    """Return a line of progress."""
    every = metrics.steps["every flight"]
    skipped = every.sides.get("skipped", 0)
    rate = every.records_in / elapsed_s if elapsed_s > 0 else 0
    history = f", {skipped:,} of them in history" if skipped else ""
    return (
        f"{every.records_in:>7,} flights{history}, {rate:,.0f}/s, "
        f"watermark {watermark_text(every.watermark)}"
    )
