"""The first part as a stream: files arrive in a folder, and Spark processes them up to the moment of the hand-over."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aflow.errors import FlowDefinitionError
from aflow_connectors.spark import SparkSink, SparkStream, StreamProgress, stream
from flights.backfill.arriving_files import ArrivingFiles, arrive
from flights.backfill.files import COLUMNS, Computation, HistoryFiles
from flights.backfill.history import History, open_state, started_spark
from flights.backfill.pipeline import build
from flights.flight import Flight
from flights.pipeline import LONGEST_DELAY
from flights.weather import Observation

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Interval at which files arrive.
_INTERVAL: Final = timedelta(seconds=1)


def run_stream(
    files: HistoryFiles,
    planes: Path,
    write: Callable[[], int],
    *,
    until: datetime,
    partitions: int,
    arriving: int,
) -> History:
    """Run the pipeline over files that arrive, before ``until``, and write results and a savepoint to ``files``.

    Arguments and errors are those of ``run_history``; ``arriving`` is the number of files of each table. Raises
    ``FlowDefinitionError`` if the watermark would never arrive at ``until``.
    """
    with started_spark(files, write, partitions) as (session, written, ready_s):
        streamed = _Streamed(session, files, arriving)
        streamed.check_end(until)
        began = time.monotonic()
        done = asyncio.run(streamed.run(planes, until))
        seconds = time.monotonic() - began
        return History(
            summary=f"{done.epoch - 1} epochs over {done.records:,} rows in {seconds:.1f} s",
            records_in=None,
            flights=written,
            open_state=open_state(session, files.savepoint),
            ready_s=ready_s,
        )


@dataclass(frozen=True, slots=True)
class _Streamed:
    """The tables, as files that arrive."""

    session: SparkSession
    files: HistoryFiles
    arriving: int

    def check_end(self, until: datetime) -> None:
        """Raise ``FlowDefinitionError`` if no record arrives that advances the watermark to ``until``."""
        newest = f"max(time_hour) - interval {LONGEST_DELAY // timedelta(hours=1)} hours"
        for table, end in ((self.files.flights, newest), (self.files.weather, "max(time_hour)")):
            rows = self.session.read.parquet(str(table)).selectExpr(
                f"{end} > timestamp'{until:%Y-%m-%d %H:%M:%S%z}' AS arrives"
            )
            if not rows.collect()[0].arrives:
                raise FlowDefinitionError(
                    f"the stream ends when its watermark arrives at {until:%Y-%m-%d}, which needs rows of two days "
                    f"after that in {table}: choose an earlier --until, or a later --end"
                )

    async def run(self, planes: Path, until: datetime) -> StreamProgress:
        """Run the stream while files arrive, to its end."""
        flights = ArrivingFiles(self.files.arriving("flights"), self.arriving)
        flights.cut([self.files.flights])
        weather = ArrivingFiles(self.files.arriving("weather"), self.arriving)
        weather.cut(list(self.files.weather.glob("*.parquet")), order="time_hour")
        sources: Mapping[str, SparkStream[Any]] = {
            "flights": SparkStream(self._read(flights, self.files.flights), of=Flight),
            "weather": SparkStream(self._read(weather, self.files.weather), of=Observation),
        }
        query = stream(
            partial(build, planes=planes),
            session=self.session,
            sources=sources,
            sinks={
                sink: SparkSink[Any](self.files.results(Computation.HISTORY, sink), schema=columns)
                for sink, columns in COLUMNS.items()
            },
            state=self.files.stream_state,
            every=_INTERVAL,
            until=until,
            savepoint=self.files.savepoint,
        )
        async with asyncio.TaskGroup() as group:
            files = group.create_task(arrive([flights, weather], _INTERVAL))
            done = await query.wait()
            files.cancel()
        return done

    def _read(self, arriving: ArrivingFiles, table: Path) -> DataFrame:
        schema = self.session.read.parquet(str(table)).schema
        reader = self.session.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        return reader.parquet(str(arriving.folder))
