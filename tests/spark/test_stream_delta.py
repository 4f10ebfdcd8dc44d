"""A stream from one Delta table into another, by a data source in Python and a function, has each row once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow
import pytest

import aflow as af
from aflow.backfill.epochs import EpochStore
from aflow_connectors.spark import EachEpoch, SparkStream, StreamQuery, stream
from tests.long_tests import LONG
from tests.spark.test_backfill import BIDS, UNTIL, Bid, Sum, build
from tests.spark.test_stream import COLUMNS, SOON
from tests.spark.test_stream_crashes import Crash, crashing

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.asyncio,
    pytest.mark.slow,
    LONG,
]

#: Without types.
_arrow: Any = pyarrow


async def test_a_stream_from_a_delta_table_replaces_the_rows_of_a_repeated_epoch_in_another(
    require: Callable[[str, str], None],
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    require("deltalake", "make setup")
    from pyspark.sql.functions import lit

    from tests.spark.delta_versions import DeltaVersions

    lake: Any = import_module("deltalake")
    whole = af.CollectSink[Sum]()
    await build(BIDS, whole).run()
    for half in (BIDS[:1000], BIDS[1000:]):
        rows = _arrow.Table.from_pylist(list(map(asdict, half)))
        lake.write_deltalake(str(tmp_path / "bids"), rows, mode="append")
    spark.dataSource.register(DeltaVersions)
    calls: list[int] = []

    def replace_rows(rows: DataFrame, epoch: int) -> None:
        calls.append(epoch)
        numbered: Any = rows.withColumn("epoch", lit(epoch))
        lake.write_deltalake(
            str(tmp_path / "sums"),
            numbered.toArrow(),
            mode="overwrite",
            predicate=f"epoch = {epoch}",
        )

    def query() -> StreamQuery:
        columns = "who string, at long, price long"  # as the table has them
        reader = spark.readStream.format("delta-versions").schema(columns)
        return stream(
            build,
            session=spark,
            sources={"bids": SparkStream(reader.load(str(tmp_path / "bids")), of=Bid)},
            sinks={"sums": EachEpoch(replace_rows, COLUMNS)},
            state=tmp_path / "state",
            every=SOON,
            until=UNTIL,
            savepoint=tmp_path / "savepoint",
        )

    with monkeypatch.context() as patch:
        # The third epoch, which is that of the first results: after the function is called.
        patch.setattr(EpochStore, "commit", crashing(EpochStore.commit, "before", 3))
        with pytest.raises(Crash):
            await query().wait()
    done = await query().wait()

    table = lake.DeltaTable(str(tmp_path / "sums")).to_pyarrow_table().drop(["epoch"])
    found = [Sum(**row) for row in table.to_pylist()]
    expected = [one for one in whole.values if one.start + 10_000 <= UNTIL]
    assert sorted(found, key=repr) == sorted(expected, key=repr)
    # The first epoch of a query is passed without results, too.
    assert calls[:3] == [2, 3, 3]
    assert done.records == 0  # the second query has run epochs without new rows alone
