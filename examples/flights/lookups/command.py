"""Look up the weather of each flight: start the service, run the pipeline, compare the counts of both."""

from __future__ import annotations

import csv
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console

from flights.data import FlightData
from flights.files import Files
from flights.job import ExitStatus, run_job
from flights.lookups.capacity import CAPACITIES, Capacities
from flights.lookups.client import CountedRetry, session
from flights.lookups.display import LookupDisplay
from flights.lookups.faults import Faults
from flights.lookups.pipeline import RETRY, Sinks, build
from flights.lookups.report import Summary, show_summary
from flights.lookups.service_process import ServiceProcess, Settings, service_process
from flights.replay import prepare
from flights.tables import counted

#: Number of cycles through the capacities of the service during a run.
_CYCLES: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class LookupOptions:
    """Options of a run."""

    output: Path
    records: int | None = None
    """Number of flights, the first departures of 2013; None: all."""
    parallelism: int = 1
    seed: int = 1
    """Seed of the faults of the service."""


def run_lookups(options: LookupOptions) -> ExitStatus:
    """Look up the weather of each flight and write the results into a folder.

    Returns ``FAILED`` if an answer differs from the join or is missing. Raises ``SourceError`` if the data are not
    installed or the service does not start, ``SinkError`` if the folder cannot be written, and any error of the job.
    After Ctrl-C the answers until then are compared.
    """
    console = Console(highlight=False)
    data, files = FlightData.installed(), Files(options.output)
    with console.status("sorting the flights of 2013 by departure"):
        total = prepare(data, files, options.records)
        questions = count_questions(files.replay)
    console.print(
        f"{counted(total, 'flight')} look up the weather of {counted(questions, 'hour')} at their airports. "
        f"The service accepts {', '.join(map(str, CAPACITIES))} concurrent requests in turn and rejects others; "
        f"2% fail, 1% break off, 1% take ten times as long.",
        soft_wrap=True,
    )
    settings = Settings(
        weather=str(files.weather),
        faults=Faults(seed=options.seed),
        capacities=Capacities(phase=max(1, questions // (_CYCLES * len(CAPACITIES)))),
    )
    with service_process(settings) as service:
        return look_up_all(console, files, options, service)


def count_questions(replay: Path) -> int:
    """Return the number of different hours at airports that the flights of ``replay`` look up."""
    with replay.open(encoding="utf-8", newline="") as lines:
        rows = csv.DictReader(lines)
        return len({(row["origin"], row["time_hour"]) for row in rows})


def count_observations(folder: Path) -> int:
    """Return the number of lines in all files of weather, without their headers."""
    return sum(
        len(path.read_text(encoding="utf-8").splitlines()) - 1 for path in folder.glob("*.csv")
    )


def sinks(files: Files) -> Sinks:
    """Return the sinks of all results."""
    return Sinks(
        in_weather=files.sink("in-weather"),
        mismatches=files.sink("mismatches"),
        unanswered=files.sink("unanswered"),
        malformed=files.sink("malformed"),
    )


def look_up_all(
    console: Console, files: Files, options: LookupOptions, service: ServiceProcess
) -> ExitStatus:
    """Run the pipeline over the inputs in ``files`` against ``service``; return and raise as ``run_lookups`` does."""
    retry = CountedRetry(RETRY)
    display = LookupDisplay(console, service, retry.causes)
    started = time.monotonic()
    flow = build(
        files.source(),
        files.weather_source(),
        sinks(files),
        connect=lambda: session(service.url),
        retry=retry,
    )
    ended = run_job(flow, display, parallelism=options.parallelism)
    if ended.status != ExitStatus.DONE:
        return ended.status
    observations = count_observations(files.weather)
    summary = Summary.of(ended.metrics, service.counts(), retry.causes, weather=observations)
    show_summary(console, summary, display.trace, files, seconds=time.monotonic() - started)
    return ExitStatus.DONE if summary.is_correct else ExitStatus.FAILED
