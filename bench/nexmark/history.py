"""``nexmark_history``: the queries over history on a local Spark, by ``backfill``, verified against DuckDB.

The events are in one file of Parquet. ``until=None`` lets event time run to its end, so results are those of all
events.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import msgspec
import pyarrow
from pyarrow import parquet
from rich.table import Table

from aflow_connectors.spark import SparkSource, backfill
from bench.harness import Measurement, run_async
from bench.nexmark.catalog import NexmarkQuery, Row, chosen
from bench.nexmark.generator import generate
from bench.nexmark.model import MarketEvent
from bench.nexmark.oracles import Oracle
from bench.spark.session import started

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Without complete types.
_ARROW: Final[Any] = pyarrow
_PARQUET: Final[Any] = parquet

#: Tasks of each keyed step.
PARTITIONS: Final = 2


def measure(records: int, rounds: int, only: Sequence[str] = ()) -> Measurement:
    """Measure the queries ``only`` (default: all that can be compared) over ``records`` events.

    Raises ``SystemExit`` without Spark, for an unknown query or one that cannot be compared, and if a result is not
    that of DuckDB.
    """
    queries = comparable(only)
    with TemporaryDirectory() as name:
        folder = Path(name)
        with started("nexmark_history", folder) as session:
            return measured(session, folder, queries, generate(records), rounds)


def comparable(only: Sequence[str]) -> list[NexmarkQuery]:
    """Return the queries ``only``, or all whose results over history are compared.

    Raises ``SystemExit`` for one of ``only`` whose results cannot be compared.
    """
    queries = chosen(only)
    for query in queries:
        if only and query.no_history:
            raise SystemExit(
                f"nexmark_history: {query.name} cannot be compared: {query.no_history}"
            )
    return [query for query in queries if not query.no_history]


def measured(
    session: SparkSession,
    folder: Path,
    queries: Sequence[NexmarkQuery],
    events: Sequence[MarketEvent],
    rounds: int,
) -> Measurement:
    """Measure in an existing session: a run of each query as a warm-up, then ``rounds`` in turn; 0: the warm-up."""
    history = stored(session, folder, events)
    seconds: dict[str, list[float]] = {query.name: [] for query in queries}
    with Oracle(events) as oracle:
        expected = {query.name: oracle.rows(query.name) for query in queries}
    for number in range(rounds + 1):
        for query in queries:
            took = run(query, session, history, expected[query.name])
            if number or not rounds:
                seconds[query.name].append(took)
    figures: dict[str, float | int | bool | str] = {"records": len(events)}
    for name, times in seconds.items():
        median = statistics.median(times)
        figures[f"{name}_seconds"] = round(median, 2)
        figures[f"{name}_per_s"] = round(len(events) / median)
    figures |= {"queries": len(queries), "rounds": rounds, "verified": True}
    return Measurement("nexmark_history", figures)


def stored(session: SparkSession, folder: Path, events: Sequence[MarketEvent]) -> DataFrame:
    """Write ``events`` as Parquet, and return them as a DataFrame."""
    path = folder / "events.parquet"
    rows = _ARROW.Table.from_pylist(list(map(msgspec.to_builtins, events)))
    _PARQUET.write_table(rows, path)
    return session.read.parquet(str(path))


def run(
    query: NexmarkQuery, session: SparkSession, history: DataFrame, expected: Sequence[Row]
) -> float:
    """Run ``query`` over ``history``, and return the seconds until its results are rows of this process.

    Raises ``SystemExit`` if they are not ``expected``.
    """
    found: list[Any] = []
    start = time.perf_counter()
    run_async(
        backfill(
            query.build,
            session=session,
            sources={"events": SparkSource(history, of=MarketEvent)},
            sinks={"results": partial(_collect, found)},
            until=None,
            savepoint=None,
            partitions=PARTITIONS,
            event_time_for_processing_time=True,
        )
    )
    seconds = time.perf_counter() - start
    if not query.same(found, expected):
        raise SystemExit(
            f"nexmark_history: {query.name} returned other rows than DuckDB; nothing was measured"
        )
    return seconds


def _collect(found: list[Any], rows: DataFrame) -> None:
    found += rows.collect()


def report(measurement: Measurement) -> Table:
    """Return a table with a row for each query."""
    figures = measurement.figures
    table = Table(
        *("query", "work", "seconds", "events/s"),
        title=f"nexmark over history: {figures['records']:,} events, equal to DuckDB",
    )
    for query in chosen([]):
        if f"{query.name}_seconds" in figures:
            seconds, rate = figures[f"{query.name}_seconds"], figures[f"{query.name}_per_s"]
            table.add_row(query.name, query.title, f"{seconds:,}", f"{rate:,}")
    return table
