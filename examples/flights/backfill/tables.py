"""The tables of the package as Parquet files, which Spark and a live job can read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

import aflow as af
from aflow_connectors.files import CsvSource, ParquetSink
from flights.backfill.files import HistoryFiles
from flights.data import FlightData
from flights.files import Files
from flights.flight import Flight
from flights.replay import prepare
from flights.weather import Observation

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Period:
    """Interval from ``since``, inclusive, to ``end``, exclusive; None: unbounded."""

    since: datetime | None = None
    end: datetime | None = None

    def __contains__(self, moment: datetime) -> bool:
        return (self.since is None or self.since <= moment) and (
            self.end is None or moment < self.end
        )


def write_tables(data: FlightData, files: HistoryFiles, period: Period) -> int:
    """Write the flights and the weather of ``period`` as Parquet files; return the number of flights.

    Raises ``SinkError`` if the folder cannot be written, and ``SourceError`` for invalid tables.
    """
    tables = Files(files.tables)
    prepare(data, tables, None)
    for airport in sorted(tables.weather.glob("*.csv")):
        asyncio.run(
            _copy(
                CsvSource(airport, of=Observation, missing=("NA",)),
                ParquetSink(files.weather / f"{airport.stem}.parquet", overwrite=True),
                lambda hour: hour.time_hour in period,
            )
        )
    return asyncio.run(
        _copy(
            CsvSource(tables.replay, of=Flight, missing=("NA",)),
            ParquetSink(files.flights, overwrite=True),
            lambda flight: flight.scheduled in period,
        )
    )


async def _copy(source: af.Source[T], sink: af.Sink[T], keep: Callable[[T], bool]) -> int:
    flow = af.Flow("tables")
    flow.source(source, name="table").filter(keep, name="kept").to(sink, name="parquet")
    async with flow.start() as job:
        await job.wait()
    return job.metrics().steps["parquet"].records_in
