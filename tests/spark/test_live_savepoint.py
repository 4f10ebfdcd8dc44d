"""State of a live job continues on Spark, over the records that the job has not read, and in a live job again."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import aflow as af
from aflow.backfill.epochs import EpochStore
from aflow.errors import FlowDefinitionError, RestoreError
from aflow.testing import Pause, ScriptedSource
from aflow_connectors.spark import (
    LiveSavepoint,
    SparkSink,
    SparkSource,
    SparkStream,
    StreamQuery,
    backfill,
    stream,
)
from tests.spark.stream_files import COLUMNS as BID_COLUMNS
from tests.spark.stream_files import put, read_stream
from tests.spark.test_backfill import BIDS, Bid, Sum
from tests.spark.test_stream import COLUMNS, SOON, written
from tests.spark.test_stream_crashes import Crash, crashing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]

#: Records that the live job reads, and the end of the run on Spark.
READ, T2 = 600, 120_500

#: Bids for which the service of the live job never answers: their calls are under way at its savepoint.
UNANSWERED = frozenset(BIDS[number] for number in range(560, READ, 7))

#: Bids that the service has answered; None if it is up. It is down in the process of the live job.
answered: list[Bid] | None = None


async def in_cents(bid: Bid) -> Bid:
    if answered is not None and bid in UNANSWERED:
        await asyncio.Event().wait()
    if answered is not None:
        answered.append(bid)
    return replace(bid, price=bid.price * 100)


def build(bids: Any, sums: Any) -> af.Flow:
    flow = af.Flow("sums after a live job")
    timed = flow.source(bids, name="bids").event_time(
        lambda bid: bid.at, max_delay=timedelta(seconds=1), name="times"
    )
    cents = timed.map_async(in_cents, ordered=False, capacity=1000, of=Bid, name="in cents")
    windows = cents.key_by(lambda bid: bid.who).window(af.Tumbling(timedelta(seconds=10)))
    total = windows.fold(int, lambda total, bid: total + bid.price, name="sum")
    total.map(lambda one: Sum(one.key, one.window.start, one.value)).to(sums, name="sums")
    return flow


async def live_leg(sink: SparkSink[Sum], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = ScriptedSource(*BIDS[:READ], Pause(timedelta(days=1)))
    asked = list[Bid]()
    monkeypatch.setattr("tests.spark.test_live_savepoint.answered", asked)
    async with build(first, sink).start(
        parallelism=2,
        checkpointing=af.Checkpointing(every=None, storage=folder.with_name("first jobs")),
        restore="fresh",
    ) as job:
        while len(asked) < READ - len(UNANSWERED):  # noqa: ASYNC110 - a list is no event
            await asyncio.sleep(0.01)
        before, results = -1, 0
        while before != results:  # what the calls that were answered have made due
            before = results
            await job.checkpoint()  # which commits the results so far
            results = job.metrics().steps["sums"].records_in
        await job.savepoint(folder)
        await job.cancel()
    monkeypatch.setattr("tests.spark.test_live_savepoint.answered", None)


async def last_leg(restore: Path, sink: Any) -> None:
    storage = restore.with_name(f"{restore.name} jobs")
    await build(BIDS, sink).run(
        restore=restore,
        checkpointing=af.Checkpointing(every=timedelta(seconds=10), storage=storage),
        parallelism=4,
    )


def query(spark: SparkSession, folder: Path, sink: Any, **more: Any) -> StreamQuery:
    return stream(
        build,
        session=spark,
        sources={"bids": SparkStream(read_stream(spark, folder / "bids"), of=Bid)},
        sinks={"sums": sink},
        state=folder / "state",
        every=SOON,
        parallelism=3,
        **more,
    )


async def test_a_live_job_continues_as_a_stream_and_as_a_backfill_and_live_again(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = af.CollectSink[Sum]()
    await build(BIDS, whole).run()
    expected = sorted(whole.values, key=repr)
    sums = SparkSink[Sum](tmp_path / "sums", schema=COLUMNS)
    savepoint = tmp_path / "savepoint"
    await live_leg(sums, savepoint, monkeypatch)
    before = written(tmp_path / "sums")
    (place,) = LiveSavepoint(savepoint).positions()["bids"].values()
    assert not place.ended
    assert place.position == READ

    # As a stream, whose first epoch is repeated
    put(tmp_path / "bids", 0, BIDS[READ:1000])
    put(tmp_path / "bids", 1, BIDS[1000:])
    end = {"until": T2, "savepoint": tmp_path / "end"}
    with pytest.raises(RestoreError, match=r"of a live job: step .*restore=LiveSavepoint\(path\)"):
        await query(spark, tmp_path, sums, restore=savepoint, **end).wait()
    early = {**end, "until": BIDS[READ - 1].at}
    with pytest.raises(FlowDefinitionError, match=r"has processed records up to .*give a later"):
        await query(spark, tmp_path, sums, restore=LiveSavepoint(savepoint), **early).wait()
    with monkeypatch.context() as patch:
        patch.setattr(EpochStore, "commit", crashing(EpochStore.commit, "before", 2))
        with pytest.raises(Crash):
            await query(spark, tmp_path, sums, restore=LiveSavepoint(savepoint), **end).wait()
    done = await query(spark, tmp_path, sums, **end).wait()
    streamed = written(tmp_path / "sums")
    await last_leg(tmp_path / "end", sums)

    assert done.records == len(BIDS) - READ
    assert len(before) < len(streamed) < len(expected)
    assert written(tmp_path / "sums") == expected

    # As a backfill
    rows = list[Sum]()
    await backfill(
        build,
        session=spark,
        sources={"bids": SparkSource(unread(spark), of=Bid)},
        sinks={"sums": lambda table: rows.extend(Sum(**row.asDict()) for row in table.collect())},
        restore=LiveSavepoint(savepoint),
        until=T2,
        savepoint=tmp_path / "history",
        partitions=3,
    )

    assert sorted([*before, *rows], key=repr) == streamed


def unread(spark: SparkSession) -> DataFrame:
    session: Any = spark  # whose overloads name types of pandas
    rows = [(bid.who, bid.at, bid.price) for bid in BIDS[READ:]]
    made: DataFrame = session.createDataFrame(rows, BID_COLUMNS)
    return made
