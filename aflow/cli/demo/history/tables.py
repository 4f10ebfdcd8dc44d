"""The tables of the package as Parquet: what a history is kept in, and what both Spark and a live job can read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

import aflow as af
from aflow.cli.demo.command import prepare
from aflow.cli.demo.data import FlightData
from aflow.cli.demo.files import Files
from aflow.cli.demo.flights import Flight
from aflow.cli.demo.history.files import HistoryFiles
from aflow.cli.demo.weather import Observation
from aflow_connectors.files import CsvSource, ParquetSink

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Period:
    """From ``since`` on, and before ``end``; None: as the tables begin and end."""

    since: datetime | None = None
    end: datetime | None = None

    def __contains__(self, moment: datetime) -> bool:
        return (self.since is None or self.since <= moment) and (
            self.end is None or moment < self.end
        )


def write_tables(data: FlightData, files: HistoryFiles, period: Period) -> int:
    """Write flights and weather of ``period`` as Parquet; how many flights.

    Raises ``SinkError`` if the folder cannot be written, and ``SourceError`` for tables that are not as they should be.
    """
    tables = Files(files.tables)
    prepare(data, tables, None)
    for airport in sorted(tables.weather.glob("*.csv")):
        asyncio.run(
            _copied(
                CsvSource(airport, of=Observation, missing=("NA",)),
                ParquetSink(files.weather / f"{airport.stem}.parquet", overwrite=True),
                lambda hour: hour.time_hour in period,
            )
        )
    return asyncio.run(
        _copied(
            CsvSource(tables.replay, of=Flight, missing=("NA",)),
            ParquetSink(files.flights, overwrite=True),
            lambda flight: flight.scheduled in period,
        )
    )


async def _copied(source: af.Source[T], sink: af.Sink[T], keep: Callable[[T], bool]) -> int:
    flow = af.Flow("tables")
    flow.source(source, name="table").filter(keep, name="kept").to(sink, name="parquet")
    async with flow.start() as job:
        await job.wait()
    return job.metrics().steps["parquet"].records_in
