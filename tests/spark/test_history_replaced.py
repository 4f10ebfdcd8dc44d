"""History is continued more than once, or beside a job, in the output of one sink: replaced output is refused."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from shutil import rmtree
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from aflow.connect import Committable
from aflow.errors import CheckpointError, RestoreError, SinkError
from aflow_connectors.spark import SparkSink, SparkTableSink
from aflow_connectors.spark.backfill.destinations import SavepointOutput, TableDestination
from aflow_connectors.spark.backfill.driver import Backfill
from aflow_connectors.spark.backfill.history import HistoryTable, history_folder
from tests.spark.sink_helpers import NAME, numbers, opened, prepared

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]


#: Message for the savepoint of a second half whose rows are not in the table.
REPLACED = r"\(out-history-000002-[a-f]\w{7}\) are not in table two_halves; did another backfill"


class Table:
    """A table of its own with the sink of a live job."""

    def __init__(self, name: str, spark: SparkSession, folder: Path) -> None:
        self.name = name
        self.spark = spark
        self.folder = folder
        self.sink = SparkTableSink[Any](
            name, session=spark, staging=folder / "staging", schema="n long"
        )
        self._written = 0

    def destination(self, first: Sequence[Committable] = ()) -> HistoryTable:
        return HistoryTable(self.sink, NAME, SavepointOutput(2 if first else 1, first))

    def history(
        self, begin: int, end: int, first: Sequence[Committable] = ()
    ) -> Sequence[Committable]:
        """Write these numbers as a backfill does, after the savepoint with ``first``; return its committables."""
        self._written += 1
        destination = self.destination(first)
        destination.check()
        rows = self.spark.range(begin, end, 1, 1).selectExpr("id AS n")
        scratch = str(self.folder / f"scratch-{self._written}")
        made = destination.write(rows, records=end - begin, scratch=scratch)
        destination.publish()
        return made

    def rows(self) -> list[int]:
        return sorted(row.n for row in self.spark.table(self.name).collect())


async def test_only_the_last_of_two_second_halves_is_continued(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = Table("two_halves", spark, tmp_path)
    first = table.history(0, 3)
    second = table.history(3, 5, first)
    third = table.history(3, 9, first)
    assert table.rows() == list(range(9))

    with pytest.raises(RestoreError, match=REPLACED):
        await table.sink.recover(NAME, second)
    rmtree(tmp_path / "staging")  # with the record of the withdrawal
    with pytest.raises(RestoreError, match=REPLACED):
        await table.sink.recover(NAME, second)
    with pytest.raises(RestoreError, match=REPLACED):
        table.destination(second).check()

    await table.sink.recover(NAME, third)
    assert table.rows() == list(range(9))


async def test_a_second_half_without_records_is_replaced_too(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = Table("empty_half", spark, tmp_path)
    first = table.history(0, 3)
    second = table.history(3, 3, first)
    table.history(3, 5, first)

    with pytest.raises(RestoreError, match="output of checkpoints 2 to 2 was removed"):
        await table.sink.recover(NAME, second)


async def test_a_second_half_is_refused_while_a_job_writes_and_its_checkpoints_after_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = Table("beside_a_job", spark, tmp_path)
    first = table.history(0, 3)
    begun = table.destination(first)
    begun.check()
    await table.sink.recover(NAME, first)
    async with opened(table.sink) as (writer,):
        await writer.commit(await prepared(writer, 2, numbers(3, 5)))
        with pytest.raises(SinkError, match="is in progress by another writer"):
            table.destination(first).check()
        with pytest.raises(SinkError, match="is in progress by another writer"):
            begun.write(spark.range(3, 9).selectExpr("id AS n"), records=6, scratch="")
        assert table.rows() == list(range(5))
        empty = await prepared(writer, 3, [])
        await writer.commit(empty)

    second = table.history(3, 9, first)

    assert table.rows() == list(range(9))
    with pytest.raises(RestoreError, match="cannot resume from checkpoint 3"):
        await table.sink.recover(NAME, [empty])
    await table.sink.recover(NAME, second)
    async with opened(table.sink) as (writer,):
        last = await prepared(writer, 3, numbers(9, 11))
    await table.sink.recover(NAME, [last])
    assert table.rows() == list(range(11))


async def test_a_second_half_after_a_withdrawal_of_its_number_is_restored(
    spark: SparkSession, tmp_path: Path
) -> None:
    table = Table("withdrawn_before", spark, tmp_path)
    first = table.history(0, 3)
    await table.sink.recover(NAME, first)
    async with opened(table.sink) as (writer,):
        await prepared(writer, 2, numbers(3, 5))  # and crashes: the checkpoint is not completed
    await table.sink.recover(NAME, first)  # withdraws the output of checkpoint 2
    second = table.history(3, 9, first)

    await table.sink.recover(NAME, second)

    assert table.rows() == list(range(9))


async def test_of_two_backfills_that_begin_together_in_a_folder_the_second_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    # Without declared columns Spark writes, at the end.
    sink = SparkSink[Any](tmp_path / "out")
    first, second = (history_folder(sink, NAME) for _ in range(2))
    first.check()
    second.check()

    first.begin()
    with pytest.raises(SinkError, match="is in progress by another writer"):
        second.begin()

    second.drop()
    assert len(list((tmp_path / "out").iterdir())) == 1
    first.drop()
    assert list((tmp_path / "out").iterdir()) == []


class Untouched(TableDestination):
    """A destination of which nothing may be withdrawn or dropped."""

    sink = NAME

    def check(self) -> None:
        """Accept anything."""

    def columns(self) -> StructType | None:
        raise AssertionError

    def write(
        self, table: DataFrame | None, *, records: int, scratch: str
    ) -> Sequence[Committable]:
        raise AssertionError

    def recover(self) -> None:
        raise AssertionError


async def test_nothing_is_withdrawn_once_another_backfill_has_written_the_savepoint(
    tmp_path: Path,
) -> None:
    anything: Any = SimpleNamespace(folder=tmp_path / "first", flow="shop")
    work = Backfill(
        plan=anything,
        sinks={NAME: Untouched()},
        until=9,
        savepoint=tmp_path / "second",
        shared="",
        staging=anything,
        start=anything,
    )
    (tmp_path / "second").mkdir()

    with pytest.raises(CheckpointError, match=r"there is something at .*second already"):
        work.begin()
    with pytest.raises(CheckpointError, match=r"there is something at .*second already"):
        work.write(NAME)
