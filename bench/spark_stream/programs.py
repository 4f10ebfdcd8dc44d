"""The compared programs: a sum for each key and window, by Spark alone, by ``transformWithStateInPandas``, by aflow.

All of them read the same files, one micro-batch after the other without a pause, and write closed windows as Parquet
into the folder ``sums``. Each returns the seconds of the trigger of each measured batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pyspark.sql import functions
from pyspark.sql.streaming.stateful_processor import StatefulProcessor

from aflow_connectors.spark import SparkSink, SparkStream, stream
from bench.harness import run_async
from bench.spark.windows import COLUMNS, WINDOW, Event, Sum, build
from bench.spark_stream.batches import Batches, read_stream

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

pd: Any = import_module("pandas")  # which has no types

Program: TypeAlias = "Callable[[SparkSession, Batches, Path, Path], list[float]]"
"""Takes the session, the batches, the folder of their files, and the folder for its state and results."""

#: Interval between triggers, shorter than any batch.
_EVERY: Final = timedelta(milliseconds=20)

#: Setting of the store for state; ``transformWithState`` needs RocksDB.
_PROVIDER: Final = "spark.sql.streaming.stateStore.providerClass"
_ROCKSDB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def by_spark(session: SparkSession, batches: Batches, files: Path, out: Path) -> list[float]:
    """Run ``groupBy(window(…))`` of Structured Streaming."""
    moments = _with_time(read_stream(session, files))
    windows = moments.groupBy("who", functions.window("moment", f"{WINDOW} milliseconds"))
    sums = windows.agg({"price": "sum"}).selectExpr(
        "who", "unix_millis(window.start) as start", "`sum(price)` as total"
    )
    return _written(sums, batches, out)


def by_processor(session: SparkSession, batches: Batches, files: Path, out: Path) -> list[float]:
    """Run ``transformWithStateInPandas`` with a value and a timer for each key and window."""
    moments = _with_time(read_stream(session, files))
    grouped: Any = moments.selectExpr(
        "who", f"at - at % {WINDOW} as start", "price", "moment"
    ).groupBy("who", "start")
    before = session.conf.get(_PROVIDER)
    session.conf.set(_PROVIDER, _ROCKSDB)
    try:
        processor = SumProcessor()
        sums = grouped.transformWithStateInPandas(processor, COLUMNS, "Append", "EventTime")
        return _written(sums, batches, out)
    finally:
        session.conf.set(_PROVIDER, str(before))


def by_aflow(session: SparkSession, batches: Batches, files: Path, out: Path) -> list[float]:
    """Run ``stream`` with a window and ``aggregates.sum``."""

    async def run() -> StreamingQuery:
        query = stream(
            build,
            session=session,
            sources={"events": SparkStream(read_stream(session, files), of=Event)},
            sinks={"sums": SparkSink[Sum](out / "sums", schema=COLUMNS)},
            state=out / "state",
            every=_EVERY,
            until=batches.end,
            savepoint=out / "savepoint",
        )
        async with query:
            (of_spark,) = session.streams.active
            await query.wait()
        return of_spark

    return _seconds_of(run_async(run()), batches)


def by_nothing(session: SparkSession, batches: Batches, files: Path, out: Path) -> list[float]:
    """Run a function for ``foreachBatch`` that returns: the costs of Spark's trigger. There are no results.

    A thread of the process waits for further calls as long as the session lives.
    """
    writer = read_stream(session, files).writeStream.foreachBatch(_return)
    return _seconds_of(_until_the_end(writer, out), batches)


def _return(rows: DataFrame, batch: int) -> None:
    pass


class SumProcessor(StatefulProcessor):
    """A sum for each key and window, which a timer emits."""

    def init(self, handle: Any) -> None:
        """Declare the state."""
        self._handle = handle
        self._total = handle.getValueState("total", "total long")

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Any,
        timerValues: Any,  # noqa: N803
    ) -> Iterator[Any]:
        """Add the prices of ``rows``."""
        added = sum(int(frame["price"].sum()) for frame in rows)
        held = self._total.get()
        if held is None:
            self._handle.registerTimer(key[1] + WINDOW - 1)
        self._total.update((added + (0 if held is None else held[0]),))
        return iter(())

    def handleExpiredTimer(  # noqa: N802
        self,
        key: Any,
        timerValues: Any,  # noqa: N803
        expiredTimerInfo: Any,  # noqa: N803
    ) -> Iterator[Any]:
        """Emit the sum."""
        total = self._total.get()[0]
        self._total.clear()
        yield pd.DataFrame({"who": [key[0]], "start": [key[1]], "total": [total]})


def _with_time(events: DataFrame) -> DataFrame:
    moments = events.selectExpr("who", "at", "price", "timestamp_millis(at) as moment")
    # Not 0: ``transformWithState`` drops a row at the watermark, and batches begin at the time at which others end.
    return moments.withWatermark("moment", "1 milliseconds")


def _written(sums: DataFrame, batches: Batches, out: Path) -> list[float]:
    writer = sums.writeStream.format("parquet").option("path", str(out / "sums"))
    return _seconds_of(_until_the_end(writer.outputMode("append"), out), batches)


def _until_the_end(writer: DataStreamWriter, out: Path) -> StreamingQuery:
    """Run a query of Spark until it has processed all files and emitted what is due."""
    interval = f"{round(_EVERY.total_seconds() * 1000)} milliseconds"
    writer = writer.option("checkpointLocation", str(out / "state"))
    query = writer.trigger(processingTime=interval).start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    return query


def _seconds_of(query: StreamingQuery, batches: Batches) -> list[float]:
    """Return the seconds of the trigger of each measured batch. Raises ``SystemExit`` if one is missing."""
    found = {
        int(one["batchId"]): float(one["durationMs"]["triggerExecution"]) / 1000
        for one in query.recentProgress
        if "addBatch" in one["durationMs"]
    }
    if missing := set(batches.numbers) - found.keys():
        raise SystemExit(
            f"spark_stream: Spark reports no batches {sorted(missing)}, only {sorted(found)}"
        )
    return [found[number] for number in batches.numbers]
