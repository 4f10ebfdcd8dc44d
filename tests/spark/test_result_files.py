"""Result files of executors, for a ``SparkSink``: readers see the rows that Spark would have written."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql.types import ArrayType, IntegerType, StructField, StructType

import aflow as af
from aflow.errors import ConnectorError, SinkError
from aflow_connectors.spark import Results, SparkSink, SparkSource, backfill
from aflow_connectors.spark.backfill.executor_files import FileTarget, ResultFiles
from aflow_connectors.spark.backfill.history import HistoryFolderFiles, history_folder
from aflow_connectors.spark.dataframe.columns import RowsOut
from aflow_connectors.spark.dataframe.schema import declared, spark_schema
from tests.spark.parquet_rows import parquet_file, parquet_rows
from tests.spark.test_backfill import UNTIL, Bid, build, frame

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "who string, start long, total long"

#: A column of each type that executors write, with values at the ends of what there is, and nothing.
VALUES: Mapping[str, tuple[str, list[object]]] = {
    "byte": ("tinyint", [-128, 127]),
    "short": ("smallint", [-(2**15), 2**15 - 1]),
    "int": ("int", [-(2**31), 2**31 - 1]),
    "long": ("bigint", [-(2**63), 2**63 - 1]),
    "float": ("float", [0.5, float("-inf")]),
    "double": ("double", [1e308, float("nan")]),
    "truth": ("boolean", [True, False]),
    "text": ("string", ["", "\u20ac \0"]),
    "raw": ("binary", [b"", b"\xff"]),
    "day": ("date", [date(1, 1, 1), date(9999, 12, 31)]),
    "moment": (
        "timestamp",
        [datetime(1582, 10, 4, tzinfo=UTC), datetime(2025, 1, 1, 0, 0, 0, 1, tzinfo=UTC)],
    ),
    "wall": ("timestamp_ntz", [datetime(1, 1, 1), datetime(2025, 3, 30, 2, 30)]),  # noqa: DTZ001
    "money": ("decimal(38,18)", [Decimal("-0.000000000000000001"), Decimal(10**19)]),
    "many": ("array<int>", [[], [1, None]]),
    "pairs": ("map<string,array<timestamp>>", [{}, {"a": [datetime(2025, 1, 1, tzinfo=UTC)]}]),
    "inner": (
        "struct<a:int,b:struct<c:string>>",
        [{"a": None, "b": None}, {"a": 1, "b": {"c": "d"}}],
    ),
}
ROWS: list[dict[str, object]] = [
    {name: values[number] if number < 2 else None for name, (_, values) in VALUES.items()}
    for number in range(3)
]


def of_all_types(rows: Any, by_executors: Any, by_spark: Any) -> af.Flow:
    flow = af.Flow("types")
    records = flow.source(rows, name="rows").flat_map(lambda _: ROWS, name="records")
    records.to(by_executors, name="by_executors")
    records.to(by_spark, name="by_spark")
    return flow


@pytest.mark.asyncio
@pytest.mark.slow
async def test_spark_reads_files_of_executors_as_its_own(
    spark: SparkSession, tmp_path: Path
) -> None:
    schema = ", ".join(f"{name} {kind}" for name, (kind, _) in VALUES.items())
    ours, theirs = (str(tmp_path / name) for name in ("ours", "theirs"))

    done = await backfill(
        of_all_types,
        session=spark,
        sources={"rows": spark.range(0, 2, 1, 2)},
        sinks={
            "by_executors": SparkSink[Any](ours, schema=schema),
            "by_spark": Results(theirs, schema),
        },
        until=None,
        savepoint=None,
    )

    def read(folder: str, **options: str) -> list[str]:
        table = spark.read.options(**options).schema(schema).parquet(folder)
        # As text, which an ancient day of another calendar would differ in, and NaN would not.
        return sorted(map(repr, table.selectExpr("to_json(struct(*)) AS text", "*").collect()))

    assert spark.read.parquet(ours).schema == spark.read.parquet(theirs).schema
    assert len(read(ours)) == 6
    assert read(ours) == read(theirs)
    assert read(ours, datetimeRebaseMode="LEGACY") == read(ours)
    assert read(ours, datetimeRebaseMode="EXCEPTION") == read(ours)
    assert done.results == {"by_executors": 6, "by_spark": 6}
    assert {one.suffix for one in Path(ours).iterdir()} == {".parquet", ".manifest"}


@pytest.mark.asyncio
@pytest.mark.slow
async def test_no_row_with_nan_is_lost_to_a_filter_of_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    def numbers(rows: Any, sink: Any) -> af.Flow:
        flow = af.Flow("numbers")
        flow.source(rows, name="rows").map(lambda row: {"n": 1, "f": row["f"]}).to(
            sink, name="sink"
        )
        return flow

    rows = [{"f": 1.0}, {"f": float("nan")}]
    history, live = (SparkSink[Any](tmp_path / name, schema="n long, f double") for name in "hl")
    await backfill(
        numbers,
        session=spark,
        sources={"rows": spark.range(0, 2, 1, 1).selectExpr("if(id = 0, 1D, double('NaN')) AS f")},
        sinks={"sink": history},
        until=None,
        savepoint=None,
    )
    await numbers(rows, live).run()

    for sink in (history, live):
        table = spark.read.parquet(str(sink.path))
        pooled = [
            table.where(filter_).count() for filter_ in ("f > 2", "f = double('NaN')", "f != 1")
        ]
        assert pooled == [1, 1, 1]
        group = parquet_file(next(sink.path.glob("part-*"))).metadata.row_group(0)
        assert [group.column(number).is_stats_set for number in range(2)] == [True, False]


async def sums(spark: SparkSession, folder: Path, **more: Any) -> None:
    """A backfill into ``folder / "sums"``."""
    await backfill(
        build,
        session=spark,
        sources={"bids": SparkSource(frame(spark), of=Bid)},
        sinks={"sums": SparkSink[Any](folder / "sums", schema=more.pop("schema", SCHEMA), **more)},
        until=UNTIL,
        savepoint=folder / "savepoint",
    )


@pytest.mark.asyncio
@pytest.mark.slow
async def test_a_failed_backfill_leaves_no_file_and_keeps_existing_ones(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "sums"
    misfit: dict[str, Any] = {"schema": "who string, start long, total string"}

    with pytest.raises(
        ConnectorError, match=r"sink 'sums': .*: column 'total' is declared as string"
    ):
        await sums(spark, tmp_path, **misfit)
    assert list(folder.iterdir()) == []

    await sums(spark, tmp_path)
    before = sorted(folder.iterdir())
    (tmp_path / "savepoint").rename(tmp_path / "first")
    with pytest.raises(
        ConnectorError, match=r"sink 'sums': .*: column 'total' is declared as string"
    ):
        await sums(spark, tmp_path, overwrite=True, **misfit)
    assert sorted(folder.iterdir()) == before

    await sums(spark, tmp_path, overwrite=True)
    assert len(parquet_rows(folder)) > 100
    assert {one.suffix for one in folder.iterdir()} == {".parquet", ".manifest"}


def target(
    folder: Path, session: SparkSession, *, schema: str = "n long", row_group: int = 100
) -> FileTarget:
    owner = "sink 'n'"
    rows = RowsOut(declared(spark_schema(schema, owner=owner), owner=owner), owner=owner)
    return FileTarget(owner=owner, folder=str(folder), columns=rows, row_group=row_group)


def numbered(*values: Any) -> list[Any]:
    return [{"n": value} for value in values]


def row_groups(file: Path) -> list[int]:
    metadata = parquet_file(file).metadata
    return [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]


@pytest.mark.slow
def test_files_of_an_attempt_have_unique_names_and_the_records_of_their_exit(
    spark: SparkSession, tmp_path: Path
) -> None:
    found: list[dict[int, str]] = []
    for _ in range(2):
        with ResultFiles({3: target(tmp_path, spark), 5: target(tmp_path, spark)}, 7) as files:
            assert 3 in files
            assert 4 not in files
            files.write(3, numbered(1, 2))
            files.write(3, numbered(3))
            found.append(files.finish())

    first, second = (tmp_path / names[3] for names in found)
    assert first != second
    assert [list(names) for names in found] == [[3], [3]]
    for file in (first, second):
        assert parquet_rows(file) == numbered(1, 2, 3)


@pytest.mark.slow
def test_a_failed_attempt_removes_its_files_and_one_after_the_end_finds_no_folder(
    spark: SparkSession, tmp_path: Path
) -> None:
    def fail() -> None:
        with ResultFiles({3: target(tmp_path, spark, row_group=2)}, 7) as files:
            files.write(3, numbered(1, 2, 3))
            assert len(list(tmp_path.iterdir())) == 1
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert list(tmp_path.iterdir()) == []

    gone = tmp_path / "gone"
    with (
        pytest.raises(
            ConnectorError, match=r"sink 'n': executor \S+ cannot write .*gone.* see alike"
        ),
        ResultFiles({3: target(gone, spark)}, 7) as files,
    ):
        files.write(3, numbered(*range(100)))
    assert not gone.exists()


@pytest.mark.slow
def test_row_groups_have_the_size_that_the_sink_says(spark: SparkSession, tmp_path: Path) -> None:
    with ResultFiles({3: target(tmp_path, spark, row_group=300)}, 7) as files:
        for number in range(0, 1_000, 250):
            files.write(3, numbered(*range(number, number + 250)))
        name = files.finish()[3]

    assert row_groups(tmp_path / name) == [300, 300, 300, 100]
    assert parquet_rows(tmp_path / name) == numbered(*range(1_000))


@pytest.mark.slow
def test_large_records_do_not_wait_until_they_are_many(spark: SparkSession, tmp_path: Path) -> None:
    large = "x" * 2**20
    with ResultFiles({3: target(tmp_path, spark, schema="n string", row_group=10_000)}, 7) as files:
        files.write(3, numbered(*(large for _ in range(200))))
        name = files.finish()[3]

    first, *others = row_groups(tmp_path / name)
    assert first == 64  # of which nobody knew
    assert max(others) <= 40


@pytest.mark.slow
def test_a_column_that_parquet_cannot_hold_is_reported_with_the_sink(
    spark: SparkSession, tmp_path: Path
) -> None:
    schema = StructType([StructField("n", ArrayType(IntegerType(), containsNull=False))])
    owner = "sink 'n'"
    rows = RowsOut(declared(schema, owner=owner), owner=owner)
    where = FileTarget(owner=owner, folder=str(tmp_path), columns=rows, row_group=100)

    def write() -> None:
        with ResultFiles({3: where}, 7) as files:
            files.write(3, numbered([1, None]))
            files.finish()

    with pytest.raises(ConnectorError, match=r"sink 'n': executor \S+ cannot write .*non-nullable"):
        write()


@pytest.mark.slow
def test_an_invisible_file_is_refused_and_so_is_output_written_meanwhile(
    spark: SparkSession, tmp_path: Path
) -> None:
    def begun(**more: Any) -> HistoryFolderFiles:
        made = history_folder(SparkSink[Any](tmp_path / "sums", schema=SCHEMA, **more), "sums")
        assert isinstance(made, HistoryFolderFiles)
        made.check()
        made.begin()
        return made

    history = begun()
    with pytest.raises(SinkError, match="which this machine does not see"):
        history.prepare(["part-00-00000-1.parquet"])
    history.drop()
    assert list((tmp_path / "sums").iterdir()) == []

    history = begun()
    piece = tmp_path / "sums" / "part-00000-000001.parquet"
    piece.touch()
    with pytest.raises(SinkError, match="already exists: it has the name"):
        history.prepare([])
    history.drop()
    assert list((tmp_path / "sums").iterdir()) == [piece]


@pytest.mark.slow
def test_types_that_spark_would_read_differently_are_refused(
    tmp_path: Path, spark: SparkSession
) -> None:
    for schema, said in {
        "a interval day to second": "'a' is interval day to second, and Spark reads no interval day",
        "a array<struct<b: variant>>": "and Spark reads no variant from Parquet",
        "a map<string, time>": "and Spark reads no time",
        "a struct<>": "and Spark reads no struct<>",
        "who string, Who long": "more than one column 'who', and to Spark upper and lower case",
    }.items():
        with pytest.raises(SinkError, match=re.escape(said)):
            history_folder(SparkSink[Any](tmp_path / "sums", schema=schema), "sums")
