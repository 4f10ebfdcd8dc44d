"""A backfill writes into the sinks of the live job, which continues in the same folder and the same table."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import aflow as af
from aflow.errors import ConnectorError, SinkError
from aflow_connectors.spark import SparkSink, SparkSource, SparkTableSink, backfill
from aflow_connectors.spark.backfill.history import (
    HistoryFolderFiles,
    HistoryFolderTable,
    history_folder,
)
from tests.spark.parquet_rows import parquet_rows
from tests.spark.test_backfill import BIDS, UNTIL, Bid, Sum, frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]

COLUMNS = "who string, start long, total long"


def build(bids: Any, folder: Any, table: Any, probe: Any = None) -> af.Flow:
    flow = af.Flow("sums")
    sums = (
        flow.source(bids, name="bids")
        .event_time(lambda bid: bid.at, max_delay=timedelta(seconds=1))
        .key_by(lambda bid: bid.who)
        .window(af.Tumbling(timedelta(seconds=10)))
        .fold(int, lambda total, bid: total + bid.price, name="sum")
        .map(lambda one: Sum(one.key, one.window.start, one.value))
    )
    sums.to(folder, name="folder")
    sums.to(table, name="table")
    sums.filter(lambda one: one.start == 0).to(probe or af.CollectSink[Sum](), name="probe")
    return flow


def failing(table: DataFrame) -> None:
    table.select("nothing").count()


async def live(sums: tuple[Any, Any], tmp_path: Path, storage: str) -> None:
    await build(BIDS, *sums).run(
        restore=tmp_path / "savepoint",
        checkpointing=af.Checkpointing(every=timedelta(seconds=10), storage=tmp_path / storage),
        parallelism=2,
    )


async def test_history_and_live_records_are_written_exactly_once_through_failures(
    spark: SparkSession, tmp_path: Path
) -> None:
    whole = af.CollectSink[Sum]()
    await build(BIDS, whole, af.CollectSink[Sum]()).run()
    folder = tmp_path / "sums"
    sinks = (
        SparkSink[Sum](folder, schema=COLUMNS),
        SparkTableSink[Sum]("sums", session=spark, staging=tmp_path / "staging"),
    )

    def in_folder() -> list[Sum]:
        rows = spark.read.schema(COLUMNS).parquet(str(folder)).collect()
        return sorted((Sum(**row.asDict()) for row in rows), key=repr)

    def in_table() -> list[Sum]:
        rows = spark.table("sums").drop("aflow_piece").collect()
        return sorted((Sum(**row.asDict()) for row in rows), key=repr)

    async def history(probe: Any) -> None:
        await backfill(
            build,
            session=spark,
            sources={"bids": SparkSource(frame(spark), of=Bid)},
            sinks={"folder": sinks[0], "table": sinks[1], "probe": probe},
            until=UNTIL,
            savepoint=tmp_path / "savepoint",
        )

    # One that fails behind the writing of the results; what a killed one may leave is there as well.
    killed = folder / ".history-1" / ".claim"
    killed.parent.mkdir(parents=True)
    killed.write_text('{"aflow": "lock", "scratch": null}')
    foreign = folder / ".part-00007-000001.parquet.pending"
    foreign.write_bytes(b"half")
    with pytest.raises(ConnectorError, match="writing the results of sink 'probe' failed"):
        await history(failing)
    assert list(folder.iterdir()) == [foreign]
    foreign.unlink()
    assert not (tmp_path / "savepoint").exists()

    await history(None)
    of_history = in_folder()
    assert in_table() == of_history
    assert 0 < len(of_history) < len(whole.values)

    expected = sorted(whole.values, key=repr)
    for storage in ("first", "behind a crash before its first checkpoint"):
        await live(sinks, tmp_path, storage)
        assert in_folder() == expected
        assert in_table() == expected
    assert {one.suffix for one in folder.iterdir()} == {".parquet", ".manifest"}


async def test_the_folder_of_a_sink_is_refused_while_another_backfill_is_at_work_there(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "sums"
    sink = SparkSink[Sum](folder, schema=COLUMNS)
    first = history_folder(sink, "sums")
    assert isinstance(first, HistoryFolderFiles)
    first.check()
    first.begin()

    with pytest.raises(SinkError, match="is in progress by another writer"):
        history_folder(sink, "sums").check()

    first.drop()
    assert list(folder.iterdir()) == []
    history_folder(sink, "sums").check()


async def test_without_declared_columns_the_first_records_say_them_and_spark_writes(
    spark: SparkSession, tmp_path: Path
) -> None:
    sink = SparkSink[Sum](tmp_path / "sums")
    assert isinstance(history_folder(sink, "folder"), HistoryFolderTable)
    probe: list[list[Sum]] = []

    def collected(table: DataFrame) -> None:
        probe.append([Sum(**row.asDict()) for row in table.collect()])

    done = await backfill(
        build,
        session=spark,
        sources={"bids": SparkSource(frame(spark), of=Bid)},
        sinks={"folder": sink, "table": collected, "probe": None},
        until=UNTIL,
        savepoint=tmp_path / "savepoint",
    )

    rows = [Sum(**row) for row in parquet_rows(tmp_path / "sums")]
    assert sorted(rows, key=repr) == sorted(probe[0], key=repr)
    assert len(rows) == done.results["folder"] > 100
    assert {one.name[:5] for one in (tmp_path / "sums").iterdir()} == {"part-", ".part"}
