"""``aflow demo``: prepares the replay, runs the pipeline over it, and shows what came out."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

from rich.console import Console

from aflow.cli.demo.crash import EVERY, completed, killed
from aflow.cli.demo.data import FlightData, write_replay, write_weather
from aflow.cli.demo.files import Files
from aflow.cli.demo.pipeline import build
from aflow.cli.demo.progress import Follower
from aflow.cli.demo.tables import counted, new_york, show_totals, show_worst
from aflow.cli.demo.weather_tables import show_weather
from aflow.cli.recovering import Recovering
from aflow.cli.running import Run
from aflow.cli.usage import DONE
from aflow.errors import SinkError
from aflow.runtime.checkpoints.settings import Checkpointing
from aflow.runtime.metrics import JobMetrics


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """What is replayed, and how."""

    output: Path
    records: int | None = None
    """The first departures of 2013, so many of them; None: all."""
    parallelism: int = 1
    max_delay: timedelta = timedelta(hours=2)
    recovering: Recovering = field(default_factory=Recovering)
    kill_after: timedelta | None = None
    """Let a process of its own begin the replay, and kill it after so long."""
    tables: bool = True
    """False shows progress only."""


def run_demo(replay: Replay) -> int:
    """Replay departures of 2013, and leave the results in a folder.

    Returns the exit status: 0, or 130 if the user had it stopped at once. Ctrl-C drains as in ``aflow run``, and the
    tables show what has been read until then. Raises ``SourceError`` if the data are not installed, ``SinkError`` if
    the folder cannot be written, and what else made the job fail.
    """
    console = Console(highlight=False)
    data, files = FlightData.installed(), Files(replay.output)
    new_york()  # better to miss it now than at the end
    with console.status("putting the flights of 2013 in order of departure"):
        total = prepare(data, files, replay.records)
    console.print(
        f"Replaying {counted(total, 'flight')} in the order in which they left; "
        "event time is the scheduled departure (UTC).",
        soft_wrap=True,
    )
    if replay.kill_after is not None:
        replay = _crashed(console, files, replay, replay.kill_after)
    return _replay(console, data, files, replay)


def _crashed(console: Console, files: Files, replay: Replay, after: timedelta) -> Replay:
    """Have a first process begin and killed; what is left to do for the second one."""
    files.clear()
    console.print(
        f"A process of its own begins, and is killed (SIGKILL) after {after.total_seconds():g} s.",
        soft_wrap=True,
    )
    options = ["--output", str(replay.output), "--parallelism", str(replay.parallelism)]
    options += ["--max-delay", f"{replay.max_delay.total_seconds():g}s"]
    options += [] if replay.records is None else ["--records", str(replay.records)]
    if killed(options, files.checkpoints, after):
        there = completed(files.checkpoints)
        console.print(
            f"Killed. It leaves {counted(there, 'completed checkpoint')}; this process goes on from there.",
            soft_wrap=True,
        )
    else:
        console.print("It was done before that: a shorter --kill-after hits it in the middle.")
    settings = Checkpointing(storage=files.checkpoints, every=EVERY)
    return dataclasses.replace(replay, recovering=Recovering(checkpointing=settings))


def prepare(data: FlightData, files: Files, records: int | None) -> int:
    """Write the demo's inputs; how many flights. Raises ``SinkError`` if the folder cannot be written."""
    try:
        files.folder.mkdir(parents=True, exist_ok=True)
        write_weather(data, files.weather)
        return write_replay(data, files.replay, records=records)
    except OSError as exc:
        raise SinkError(
            f"cannot write into {files.folder}: {exc.strerror or exc}; --output names another folder"
        ) from exc


def _replay(console: Console, data: FlightData, files: Files, replay: Replay) -> int:
    follower, ended = Follower(console), JobMetrics(steps={}, tasks=[])

    def report(metrics: JobMetrics) -> None:
        nonlocal ended
        ended = metrics
        follower.tell(metrics)

    began = time.monotonic()
    with follower.shown():
        status = Run(
            flow=build(
                files.source(),
                files.weather_source(),
                files.results(),
                max_delay=replay.max_delay,
            ),
            parallelism=replay.parallelism,
            uvloop=True,
            say=lambda text: console.print(text, markup=False),
            report=report,
            recovering=replay.recovering,
            follow=follower.follow,
        ).to_the_end()
    seconds = time.monotonic() - began
    if status == DONE and replay.tables:
        show_worst(console, data, files)
        show_weather(console, files, new_york())
        show_totals(console, ended, files, replay.max_delay, seconds=seconds)
    return status
