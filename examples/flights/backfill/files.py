"""Files of the hand-over, all in one folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from shutil import rmtree
from typing import Any, Final

import aflow as af
from aflow_connectors.files import ParquetSink, ParquetSource
from flights.backfill.hours import Hour
from flights.backfill.silence import Grounded, Silent
from flights.backfill.storm_hours import AroundStorm
from flights.backfill.stretches import Stretch
from flights.flight import Flight
from flights.weather import Observation

#: Sinks of the pipeline by name, and the types of their rows.
RESULTS: Final[Mapping[str, type[Any]]] = {
    "hours": Hour,
    "worst_hours": Hour,
    "stretches": Stretch,
    "silent": Silent,
    "grounded": Grounded,
    "around": AroundStorm,
}


#: Columns of the results, as a stream on Spark writes them.
COLUMNS: Final[Mapping[str, str]] = {
    "hours": "airport string, hour timestamp, flights long, minutes long, longest long",
    "worst_hours": "airport string, hour timestamp, flights long, minutes long, longest long",
    "stretches": "tail string, first timestamp, last timestamp, legs long, cancelled long, delay long",
    "silent": "tail string, since timestamp, dest string, maker string, model string, seats long",
    "grounded": "maker string, week timestamp, aircraft long, seats long",
    "around": "airport string, began timestamp, gust double, rain double, flights_before long, minutes_before long, "
    "flights_after long, minutes_after long",
}


class Computation(Enum):
    """The three computations; the value is the folder of the results."""

    HISTORY = "history"
    """The first part, on Spark: a backfill or a stream."""
    LIVE = "live"
    """Live from the savepoint."""
    WHOLE = "whole"
    """Live from the beginning."""


@dataclass(frozen=True, slots=True)
class HistoryFiles:
    """Files in ``folder``. A run replaces those of an earlier run."""

    folder: Path

    @property
    def tables(self) -> Path:
        """Tables of the package, in the order in which the replay reads them."""
        return self.folder / "csv"

    @property
    def flights(self) -> Path:
        """Input: flights in the order of departure."""
        return self.folder / "flights.parquet"

    @property
    def weather(self) -> Path:
        """Input: folder with one file of weather for each airport."""
        return self.folder / "weather"

    @property
    def savepoint(self) -> Path:
        """Savepoint of the backfill, from which the live job starts."""
        return self.folder / "savepoint"

    @property
    def checkpoints(self) -> Path:
        """Checkpoints of the live job."""
        return self.folder / "checkpoints"

    @property
    def stream_state(self) -> Path:
        """Epochs of the stream."""
        return self.folder / "stream"

    def arriving(self, table: str) -> Path:
        """Return the folder in which the files of a table arrive."""
        return self.folder / "arriving" / table

    @property
    def spark_log(self) -> Path:
        """Standard error of Spark."""
        return self.folder / "spark.log"

    def results(self, computation: Computation, sink: str) -> Path:
        """Return the folder for the rows of a sink."""
        return self.folder / computation.value / sink

    def clear(self) -> None:
        """Create the folder and remove results of an earlier run. Raises ``SinkError`` if that fails."""
        results = (self.folder / computation.value for computation in Computation)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            for folder in (self.savepoint, self.checkpoints, self.stream_state, *results):
                if folder.exists():
                    rmtree(folder)
        except OSError as exc:
            raise af.errors.SinkError(
                f"cannot write into {self.folder}: {exc.strerror or exc}; choose another folder with --output"
            ) from exc

    def flights_source(self) -> ParquetSource[Flight]:
        """Return the source of the flights in a live job."""
        return ParquetSource(self.flights, of=Flight)

    def weather_source(self) -> ParquetSource[Observation]:
        """Return the source of the weather in a live job, which reads all airports in parallel."""
        return ParquetSource(self.weather, of=Observation, concurrency=None)

    def sinks(self, computation: Computation) -> dict[str, ParquetSink[Any]]:
        """Return the sinks of a live job."""
        return {sink: ParquetSink(self.results(computation, sink)) for sink in RESULTS}
