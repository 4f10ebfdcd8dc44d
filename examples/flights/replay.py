"""Replay the flights: prepare the inputs, run the pipeline, show the results."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rich.console import Console

import aflow as af
from flights.data import FlightData, write_replay, write_weather
from flights.display import ProgressDisplay
from flights.files import Files
from flights.job import NO_RECOVERY, ExitStatus, Recovery, run_job
from flights.pipeline import build
from flights.tables import (
    counted,
    days_of,
    hours_of,
    new_york,
    show_totals,
    show_weather,
    show_worst,
)

if TYPE_CHECKING:
    from flights.through.servers import Servers

#: Interval of the checkpoints of a replay that is killed; a replay takes seconds.
CRASH_INTERVAL: Final = timedelta(milliseconds=500)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """Options of a replay."""

    output: Path
    records: int | None = None
    """Number of flights, the first departures of 2013; None: all."""
    parallelism: int = 1
    max_delay: timedelta = timedelta(hours=2)
    recovery: Recovery = NO_RECOVERY
    kill_after: timedelta | None = None
    """Start the replay in another process, and kill that one after this time."""
    tables: bool = True
    """False shows progress only."""
    web: bool = False
    """Show the job on the page of aflow.web, until Ctrl-C."""
    through: Servers | None = None
    """Servers from which the pipeline reads, and into which it writes; None: files."""
    published: bool = False
    """True if the servers have the inputs already."""


def run_replay(replay: Replay) -> ExitStatus:
    """Replay the departures of 2013 and write the results into a folder.

    Raises ``SourceError`` if the data are not installed, ``SinkError`` if the folder cannot be written, and any error
    of the job. After Ctrl-C the tables show the flights that were read until then.
    """
    console = Console(highlight=False)
    data, files = FlightData.installed(), Files(replay.output)
    new_york()  # a missing time zone is reported before the run, not after it
    with console.status("sorting the flights of 2013 by departure"):
        total = prepare(data, files, replay.records)
    console.print(
        f"Replaying {counted(total, 'flight')} in the order of departure; "
        "event time is the scheduled departure (UTC).",
        soft_wrap=True,
    )
    if replay.through is not None and not replay.published:
        with console.status("publishing flights and weather to Kafka"):
            replay.through.publish(files)
        console.print("Flights and weather are in Kafka, hours and days go to PostgreSQL.")
    if replay.kill_after is not None:
        replay = _crash(console, files, replay, replay.kill_after)
    return _run(console, data, files, replay)


def prepare(data: FlightData, files: Files, records: int | None) -> int:
    """Write the inputs and return the number of flights. Raises ``SinkError`` if the folder cannot be written."""
    try:
        files.folder.mkdir(parents=True, exist_ok=True)
        write_weather(data, files.weather)
        return write_replay(data, files.replay, records=records)
    except OSError as exc:
        raise af.errors.SinkError(
            f"cannot write into {files.folder}: {exc.strerror or exc}; choose another folder with --output"
        ) from exc


def _run(console: Console, data: FlightData, files: Files, replay: Replay) -> ExitStatus:
    started = time.monotonic()
    ends = replay.through
    flow = build(
        files.source() if ends is None else ends.source(),
        files.weather_source() if ends is None else ends.weather_source(),
        files.sinks() if ends is None else ends.sinks(files),
        max_delay=replay.max_delay,
    )
    ended = run_job(
        flow,
        ProgressDisplay(console),
        parallelism=replay.parallelism,
        recovery=replay.recovery,
        web=replay.web,
    )
    seconds = time.monotonic() - started
    if ended.status == ExitStatus.DONE and replay.tables:
        hours = hours_of(files) if ends is None else ends.hours()
        days = days_of(files) if ends is None else ends.days()
        show_worst(console, data, hours, days)
        show_weather(console, files, new_york())
        show_totals(console, ended.metrics, files, replay.max_delay, seconds=seconds)
    return ended.status


def _crash(console: Console, files: Files, replay: Replay, after: timedelta) -> Replay:
    """Run the replay in another process, kill it, and return the options that continue it."""
    files.clear()
    console.print(
        f"Another process starts the replay and is killed (SIGKILL) after {after.total_seconds():g} s.",
        soft_wrap=True,
    )
    options = ["--output", str(replay.output), "--parallelism", str(replay.parallelism)]
    options += ["--max-delay", f"{replay.max_delay.total_seconds():g}s"]
    options += [] if replay.records is None else ["--records", str(replay.records)]
    if replay.through is not None:
        options += ["--through", "kafka", "--published", "--kafka", replay.through.kafka]
    database = None if replay.through is None else replay.through.postgres
    if run_and_kill(options, files.checkpoints, after, database=database):
        count = len(list(files.checkpoints.glob("checkpoint-*.json")))
        console.print(
            f"Killed after {counted(count, 'completed checkpoint')}. This process continues from the last one.",
            soft_wrap=True,
        )
    else:
        console.print("The replay ended before the kill; choose a shorter --kill-after.")
    settings = af.Checkpointing(storage=files.checkpoints, every=CRASH_INTERVAL)
    return dataclasses.replace(replay, recovery=Recovery(checkpointing=settings))


def run_and_kill(
    options: Sequence[str], checkpoints: Path, after: timedelta, *, database: str | None = None
) -> bool:
    """Run a replay with ``options`` in another process and kill it; return False if it ended before.

    The address of a ``database`` is in its environment: it may contain a password, and others see command lines.
    Raises ``CheckpointError`` if it failed before.
    """
    environment = os.environ if database is None else {**os.environ, "DATABASE_URL": database}
    command = [sys.executable, "-m", "flights", "replay", *options]
    command += ["--checkpoint-dir", str(checkpoints)]
    command += ["--checkpoint-every", f"{CRASH_INTERVAL.total_seconds():g}s"]
    command += ["--from", af.checkpoints.StartFrom.FRESH.value, "--no-tables"]
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            _, output = process.communicate(timeout=after.total_seconds())
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            return True
    if process.returncode:
        raise af.CheckpointError(f"the replay failed before it was killed:\n{output}")
    return False
