"""A sum for each key and window over history, against Spark SQL, which needs no Python for it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql import functions

import aflow as af
from aflow_connectors.spark import Results, SparkSink, SparkSource, backfill
from bench.harness import Budget, run_async
from bench.spark.trials import medians

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BUDGETS = [Budget("windows_ratio", at_least=0.35)]

COLUMNS = "who string, start long, total long"
KEYS = 1_000
WINDOW = 10_000
#: Milliseconds from one event to the next.
STEP = 1


class Event(msgspec.Struct):
    """An event."""

    who: str
    at: int
    price: int


class Sum(msgspec.Struct):
    """Sum of a key in a window."""

    who: str
    start: int
    total: int


def events(session: SparkSession, folder: Path, records: int) -> DataFrame:
    """Write ``records`` events of 1,000 keys, one every millisecond, as Parquet."""
    path = str(folder / "events")
    session.range(0, records, 1, 2).selectExpr(
        f"cast(id * 7919 % {KEYS} as string) as who", f"id * {STEP} as at", "id % 100 as price"
    ).write.parquet(path)
    return session.read.parquet(path)


def figures(
    session: SparkSession, events: DataFrame, folder: Path, rounds: int
) -> dict[str, float]:
    """Measure; all programs read Parquet and write their results as Parquet, and aflow also writes its open windows.

    aflow writes results with a ``SparkSink``, as the live job does, and in one program with ``Results``, by Spark.

    The budget is about ``window`` of Spark SQL; arithmetic on the column is faster.
    """
    times = medians("windows", programs(session, events, folder), rounds)
    return {
        "windows_per_s": round(_end_of_history(events) / STEP / times["aflow"]),
        "windows_ratio": round(times["window"] / times["aflow"], 3),
        "windows_results_ratio": round(times["window"] / times["results"], 3),
        "windows_fold_ratio": round(times["window"] / times["fold"], 3),
        "windows_arithmetic_ratio": round(times["arithmetic"] / times["aflow"], 3),
    }


def programs(
    session: SparkSession, events: DataFrame, folder: Path
) -> dict[str, Callable[[], object]]:
    """Return the compared programs by name."""
    until = _end_of_history(events)
    some = events.where(f"at < {until}")
    sums = folder / "sums"
    sink = SparkSink[Sum](sums, schema=COLUMNS, overwrite=True)
    results = Results(folder / "results", schema=COLUMNS, overwrite=True)
    return {
        "window": _native(session, by_window(some), folder / "window", until),
        "arithmetic": _native(session, by_arithmetic(some), folder / "arithmetic", until),
        "aflow": _in_aflow(session, events, sums, sink, until, build),
        "results": _in_aflow(session, events, folder / "results", results, until, build),
        "fold": _in_aflow(session, events, sums, sink, until, build_fold),
    }


def _end_of_history(events: DataFrame) -> int:
    """Return a time in the middle of a window, so each key has an open one."""
    return events.count() * STEP // WINDOW * WINDOW - WINDOW // 2


def by_window(events: DataFrame) -> DataFrame:
    moments = events.selectExpr("who", "price", "timestamp_millis(at) as moment")
    return (
        moments.groupBy("who", functions.window("moment", f"{WINDOW} milliseconds"))
        .agg({"price": "sum"})
        .selectExpr("who", "unix_millis(window.start) as start", "`sum(price)` as total")
    )


def by_arithmetic(events: DataFrame) -> DataFrame:
    starts = events.selectExpr("who", "price", f"at - at % {WINDOW} as start")
    summed = starts.groupBy("who", "start").agg({"price": "sum"})
    return summed.withColumnRenamed("sum(price)", "total")


def _native(session: SparkSession, sums: DataFrame, out: Path, until: int) -> Callable[[], object]:
    def run() -> object:
        closed = sums.where(f"start < {until // WINDOW * WINDOW}")
        closed.write.mode("overwrite").parquet(str(out))
        return checksum(session.read.parquet(str(out)))

    return run


def _in_aflow(
    session: SparkSession,
    events: DataFrame,
    out: Path,
    place: SparkSink[Sum] | Results,
    until: int,
    build: Callable[[Any, Any], af.Flow],
) -> Callable[[], object]:
    savepoint = out.parent / "savepoint"

    def run() -> object:
        shutil.rmtree(savepoint, ignore_errors=True)
        run_async(
            backfill(
                build,
                session=session,
                sources={"events": SparkSource(events, of=Event)},
                sinks={"sums": place},
                until=until,
                savepoint=savepoint,
            )
        )
        return checksum(session.read.parquet(str(out)))

    return run


def build(events: Any, sums: Any) -> af.Flow:
    """Build the flow with an aggregate."""
    flow = af.Flow("windows")
    windows = _windows(flow, events)
    _end(windows.aggregate(af.aggregates.sum(lambda event: event.price), name="sum"), sums)
    return flow


def build_fold(events: Any, sums: Any) -> af.Flow:
    """Build the flow with a fold, which needs all records after the exchange."""
    flow = af.Flow("windows")
    windows = _windows(flow, events)
    _end(windows.fold(int, lambda total, event: total + event.price, name="sum"), sums)
    return flow


def _windows(flow: af.Flow, events: Any) -> af.WindowedStream[str, Event]:
    timed = flow.source(events, name="events").event_time(lambda event: event.at)
    keyed = timed.key_by(lambda event: event.who)
    return keyed.window(af.Tumbling(timedelta(milliseconds=WINDOW)))


def _end(results: af.Stream[af.Windowed[str, int]], sums: Any) -> None:
    sums_of = results.map(lambda one: Sum(one.key, one.window.start, one.value))
    sums_of.to(sums, name="sums")


def checksum(sums: DataFrame) -> object:
    """Return what the sums of keys and windows add up to, in any order."""
    return sums.selectExpr(
        "count(*)", "sum(total)", "sum(start)", "sum(crc32(who) * total)"
    ).collect()
