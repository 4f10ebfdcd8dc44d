"""The hand-over: the first part on Spark, the rest live from its savepoint, everything live, and the comparison."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

from rich.console import Console

from aflow_connectors.spark.environment import check_java, check_packages
from flights.backfill.comparison import compare
from flights.backfill.files import Computation, HistoryFiles
from flights.backfill.history import History, run_history
from flights.backfill.live import LiveRun, run_live
from flights.backfill.report import show_results, show_steps, show_totals
from flights.backfill.stream import run_stream
from flights.backfill.tables import Period, write_tables
from flights.data import FlightData
from flights.job import ExitStatus

#: The middle of the year, in the evening of June 30th in New York.
MIDSUMMER: Final = datetime(2013, 7, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class HandOver:
    """Options of a hand-over."""

    output: Path
    until: datetime = MIDSUMMER
    """End of the part on Spark and start of the live job."""
    period: Period = field(default_factory=Period)
    """Part of the year that is used."""
    partitions: int = 2
    """Cores of Spark, and tasks of each step there."""
    parallelism: int = 1
    """Subtasks of each keyed step in live jobs."""
    arriving: int | None = None
    """Number of files in which each table arrives, if the part on Spark is a stream; None for a backfill."""


def run_hand_over(options: HandOver) -> ExitStatus:
    """Compute everything once in two parts and once as a whole, and write the results into a folder.

    Returns ``FAILED`` if a row differs. Raises ``ConnectorError`` if Java or a package is missing, ``SourceError`` if
    the data are not installed, ``SinkError`` if the folder cannot be written, and any error of Spark and of the jobs.
    """
    check_packages()
    check_java()
    console, data = Console(highlight=False), FlightData.installed()
    try:
        return _HandOver(console, data, HistoryFiles(options.output), options).run()
    except KeyboardInterrupt:
        console.print("interrupted: the files in the folder are incomplete")
        return ExitStatus.INTERRUPTED


@dataclass(slots=True)
class _HandOver:
    """A hand-over in progress."""

    console: Console
    data: FlightData
    files: HistoryFiles
    options: HandOver
    #: Durations by phase.
    seconds: dict[str, float] = field(default_factory=dict[str, float])

    def run(self) -> ExitStatus:
        planes = self.data.folder / "planes.csv"
        self.files.clear()
        part = "history" if self.options.arriving is None else "a stream of arriving files"
        self.console.print(
            f"Flights of 2013: {part} before {self._until} on Spark, the rest live from its savepoint, "
            f"then everything live.",
            soft_wrap=True,
        )
        history = self._history(planes)
        live = self._live(Computation.LIVE, planes)
        complete = self._complete(live, history)
        whole = self._live(Computation.WHOLE, planes) if complete else None
        if whole is None or not self._complete(whole, history):
            self.console.print("interrupted: there is nothing to compare")
            return ExitStatus.INTERRUPTED
        return self._report(history, live, whole)

    def _history(self, planes: Path) -> History:
        with self.console.status(f"on Spark, before {self._until}"):
            started = time.monotonic()
            history = self._on_spark(planes)
            self.seconds["start of Spark"] = history.ready_s
            name = "history" if self.options.arriving is None else "stream"
            self.seconds[name] = time.monotonic() - started - history.ready_s
        self.console.print(
            f"On Spark: {history.summary}, after {history.ready_s:.1f} s for the start of Spark and the tables.",
            soft_wrap=True,
        )
        return history

    def _on_spark(self, planes: Path) -> History:
        write = partial(write_tables, self.data, self.files, self.options.period)
        until, partitions = self.options.until, self.options.partitions
        if self.options.arriving is None:
            return run_history(self.files, planes, write, until=until, partitions=partitions)
        return run_stream(
            self.files,
            planes,
            write,
            until=until,
            partitions=partitions,
            arriving=self.options.arriving,
        )

    def _live(self, computation: Computation, planes: Path) -> LiveRun:
        name = "live from the savepoint" if computation is Computation.LIVE else "all live"
        self.console.print(f"{name.capitalize()}:")
        run = run_live(
            self.console, self.files, computation, planes, parallelism=self.options.parallelism
        )
        self.seconds[name] = run.seconds
        return run

    def _complete(self, run: LiveRun, history: History) -> bool:
        """Return True if the job read all flights and was not stopped."""
        read = run.ended.metrics.steps["every flight"].records_in
        return run.ended.status == ExitStatus.DONE and read == history.flights

    def _report(self, history: History, live: LiveRun, whole: LiveRun) -> ExitStatus:
        with self.console.status("comparing row for row"):
            started = time.monotonic()
            compared = compare(self.files)
            self.seconds["comparison"] = time.monotonic() - started
        show_steps(self.console, history, live.ended.metrics, whole.ended.metrics)
        show_results(self.console, compared)
        differences = sum(one.differences for one in compared)
        show_totals(self.console, self.seconds, self.files, differences)
        return ExitStatus.FAILED if differences else ExitStatus.DONE

    @property
    def _until(self) -> str:
        return f"{self.options.until:%Y-%m-%d %H:%M} UTC"
