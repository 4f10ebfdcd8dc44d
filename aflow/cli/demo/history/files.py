"""The files that the hand-over reads and writes, all in one folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from shutil import rmtree
from typing import Any, Final

from aflow.cli.demo.flights import Flight
from aflow.cli.demo.history.around_storms import AroundStorm
from aflow.cli.demo.history.hours import Hour
from aflow.cli.demo.history.silence import Grounded, Silent
from aflow.cli.demo.history.stretches import Stretch
from aflow.cli.demo.weather import Observation
from aflow.errors import SinkError
from aflow_connectors.files import ParquetSink, ParquetSource

#: What the pipeline's sinks are called, and what their rows are.
RESULTS: Final[Mapping[str, type[Any]]] = {
    "hours": Hour,
    "worst_hours": Hour,
    "stretches": Stretch,
    "silent": Silent,
    "grounded": Grounded,
    "around": AroundStorm,
}


class HistoryRun(Enum):
    """Which of the three computations has written a result; the name of its folder."""

    HISTORY = "history"
    """That on Spark."""
    LIVE = "live"
    """That from the savepoint on."""
    WHOLE = "whole"
    """All of it live."""


@dataclass(frozen=True, slots=True)
class HistoryFiles:
    """Files below ``folder``; those of an earlier run are replaced."""

    folder: Path

    @property
    def tables(self) -> Path:
        """The tables of the package, in the order in which the demos read them."""
        return self.folder / "csv"

    @property
    def flights(self) -> Path:
        """The input: flights in order of departure."""
        return self.folder / "flights.parquet"

    @property
    def weather(self) -> Path:
        """The other input: a folder with the weather at each airport."""
        return self.folder / "weather"

    @property
    def savepoint(self) -> Path:
        """What Spark leaves, and where the live job begins."""
        return self.folder / "savepoint"

    @property
    def checkpoints(self) -> Path:
        """Those of the job that begins there."""
        return self.folder / "checkpoints"

    @property
    def spark_log(self) -> Path:
        """What Spark has to say."""
        return self.folder / "spark.log"

    def results(self, where: HistoryRun, sink: str) -> Path:
        """The folder for the rows of a sink."""
        return self.folder / where.value / sink

    def begin(self) -> None:
        """Make the folder, without what an earlier run has left there. Raises ``SinkError`` if that cannot be done."""
        results = (self.folder / where.value for where in HistoryRun)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            for folder in (self.savepoint, self.checkpoints, *results):
                if folder.exists():
                    rmtree(folder)
        except OSError as exc:
            raise SinkError(
                f"cannot write into {self.folder}: {exc.strerror or exc}; --output names another folder"
            ) from exc

    def flights_source(self) -> ParquetSource[Flight]:
        """Reads the flights for a live job."""
        return ParquetSource(self.flights, of=Flight)

    def weather_source(self) -> ParquetSource[Observation]:
        """Reads the weather for a live job, all airports side by side."""
        return ParquetSource(self.weather, of=Observation, concurrency=None)

    def sinks(self, where: HistoryRun) -> dict[str, ParquetSink[Any]]:
        """The pipeline's sinks in a live job."""
        return {sink: ParquetSink(self.results(where, sink)) for sink in RESULTS}
