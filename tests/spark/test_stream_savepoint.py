"""A savepoint of a running stream has all records before its moment; state moves between the three engines by it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import aflow as af
from aflow.backfill.epochs import EpochStore
from aflow.errors import CheckpointError, FlowDefinitionError
from aflow_connectors.spark import (
    EachEpoch,
    SparkSink,
    SparkSource,
    SparkStream,
    StreamQuery,
    backfill,
    stream,
)
from aflow_connectors.spark.stream.savepoint_request import StreamSavepointRequest
from aflow_connectors.spark.stream.supervisor import Supervisor
from tests.spark.stream_files import put, read_stream
from tests.spark.test_backfill import BIDS, Bid, Sum, build, frame
from tests.spark.test_stream import COLUMNS, SOON, written
from tests.spark.test_stream_crashes import Crash, crashing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]

#: Bids of a file: those of 22.5 s.
SIZE = 250
T1, T2 = 20_300, 160_500


def arrive(folder: Path, *files: int) -> None:
    for number in files:
        put(folder / "bids", number, BIDS[number * SIZE : (number + 1) * SIZE])


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> list[StreamSavepointRequest]:
    """The requests that streams have accepted."""
    accepted: list[StreamSavepointRequest] = []
    begin = Supervisor.begin_savepoint

    def begin_savepoint(self: Supervisor, request: StreamSavepointRequest) -> None:
        begin(self, request)
        accepted.append(request)

    monkeypatch.setattr(Supervisor, "begin_savepoint", begin_savepoint)
    return accepted


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():  # noqa: ASYNC110 - the condition is in the progress of a query
        await asyncio.sleep(0.01)


async def whole() -> list[Sum]:
    """The results of one live job."""
    sums = af.CollectSink[Sum]()
    await build(BIDS, sums).run()
    return sorted(sums.values, key=repr)


async def live(restore: Path, sink: SparkSink[Sum], parallelism: int) -> None:
    storage = restore.with_name(f"{restore.name} jobs")
    await build(BIDS, sink).run(
        restore=restore,
        checkpointing=af.Checkpointing(every=timedelta(seconds=10), storage=storage),
        parallelism=parallelism,
    )


def query(spark: SparkSession, folder: Path, state: str, sink: Any, **more: Any) -> StreamQuery:
    return stream(
        build,
        session=spark,
        sources={"bids": SparkStream(read_stream(spark, folder / "bids"), of=Bid)},
        sinks={"sums": sink},
        state=folder / state,
        every=SOON,
        **more,
    )


async def test_state_moves_from_a_backfill_to_a_stream_while_that_runs_to_others_and_to_live_jobs(
    spark: SparkSession, tmp_path: Path, requests: list[StreamSavepointRequest]
) -> None:
    expected = await whole()
    sums = SparkSink[Sum](tmp_path / "sums", schema=COLUMNS)
    await backfill(
        build,
        session=spark,
        sources={"bids": SparkSource(frame(spark), of=Bid)},
        sinks={"sums": sums},
        until=T1,
        savepoint=tmp_path / "history",
        partitions=2,
    )
    (tmp_path / "bids").mkdir()

    running = query(
        spark,
        tmp_path,
        "state",
        sums,
        restore=tmp_path / "history",
        parallelism=3,
        until=T2,
        savepoint=tmp_path / "end",
    )
    async with running:
        with pytest.raises(CheckpointError, match="has processed no record yet"):
            await running.savepoint(tmp_path / "early")
        arrive(tmp_path, 0, 1)
        await until(lambda: running.progress().records == 2 * SIZE)
        withdrawn = asyncio.create_task(running.savepoint(tmp_path / "withdrawn"))
        await until(lambda: len(requests) == 1)
        arrive(tmp_path, 2)
        await until(lambda: running.progress().records == 3 * SIZE)
        with pytest.raises(CheckpointError, match="is being asked for a savepoint already"):
            await running.savepoint(tmp_path / "second")
        withdrawn.cancel()
        with pytest.raises(CheckpointError, match="and the state of the stream is in"):
            await running.savepoint(tmp_path / "state" / "savepoint")
        with pytest.raises(CheckpointError, match="there is something at"):
            await running.savepoint(tmp_path / "bids")
        asked = asyncio.create_task(running.savepoint(tmp_path / "while it runs"))
        await until(lambda: len(requests) == 2)
        arrive(tmp_path, 3, 4, 5, 6, 7)
        assert await asked == tmp_path / "while it runs"
        done = await running.wait()
        with pytest.raises(CheckpointError, match="has ended, so it writes no savepoint to"):
            await running.savepoint(tmp_path / "late")

    assert done.records == len(BIDS)
    assert not (tmp_path / "withdrawn").exists()
    streamed = written(tmp_path / "sums")
    await live(tmp_path / "end", sums, 4)
    assert written(tmp_path / "sums") == expected
    moment = BIDS[3 * SIZE - 1].at + 1  # after the newest record of the first three files
    assert requests[1].cut == moment
    later = [one for one in expected if one.start + 10_000 > moment]
    other = SparkSink[Sum](tmp_path / "other", schema=COLUMNS)
    await live(tmp_path / "while it runs", other, 1)
    assert written(tmp_path / "other") == later
    again = list[Sum]()

    def collect(table: DataFrame, epoch: int) -> None:
        again.extend(Sum(**row.asDict()) for row in table.collect())

    await query(
        spark,
        tmp_path,
        "another",
        EachEpoch(collect, COLUMNS),
        restore=tmp_path / "while it runs",
        parallelism=1,
        until=T2,
        savepoint=tmp_path / "another end",
    ).wait()
    assert sorted(again, key=repr) == [one for one in later if one in streamed]
    assert again


async def test_records_that_wait_for_a_savepoint_are_processed_by_the_next_query_after_a_crash(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    requests: list[StreamSavepointRequest],
) -> None:
    sums = SparkSink[Sum](tmp_path / "sums", schema=COLUMNS)
    arrive(tmp_path, 0)

    async with query(spark, tmp_path, "state", sums) as stopped:
        with pytest.raises(FlowDefinitionError, match="savepoint takes the path of a folder"):
            await stopped.savepoint("")
        await until(lambda: stopped.progress().records == SIZE)
        asked = asyncio.create_task(stopped.savepoint(tmp_path / "never"))
        await until(lambda: len(requests) == 1)
        arrive(tmp_path, 1)
        await until(lambda: stopped.progress().records == 2 * SIZE)
        await stopped.stop()
        with pytest.raises(CheckpointError, match="ended before its watermark had arrived"):
            await asked
    assert (tmp_path / "state" / "held").exists()
    with monkeypatch.context() as patch:
        # Before the epoch with the records that have waited is committed.
        patch.setattr(EpochStore, "commit", crashing(EpochStore.commit, "before", 1))
        with pytest.raises(Crash):
            await query(spark, tmp_path, "state", sums).wait()
    arrive(tmp_path, 2, 3, 4, 5, 6, 7)
    await query(
        spark, tmp_path, "state", sums, until=T2, savepoint=tmp_path / "end", parallelism=1
    ).wait()

    assert not (tmp_path / "never").exists()
    assert not (tmp_path / "state" / "held").exists()
    await live(tmp_path / "end", sums, 3)
    assert written(tmp_path / "sums") == await whole()
