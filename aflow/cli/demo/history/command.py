"""``aflow demo backfill``: history on Spark, the rest live from its savepoint, all of it live, and the comparison."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

from rich.console import Console

from aflow.cli.demo.data import FlightData
from aflow.cli.demo.history.comparing import compare
from aflow.cli.demo.history.files import HistoryFiles, HistoryRun
from aflow.cli.demo.history.live import Ran, run_live
from aflow.cli.demo.history.on_spark import OnSpark, on_spark
from aflow.cli.demo.history.shown import open_at, show_results, show_steps, show_totals
from aflow.cli.demo.history.tables import Period, write_tables
from aflow.cli.demo.tables import counted
from aflow.cli.usage import DONE, FAILED, STOPPED_AT_ONCE
from aflow_connectors.spark.environment import check_java, check_packages

#: The middle of the year, in the evening of New York's June 30th.
MIDSUMMER: Final = datetime(2013, 7, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class HandOver:
    """What is computed, and how."""

    output: Path
    until: datetime = MIDSUMMER
    """Where the history ends and the live job begins."""
    period: Period = field(default_factory=Period)
    """What of the year is taken."""
    partitions: int = 2
    """Cores of Spark, and tasks of each of its steps."""
    parallelism: int = 1
    """Subtasks of each keyed step in live jobs."""


def run_hand_over(chosen: HandOver) -> int:
    """Compute everything once in two parts and once in one, and leave the results in a folder.

    Returns the exit status: 0, 1 if a row differs, 130 if the user had it stopped. Raises ``ConnectorError`` if Java or
    a package is missing, ``SourceError`` if the data are not installed, ``SinkError`` if the folder cannot be written,
    and what else fails.
    """
    check_packages()
    check_java()
    console, data = Console(highlight=False), FlightData.installed()
    try:
        return _HandOver(console, data, HistoryFiles(chosen.output), chosen).run()
    except KeyboardInterrupt:
        console.print("stopped: what is in the folder is not complete")
        return STOPPED_AT_ONCE


@dataclass(slots=True)
class _HandOver:
    """The hand-over under way."""

    console: Console
    data: FlightData
    files: HistoryFiles
    chosen: HandOver
    #: How long what took.
    seconds: dict[str, float] = field(default_factory=dict[str, float])

    def run(self) -> int:
        planes = self.data.folder / "planes.csv"
        self.files.begin()
        self.console.print(
            f"Flights of 2013: those before {self._until} on Spark, the others live from its savepoint, "
            f"then all of them live.",
            soft_wrap=True,
        )
        history = self._on_spark(planes)
        live = self._live(HistoryRun.LIVE, planes)
        complete = self._complete(live, history)
        whole = self._live(HistoryRun.WHOLE, planes) if complete else None
        if whole is None or not self._complete(whole, history):
            self.console.print("stopped: there is nothing to compare")
            return STOPPED_AT_ONCE
        return self._told(history, live, whole)

    def _on_spark(self, planes: Path) -> OnSpark:
        with self.console.status(f"on Spark: everything before {self._until}"):
            began = time.monotonic()
            history = on_spark(
                self.files,
                planes,
                partial(write_tables, self.data, self.files, self.chosen.period),
                until=self.chosen.until,
                partitions=self.chosen.partitions,
            )
            self.seconds["starting"] = history.ready_s
            self.seconds["history on Spark"] = time.monotonic() - began - history.ready_s
        taken = sum(one.records_out for one in history.done.steps if one.name == "every flight")
        self.console.print(
            f"On Spark: {counted(taken, 'flight')} of {history.flights:,} in "
            f"{self.seconds['history on Spark']:.1f} s, and {history.ready_s:.1f} s to start it and write the tables.",
            soft_wrap=True,
        )
        return history

    def _live(self, where: HistoryRun, planes: Path) -> Ran:
        said = "live from the savepoint" if where is HistoryRun.LIVE else "all live"
        self.console.print(f"{said.capitalize()}:")
        ran = run_live(self.console, self.files, where, planes, parallelism=self.chosen.parallelism)
        self.seconds[said] = ran.seconds
        return ran

    def _complete(self, ran: Ran, history: OnSpark) -> bool:
        """Whether a job has read all, and was not stopped."""
        read = ran.metrics.steps["every flight"].records_in
        return ran.status == DONE and read == history.flights

    def _told(self, history: OnSpark, live: Ran, whole: Ran) -> int:
        with self.console.status("comparing row for row"):
            began = time.monotonic()
            opened = open_at(self.files.savepoint)
            compared = compare(self.files)
            self.seconds["comparing"] = time.monotonic() - began
        show_steps(self.console, history.done, live.metrics, whole.metrics, opened)
        show_results(self.console, compared)
        differences = sum(one.differences for one in compared)
        show_totals(self.console, self.seconds, self.files, differences)
        return FAILED if differences else DONE

    @property
    def _until(self) -> str:
        return f"{self.chosen.until:%Y-%m-%d %H:%M} UTC"
