"""A flow over history on Spark gives what the live job gives, and leaves what it would have."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import aflow as af
from aflow_connectors.spark import backfill
from aflow_connectors.spark.source import SparkSource

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


def build(bids: Any, sums: Any) -> af.Flow:
    flow = af.Flow("sums")
    (
        flow.source(bids, name="bids")
        .event_time(lambda bid: bid.at, max_delay=timedelta(seconds=1))
        .key_by(lambda bid: bid.who)
        .window(af.Tumbling(timedelta(seconds=10)))
        .fold(int, lambda total, bid: total + bid.price, name="sum")
        .map(lambda one: Sum(one.key, one.window.start, one.value))
        .to(sums, name="sums")
    )
    return flow


def frame(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(
        [(bid.who, bid.at, bid.price) for bid in BIDS], "who string, at long, price int"
    )


async def test_history_on_spark_and_the_live_job_behind_it_are_one_live_job(
    spark: SparkSession, tmp_path: Path
) -> None:
    whole, live = af.CollectSink[Sum](), af.CollectSink[Sum]()
    await build(BIDS, whole).run()

    done = await backfill(
        build,
        session=spark,
        sources={"bids": SparkSource(frame(spark), of=Bid)},
        sinks={"sums": str(tmp_path / "sums")},
        until=UNTIL,
        savepoint=tmp_path / "savepoint",
    )
    await build(BIDS, live).run(
        restore=str(tmp_path / "savepoint"),
        checkpointing=af.Checkpointing(every=timedelta(seconds=10), storage=tmp_path / "state"),
        parallelism=3,
    )

    history = [Sum(**row.asDict()) for row in spark.read.parquet(str(tmp_path / "sums")).collect()]
    assert sorted(history + live.values, key=repr) == sorted(whole.values, key=repr)
    assert history
    assert live.values
    assert done.results == {"sums": len(history)}
    assert done.left_out == sum(bid.at >= UNTIL for bid in BIDS)
