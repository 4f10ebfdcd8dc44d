"""A flow over history on Spark gives the results of the live job, and leaves the same state."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import aflow as af
from aflow_connectors.spark import Backfilled, Results, SparkSource, backfill
from aflow_connectors.spark.backfill import fragment_runner, preparation
from tests.spark.parquet_rows import parquet_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]


@dataclass(frozen=True, slots=True)
class Bid:
    who: str
    at: int
    price: int


@dataclass(frozen=True, slots=True)
class Sum:
    who: str
    start: int
    total: int


BIDS = [Bid(f"bidder {number * 31 % 17}", number * 90, number % 100) for number in range(2_000)]
UNTIL = 100_500


async def in_cents(bid: Bid) -> Bid:
    await asyncio.sleep(0.001)
    return replace(bid, price=bid.price * 100)


def build(bids: Any, sums: Any) -> af.Flow:
    flow = af.Flow("sums")
    (
        flow.source(bids, name="bids")
        .event_time(lambda bid: bid.at, max_delay=timedelta(seconds=1))
        .map_async(in_cents, name="in cents")
        .key_by(lambda bid: bid.who)
        .window(af.Tumbling(timedelta(seconds=10)))
        .fold(int, lambda total, bid: total + bid.price, name="sum")
        .map(lambda one: Sum(one.key, one.window.start, one.value))
        .to(sums, name="sums")
    )
    return flow


def frame(spark: SparkSession) -> DataFrame:
    session: Any = spark  # whose overloads name types of pandas
    made: DataFrame = session.createDataFrame(
        [(bid.who, bid.at, bid.price) for bid in BIDS], "who string, at long, price int"
    )
    return made


async def history_and_live(
    spark: SparkSession, folder: Path
) -> tuple[Backfilled, list[Sum], list[Sum]]:
    """Summary of a backfill, its results, and those of the live job after it."""
    live = af.CollectSink[Sum]()
    done = await backfill(
        build,
        session=spark,
        sources={"bids": SparkSource(frame(spark), of=Bid)},
        sinks={"sums": Results(folder / "sums", "who string, start long, total long")},
        until=UNTIL,
        savepoint=folder / "savepoint",
    )
    await build(BIDS, live).run(
        restore=folder / "savepoint",
        checkpointing=af.Checkpointing(every=timedelta(seconds=10), storage=folder / "state"),
        parallelism=3,
    )
    rows = parquet_rows(folder / "sums")
    return done, [Sum(**row) for row in rows], live.values


@pytest.mark.parametrize("seen", [True, False], ids=["staging seen", "not seen by the driver"])
async def test_history_on_spark_and_the_live_job_after_it_equal_one_live_job(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen: bool
) -> None:
    if not seen:
        monkeypatch.setattr(fragment_runner, "files_of", not_seen)
        monkeypatch.setattr(preparation, "local_path", not_here)
    whole = af.CollectSink[Sum]()
    await build(BIDS, whole).run()

    done, history, live = await history_and_live(spark, tmp_path)

    assert sorted(history + live, key=repr) == sorted(whole.values, key=repr)
    assert history
    assert live
    assert done.results == {"sums": len(history)}
    assert done.left_out == sum(bid.at >= UNTIL for bid in BIDS)


def not_seen(fragment: Path | None, exit: int) -> None:
    """No file is visible."""


def not_here(uri: str, session: SparkSession) -> None:
    """No path is local."""


def with_alarms(bids: Any, sums: Any, alarms: Any) -> af.Flow:
    flow = af.Flow("sums and alarms")
    timed = flow.source(bids, name="bids").event_time(lambda bid: bid.at)
    high = timed.filter(lambda bid: bid.price == 99).key_by(lambda bid: bid.who)
    high.deduplicate(name="first").to(alarms, name="alarms")
    each = timed.key_by(lambda bid: bid.who).window(af.Tumbling(timedelta(seconds=10)))
    total = each.aggregate(af.aggregates.sum(lambda bid: bid.price), name="sum")
    total.map(lambda one: Sum(one.key, one.window.start, one.value)).to(sums, name="sums")
    return flow


async def test_where_no_record_came_before_the_end_the_live_job_begins_with_nothing(
    spark: SparkSession, tmp_path: Path
) -> None:
    sums, alarms = af.CollectSink[Sum](), af.CollectSink[Bid]()
    early = frame(spark).where("at < 5000")  # in which no price is 99
    done = await backfill(
        with_alarms,
        session=spark,
        sources={"bids": SparkSource(early, of=Bid)},
        sinks={"sums": None, "alarms": None},
        until=5_000,
        savepoint=tmp_path / "savepoint",
    )

    await with_alarms(BIDS, sums, alarms).run(
        restore=tmp_path / "savepoint",
        checkpointing=af.Checkpointing(every=timedelta(seconds=10), storage=tmp_path / "state"),
    )

    assert done.results == {"sums": 0, "alarms": 0}
    assert {bid.who for bid in alarms.values} == {bid.who for bid in BIDS if bid.price == 99}
    assert sum(one.total for one in sums.values) == sum(bid.price for bid in BIDS)
