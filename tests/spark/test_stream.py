"""A flow as a stream on Spark writes each record once, and hands over to a live job, as one live job would."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import aflow as af
from aflow_connectors.spark import (
    EachEpoch,
    SparkSink,
    SparkStream,
    StreamQuery,
    map_async,
    stream,
)
from tests.spark.parquet_rows import parquet_rows
from tests.spark.stream_files import put_all, read_stream
from tests.spark.test_backfill import BIDS, UNTIL, Bid, Sum, build

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]

COLUMNS = "who string, start long, total long"
SOON = timedelta(milliseconds=50)


async def test_a_stream_and_the_live_job_after_it_equal_one_live_job(
    spark: SparkSession, tmp_path: Path
) -> None:
    whole = af.CollectSink[Sum]()
    await build(BIDS, whole).run()
    put_all(tmp_path / "bids", BIDS, 3)
    sums = SparkSink[Sum](tmp_path / "sums", schema=COLUMNS)

    done = await stream(
        build,
        session=spark,
        sources={"bids": SparkStream(read_stream(spark, tmp_path / "bids"), of=Bid, split="who")},
        sinks={"sums": sums},
        state=tmp_path / "state",
        every=SOON,
        until=UNTIL,
        savepoint=tmp_path / "savepoint",
    ).wait()

    streamed = written(tmp_path / "sums")
    await build(BIDS, sums).run(
        restore=tmp_path / "savepoint",
        checkpointing=af.Checkpointing(every=timedelta(seconds=10), storage=tmp_path / "jobs"),
        parallelism=3,
    )
    assert written(tmp_path / "sums") == sorted(whole.values, key=repr)
    assert 0 < len(streamed) < len(whole.values)
    assert done.savepoint == tmp_path / "savepoint"
    assert done.results == {"sums": len(streamed)}
    assert done.records == len(BIDS)


def written(folder: Path) -> list[Sum]:
    return sorted((Sum(**row) for row in parquet_rows(folder)), key=repr)


def both(bids: Any, others: Any, sums: Any) -> af.Flow:
    flow = af.Flow("both")
    first = flow.source(bids, name="bids").event_time(lambda bid: bid.at, name="times")
    second = flow.source(others, name="others").event_time(lambda bid: bid.at, name="other times")
    windows = first.union(second).key_by(lambda bid: bid.who)
    total = windows.window(af.Tumbling(timedelta(seconds=10))).fold(
        int, lambda total, bid: total + bid.price, name="sum"
    )
    total.map(lambda one: Sum(one.key, one.window.start, one.value)).to(sums, name="sums")
    return flow


async def test_two_sources_are_one_stream_which_continues_after_it_was_stopped(
    spark: SparkSession, tmp_path: Path
) -> None:
    whole = af.CollectSink[Sum]()
    await both(BIDS[::2], BIDS[1::2], whole).run()
    put_all(tmp_path / "bids", BIDS[::2], 2)
    put_all(tmp_path / "others", BIDS[1::2], 2)
    epochs: dict[int, list[Sum]] = {}

    def collect(table: DataFrame, epoch: int) -> None:
        epochs[epoch] = [Sum(**row.asDict()) for row in table.collect()]

    def query(parallelism: int, *sources: str) -> StreamQuery:
        return stream(
            both,
            session=spark,
            sources={
                name: SparkStream(read_stream(spark, tmp_path / name), of=Bid) for name in sources
            },
            sinks={"sums": EachEpoch(collect, COLUMNS)},
            state=tmp_path / "state",
            every=SOON,
            until=UNTIL,
            savepoint=tmp_path / "savepoint",
            parallelism=parallelism,
        )

    async with query(2, "others", "bids") as stopped:
        await stopped.stop()
    # An attempt at the next epoch that was killed, and had other results.
    epochs[stopped.progress().epoch + 1] = [Sum("killed", 0, 0)]
    # Spark stores the offsets of sources by their order.
    done = await query(3, "bids", "others").wait()

    found = [one for some in epochs.values() for one in some]
    expected = [one for one in whole.values if one.start + 10_000 <= UNTIL]
    assert sorted(found, key=repr) == sorted(expected, key=repr)
    assert done.savepoint is not None
    assert stopped.progress().epoch < done.epoch


async def doubled(bid: Bid) -> dict[str, object]:
    return {"who": bid.who, "price": bid.price * 2}


async def test_calls_for_each_row_of_a_streaming_dataframe(
    spark: SparkSession, tmp_path: Path
) -> None:
    put_all(tmp_path / "bids", BIDS[:50], 2)
    frame = map_async(
        read_stream(spark, tmp_path / "bids"), doubled, of=Bid, schema="who string, price int"
    )

    query = frame.writeStream.format("parquet").option("checkpointLocation", f"{tmp_path}/spark")
    ended = query.trigger(availableNow=True).start(f"{tmp_path}/out")

    assert ended.awaitTermination(120)
    rows = spark.read.parquet(f"{tmp_path}/out").collect()
    assert sorted(row.price for row in rows) == sorted(bid.price * 2 for bid in BIDS[:50])
