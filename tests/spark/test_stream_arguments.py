"""Arguments that a stream cannot run with are refused before anything runs, with the name of what to change."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from aflow.backfill.epochs import EpochStore
from aflow.errors import AflowError, CheckpointError, FlowDefinitionError, RestoreError
from aflow_connectors.spark import EachEpoch, SparkSink, SparkStream, StreamQuery, stream
from aflow_connectors.spark.stream.preparation import refuse_stateful
from tests.spark.stream_files import put, read_stream
from tests.spark.test_backfill import BIDS, Bid, build, frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]


def query(spark: SparkSession, folder: Path, changes: Mapping[str, Any]) -> StreamQuery:
    """Return a query with ``changes`` to valid arguments."""
    put(folder / "bids", 0, BIDS[:5])
    changes = dict(changes)
    bids = SparkStream(
        read_stream(spark, folder / "bids"), of=Bid, split=changes.pop("split", None)
    )
    arguments: dict[str, Any] = {
        "session": spark,
        "sources": {"bids": bids},
        "sinks": {"sums": None},
        "state": folder / "state",
    }
    return stream(build, **{**arguments, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sources": {}}, r"has a parameter 'bids', which is none of the sources"),
        ({"sources": {"bids": "table"}}, r"source 'bids': stream\(\) reads SparkStream\("),
        (
            {"split": "where"},
            r"source 'bids': split='where' is not one of the columns: who, at, price",
        ),
        ({"sinks": {}}, r"'sums', which is none of the sources .* none of the sinks"),
        ({"sinks": {"sums": "folder"}}, r"sink 'sums': a stream writes into a SparkSink with a"),
        ({"sinks": {"sums": SparkSink[Any]("sums")}}, r"sink 'sums': stream\(\) needs the columns"),
        ({"every": timedelta(0)}, r"every= is the interval between batches"),
        ({"until": 1_000}, r"give stream\(\) both until= and savepoint="),
        ({"until": "noon", "savepoint": "s"}, r"until=: "),
        ({"parallelism": 0}, r"parallelism= is a number from 1"),
        ({"state_cache": -1}, r"state_cache= is the number of bytes of state"),
        ({"session": None}, r"stream\(\) needs a session of Spark"),
        ({"allow_dropped_state": True}, r"allow_dropped_state=True permits the loss"),
        ({"restore": "nowhere"}, r"nowhere"),
    ],
    ids=[
        "no source",
        "a table",
        "no such column",
        "no sink",
        "a folder",
        "no columns",
        "no interval",
        "no savepoint",
        "no moment",
        "no tasks",
        "no cache",
        "no session",
        "nothing to drop",
        "nothing to restore",
    ],
)
async def test_an_invalid_argument_is_refused(
    changes: dict[str, Any], message: str, spark: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(AflowError, match=message):
        await query(spark, tmp_path, changes).start()

    # The folder is free again.
    with closing(EpochStore(tmp_path / "state", "sums", 128)) as store:
        assert store.open() is None


async def test_rows_of_history_are_no_stream(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(FlowDefinitionError, match="and this one is not: its rows are for backfill"):
        SparkStream(frame(spark), of=Bid)
    with pytest.raises(FlowDefinitionError, match="split= is the name of the column"):
        SparkStream(read_stream(spark, tmp_path), of=Bid, split=1)  # type: ignore[call-overload]
    with pytest.raises(FlowDefinitionError, match="EachEpoch takes a function of the DataFrame"):
        EachEpoch("folder")  # type: ignore[arg-type]


async def test_rows_with_state_in_spark_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    put(tmp_path / "bids", 0, BIDS[:5])
    bids = read_stream(spark, tmp_path / "bids")
    static = spark.range(3).selectExpr("'ann' AS who").groupBy("who").count()

    for stateful, name in (
        (bids.dropDuplicates(["who"]), "Deduplicate"),
        (bids.join(bids.select("who"), "who"), "Join"),
        (bids.limit(3), "GlobalLimit"),
    ):
        source = SparkStream(stateful, of=Bid)
        with pytest.raises(FlowDefinitionError, match=f"source 'bids': .* has {name}, which keeps"):
            refuse_stateful("bids", source)
        with pytest.raises(FlowDefinitionError, match=f"has {name}, which keeps state"):
            await query(spark, tmp_path, {"sources": {"bids": source}}).start()
    refuse_stateful("bids", SparkStream(bids.where("price > 1").join(static, "who"), of=Bid))


async def test_a_state_folder_of_another_stream_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    with closing(EpochStore(tmp_path / "state", "sums", 128)) as store:
        store.open()

        with pytest.raises(CheckpointError, match="is in use by another stream"):
            await query(spark, tmp_path, {}).start()

    (tmp_path / "state" / "spark" / "commits").mkdir(parents=True)
    (tmp_path / "state" / "spark" / "commits" / "3").touch()
    with pytest.raises(RestoreError, match=r"has completed batch 3, and the last epoch .* of none"):
        await query(spark, tmp_path, {}).start()
