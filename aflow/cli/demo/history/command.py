"""``aflow demo backfill``: history on Spark, the rest live from its savepoint, all of it live, and the comparison."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from rich.console import Console

from aflow.cli.demo.data import FlightData
from aflow.cli.demo.history.comparing import compare
from aflow.cli.demo.history.files import HistoryFiles, Where
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
    parallelism: int = 3
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
        with self._doing("writing", "writing the tables of 2013 as Parquet"):
            self.files.clear()
            flights = write_tables(self.data, self.files, self.chosen.period)
        self.console.print(
            f"{counted(flights, 'flight')}: those before {self._until} on Spark, the others live from its savepoint. "
            f"Then all of them live, to compare.",
            soft_wrap=True,
        )
        history = self._on_spark(planes)
        live = self._live(Where.LIVE, planes)
        whole = self._live(Where.WHOLE, planes) if self._complete(live, flights) else None
        if whole is None or not self._complete(whole, flights):
            self.console.print("stopped: there is nothing to compare")
            return STOPPED_AT_ONCE
        return self._told(history, live, whole)

    def _on_spark(self, planes: Path) -> OnSpark:
        with self._doing("history on Spark", f"on Spark: everything before {self._until}"):
            history = on_spark(
                self.files,
                planes,
                until=self.chosen.until,
                partitions=self.chosen.partitions,
            )
        self.seconds["starting Spark"] = history.start_s
        self.seconds["history on Spark"] -= history.start_s
        taken = self._taken(history)
        self.console.print(
            f"On Spark: {counted(taken, 'flight')} before {self._until}, in {self.seconds['history on Spark']:.1f} s "
            f"and {history.start_s:.1f} s for its start."
        )
        return history

    def _live(self, where: Where, planes: Path) -> Ran:
        said = "live from the savepoint" if where is Where.LIVE else "all live"
        self.console.print(f"{said.capitalize()}:")
        ran = run_live(self.console, self.files, where, planes, parallelism=self.chosen.parallelism)
        self.seconds[said] = ran.seconds
        return ran

    def _complete(self, ran: Ran, flights: int) -> bool:
        """Whether a job has read all, and was not stopped."""
        return ran.status == DONE and ran.metrics.steps["every flight"].records_in == flights

    def _told(self, history: OnSpark, live: Ran, whole: Ran) -> int:
        with self._doing("comparing", "comparing row for row"):
            opened = open_at(self.files.savepoint)
            compared = compare(self.files)
        differences = sum(one.differences for one in compared)
        show_steps(self.console, history.done, live.metrics, whole.metrics, opened)
        show_results(self.console, compared)
        show_totals(self.console, self.seconds, self.files, differences)
        return FAILED if differences else DONE

    @property
    def _until(self) -> str:
        return f"{self.chosen.until:%Y-%m-%d %H:%M} UTC"

    def _taken(self, history: OnSpark) -> int:
        return sum(one.records_out for one in history.done.steps if one.name == "every flight")

    @contextmanager
    def _doing(self, what: str, said: str) -> Generator[None]:
        began = time.monotonic()
        with self.console.status(said):
            yield
        self.seconds[what] = time.monotonic() - began
