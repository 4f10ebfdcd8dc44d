"""``aflow demo``: prepares the replay, runs the pipeline over it, and shows what came out."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path

from rich.console import Console

from aflow.cli.demo.data import FlightData, write_replay, write_weather
from aflow.cli.demo.files import Files
from aflow.cli.demo.pipeline import build
from aflow.cli.demo.progress import Follower
from aflow.cli.demo.tables import counted, new_york, show_totals, show_worst
from aflow.cli.demo.weather_tables import show_weather
from aflow.cli.running import Run
from aflow.cli.usage import DONE
from aflow.errors import SinkError
from aflow.runtime.metrics import JobMetrics


def run_demo(*, output: Path, records: int | None, parallelism: int, max_delay: timedelta) -> int:
    """Replay the first ``records`` departures of 2013, or all, and leave the results in the folder ``output``.

    Returns the exit status: 0, or 130 if the user had it stopped at once. Ctrl-C drains as in ``aflow run``, and the
    tables show what has been read until then. Raises ``SourceError`` if the data are not installed, ``SinkError`` if
    ``output`` cannot be written, and what else made the job fail.
    """
    console = Console(highlight=False)
    data, files = FlightData.installed(), Files(output)
    new_york()  # better to miss it now than at the end
    with console.status("putting the flights of 2013 in order of departure"):
        total = _prepare(data, files, records)
    console.print(
        f"Replaying {counted(total, 'flight')} in the order in which they left; "
        "event time is the scheduled departure (UTC).",
        soft_wrap=True,
    )
    return _replay(console, data, files, parallelism=parallelism, max_delay=max_delay)


def _prepare(data: FlightData, files: Files, records: int | None) -> int:
    try:
        files.folder.mkdir(parents=True, exist_ok=True)
        write_weather(data, files.weather)
        return write_replay(data, files.replay, records=records)
    except OSError as exc:
        raise SinkError(
            f"cannot write into {files.folder}: {exc.strerror or exc}; --output names another folder"
        ) from exc


def _replay(
    console: Console,
    data: FlightData,
    files: Files,
    *,
    parallelism: int,
    max_delay: timedelta,
) -> int:
    follower, ended = Follower(console), JobMetrics(steps={}, tasks=[])

    def report(metrics: JobMetrics) -> None:
        nonlocal ended
        ended = metrics
        follower.tell(metrics)

    began = time.monotonic()
    with follower.shown():
        status = Run(
            flow=build(
                files.source(), files.weather_source(), files.results(), max_delay=max_delay
            ),
            parallelism=parallelism,
            uvloop=True,
            say=lambda text: console.print(text, markup=False),
            report=report,
            follow=follower.follow,
        ).to_the_end()
    seconds = time.monotonic() - began
    if status == DONE:
        show_worst(console, data, files)
        show_weather(console, files, new_york())
        show_totals(console, ended, files, max_delay, seconds=seconds)
    return status
