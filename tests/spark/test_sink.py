"""A folder of Parquet for Spark: written without it, each record once, and only what checkpoints cover."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import (
    DecimalType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from aflow.connect import SinkError
from aflow.errors import FlowDefinitionError
from aflow.testing import check_sink
from aflow_connectors.spark.tables.folder_sink import SparkSink
from tests.connectors.files.arrow import pa, pq
from tests.spark.sink_helpers import numbers, opened, prepared, put

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LONG = StructType([StructField("n", LongType())])
PAYMENTS = StructType(
    [
        StructField("id", LongType()),
        StructField("card", StringType()),
        StructField("amount", DecimalType(10, 2)),
        StructField("at", TimestampType()),
    ]
)


@dataclass
class Payment:
    id: int
    card: str | None
    amount: Decimal
    at: datetime


def files_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.suffix != ".manifest")


def rows_in(folder: Path) -> list[dict[str, Any]]:
    """Rows for a reader that ignores hidden files, as Spark does."""
    rows: list[dict[str, Any]] = []
    for path in sorted(folder.glob("[!._]*")):
        rows += pq.read_table(path).to_pylist()
    return sorted(rows, key=lambda row: row["n"])


@pytest.mark.asyncio
async def test_the_folder_keeps_to_the_contract_of_sinks(tmp_path: Path) -> None:
    count = itertools.count()

    await check_sink(
        lambda: SparkSink[Any](tmp_path / str(next(count)), schema=LONG),
        lambda sink: rows_in(sink.path),
        numbers(8),
    )


@pytest.mark.asyncio
async def test_spark_reads_committed_records_with_the_declared_types(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "payments.parquet"
    summer = timezone(timedelta(hours=2))
    first = Payment(1, None, Decimal("1.50"), datetime(2013, 7, 1, 2, 0, 0, 123456, tzinfo=summer))
    later = Payment(2, "4711", Decimal(3), datetime(2013, 7, 2, tzinfo=UTC))
    sink = SparkSink[Payment](folder, schema=PAYMENTS)

    await sink.recover("out", [])
    async with opened(sink, 2) as writers:
        committable = await prepared(writers[0], 1, [first])
        await writers[0].commit(committable)
        await prepared(writers[0], 2, [later])
        await put(writers[1], [later])
        seen = spark.read.parquet(str(folder))

        assert seen.schema == PAYMENTS
        assert [
            tuple(row)
            for row in seen.selectExpr("id", "card", "amount", "unix_micros(at)").collect()
        ] == [(1, None, Decimal("1.50"), 1_372_636_800_123_456)]


@pytest.mark.parametrize(
    ("schema", "digits"),
    [
        (lambda: "id long, card string, amount decimal(10, 2), at timestamp", (10, 2)),
        (lambda: PAYMENTS, (10, 2)),
        (
            lambda: pa.schema(
                {
                    "id": pa.int64(),
                    "card": pa.large_string(),
                    "amount": pa.decimal128(10, 2),
                    "at": pa.timestamp("ns", tz="Europe/Berlin"),
                }
            ),
            (10, 2),
        ),
        (lambda: None, (38, 18)),  # room for longer ones
    ],
    ids=["text", "StructType", "pyarrow.Schema", "the first records"],
)
@pytest.mark.asyncio
async def test_columns_may_be_declared_in_several_ways(
    spark: SparkSession, tmp_path: Path, schema: Callable[[], Any], digits: tuple[int, int]
) -> None:
    sink = SparkSink[Payment](tmp_path / "out", schema=schema())
    payment = Payment(1, "4711", Decimal("12345678.50"), datetime(2013, 7, 1, tzinfo=UTC))

    async with opened(sink, checkpoints=False) as (writer,):
        await put(writer, [payment])
        await writer.flush()

    (file,) = (tmp_path / "out").glob("part-*")
    assert pq.read_schema(file).remove_metadata() == pa.schema(
        {
            "id": pa.int64(),
            "card": pa.string(),
            "amount": pa.decimal128(*digits),
            "at": pa.timestamp("us", tz="UTC"),
        }
    )


@pytest.mark.asyncio
async def test_a_value_of_another_type_is_named_with_its_column(tmp_path: Path) -> None:
    sink = SparkSink[Any](tmp_path, schema=LONG)

    async with opened(sink, checkpoints=False) as (writer,):
        await put(writer, [{"n": 1}, {"n": "two"}])
        with pytest.raises(SinkError) as raised:
            await writer.flush()

    assert all(part in str(raised.value) for part in ("'out'", "'n'", "bigint", "'two'"))
    assert files_in(tmp_path) == []


@pytest.mark.asyncio
async def test_a_column_without_a_type_asks_for_a_schema(tmp_path: Path) -> None:
    async with opened(SparkSink[Any](tmp_path), checkpoints=False) as (writer,):
        await put(writer, [{"n": 1, "of": None}])
        with pytest.raises(SinkError, match=r"column 'of' is None in all .* schema="):
            await writer.flush()


@pytest.mark.asyncio
async def test_all_writers_have_the_columns_of_the_first_records(tmp_path: Path) -> None:
    sink = SparkSink[Any](tmp_path)

    async with opened(sink, 2, checkpoints=False) as (first, second):
        await put(first, [{"n": 1, "of": "a"}])
        await first.flush()
        await put(second, [{"n": 2, "of": None}])
        await second.flush()

    assert [str(pq.read_schema(path).field("of").type) for path in tmp_path.glob("part-*")] == [
        "string",
        "string",
    ]


@pytest.mark.asyncio
async def test_a_writer_without_columns_leaves_no_file(tmp_path: Path) -> None:
    async with opened(SparkSink[Any](tmp_path), 2, checkpoints=False) as (first, second):
        await first.flush()
        await put(second, numbers(1))
        await second.flush()

    assert files_in(tmp_path) == ["part-00001.parquet"]


def test_a_uri_of_another_file_system_is_refused_and_one_of_this_is_a_path() -> None:
    with pytest.raises(FlowDefinitionError, match=r"s3://bucket/out.*where s3: is mounted"):
        SparkSink[Any]("s3://bucket/out")

    assert SparkSink[Any]("file:///data/out").path == Path("/data/out")


def test_a_schema_that_is_none_is_refused() -> None:
    schema: Any = {"n": int}

    with pytest.raises(FlowDefinitionError, match=r"SparkSink: schema= .* not {'n'"):
        SparkSink[Any]("out", schema=schema)
