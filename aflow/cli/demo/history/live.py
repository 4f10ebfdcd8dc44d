"""The pipeline as a live job, from the savepoint on or from the beginning of all."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from rich.console import Console

from aflow.cli.demo.history.files import HistoryFiles, HistoryRun
from aflow.cli.demo.history.pipeline import build
from aflow.cli.demo.progress import Follower, shown_watermark
from aflow.cli.recovering import Recovering
from aflow.cli.running import Run
from aflow.runtime.checkpoints.settings import Checkpointing
from aflow.runtime.metrics import JobMetrics

#: Checkpoints of the job that begins from the savepoint: whoever takes over can fail, too.
_EVERY: Final = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class Ran:
    """What a live job has done."""

    status: int
    """As ``aflow run`` exits."""
    metrics: JobMetrics
    seconds: float


def run_live(
    console: Console, files: HistoryFiles, where: HistoryRun, planes: Path, *, parallelism: int
) -> Ran:
    """Run it to its end, from the savepoint if ``where`` is ``LIVE``; raises what makes it fail."""
    follower, ended = Follower(console, _line), JobMetrics(steps={}, tasks=[])

    def report(metrics: JobMetrics) -> None:
        nonlocal ended
        ended = metrics
        follower.tell(metrics)

    began = time.monotonic()
    with follower.shown():
        status = Run(
            flow=build(
                files.flights_source(),
                files.weather_source(),
                **files.sinks(where),
                planes=planes,
            ),
            parallelism=parallelism,
            uvloop=True,
            say=lambda text: console.print(text, markup=False),
            report=report,
            recovering=_from_savepoint(files) if where is HistoryRun.LIVE else Recovering(),
            follow=follower.follow,
        ).to_the_end()
    return Ran(status, ended, time.monotonic() - began)


def _from_savepoint(files: HistoryFiles) -> Recovering:
    return Recovering(
        checkpointing=Checkpointing(storage=files.checkpoints, every=_EVERY),
        restore=str(files.savepoint),
    )


def _line(metrics: JobMetrics, elapsed_s: float) -> str:
    """How far a job is, in a line."""
    every = metrics.steps["every flight"]
    skipped = every.sides.get("skipped", 0)
    rate = every.records_in / elapsed_s if elapsed_s > 0 else 0
    left_alone = f", {skipped:,} of them Spark's" if skipped else ""
    return (
        f"{every.records_in:>7,} flights{left_alone}, {rate:,.0f}/s, "
        f"watermark {shown_watermark(every.watermark)}"
    )
