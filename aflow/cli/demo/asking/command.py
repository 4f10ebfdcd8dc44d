"""``aflow demo weather``: starts the service, runs the pipeline against it, and shows how both got along."""

from __future__ import annotations

import csv
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console

from aflow.cli.demo.asking.apart import Apart, Settings, service_apart
from aflow.cli.demo.asking.client import CountedRetry, session
from aflow.cli.demo.asking.desk import CAPACITIES, Capacities
from aflow.cli.demo.asking.faults import Faults
from aflow.cli.demo.asking.pipeline import RETRY, Ends, build
from aflow.cli.demo.asking.progress import Watch
from aflow.cli.demo.asking.tables import Outcome, show_outcome
from aflow.cli.demo.command import prepare
from aflow.cli.demo.data import FlightData
from aflow.cli.demo.files import Files
from aflow.cli.demo.tables import counted
from aflow.cli.running import Run
from aflow.cli.usage import DONE, FAILED

#: The service goes through its capacities so often while all questions are asked.
_ROUNDS: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """What is asked, and how."""

    output: Path
    records: int | None = None
    """The first departures of 2013, so many of them; None: all."""
    parallelism: int = 1
    seed: int = 1
    """Of what the service does wrong."""


def run_asking(asking: Asking) -> int:
    """Let each flight ask for its weather, and leave the results in a folder.

    Returns the exit status: 0, 1 if an answer is not what the join has found or is missing, 130 if the user had it
    stopped at once. Ctrl-C drains, and what was asked until then is compared. Raises ``SourceError`` if the data are
    not installed or the service does not start, ``SinkError`` if the folder cannot be written, and what else made the
    job fail.
    """
    console = Console(highlight=False)
    data, files = FlightData.installed(), Files(asking.output)
    with console.status("putting the flights of 2013 in order of departure"):
        total = prepare(data, files, asking.records)
        questions = count_questions(files.replay)
    console.print(
        f"{counted(total, 'flight')} ask for the weather in {counted(questions, 'hour')} at their airports. "
        f"The service takes {', '.join(map(str, CAPACITIES))} requests at once, by turns, and refuses the others; "
        f"2% fail, 1% break off, 1% take ten times as long.",
        soft_wrap=True,
    )
    settings = Settings(
        weather=str(files.weather),
        faults=Faults(seed=asking.seed),
        capacities=Capacities(phase=max(1, questions // (_ROUNDS * len(CAPACITIES)))),
    )
    with service_apart(settings) as service:
        return ask_all(console, files, asking, service)


def count_questions(replay: Path) -> int:
    """Of how many hours at an airport the flights of ``replay`` want to know the weather."""
    with replay.open(encoding="utf-8", newline="") as lines:
        rows = csv.DictReader(lines)
        return len({(row["origin"], row["time_hour"]) for row in rows})


def lines_of_weather(folder: Path) -> int:
    """How many there are in all files, without the names of columns."""
    return sum(
        len(path.read_text(encoding="utf-8").splitlines()) - 1 for path in folder.glob("*.csv")
    )


def ends(files: Files) -> Ends:
    """Sinks for all results, each with the name of its stream."""
    return Ends(
        in_weather=files.sink("in-weather"),
        mismatches=files.sink("mismatches"),
        unanswered=files.sink("unanswered"),
        malformed=files.sink("malformed"),
    )


def ask_all(console: Console, files: Files, asking: Asking, service: Apart) -> int:
    """Run the pipeline over the inputs in ``files`` against ``service``; the exit status as ``run_asking`` has it."""
    retry = CountedRetry(RETRY)
    watch = Watch(console, service, retry.causes)
    began = time.monotonic()
    with watch.shown():
        status = Run(
            flow=build(
                files.source(),
                files.weather_source(),
                ends(files),
                connect=lambda: session(service.url),
                retry=retry,
            ),
            parallelism=asking.parallelism,
            uvloop=True,
            say=lambda text: console.print(text, markup=False),
            report=watch.ended,
            follow=watch.follow,
        ).to_the_end()
    if status != DONE:
        return status
    weather = lines_of_weather(files.weather)
    outcome = Outcome.of(watch.metrics, service.counts(), retry.causes, weather=weather)
    show_outcome(console, outcome, watch.course, files, seconds=time.monotonic() - began)
    return DONE if outcome.all_right else FAILED
