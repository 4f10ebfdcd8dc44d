"""Results that executors write themselves: what readers see is what Spark would have written, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

import aflow as af
from aflow.backfill.blocks import Leaving
from aflow.backfill.fragments import Exit
from aflow.errors import ConnectorError, SinkError
from aflow.model.batch import Batch
from aflow_connectors.spark import Results, SparkSource, backfill, result_files
from aflow_connectors.spark.columns import RowsOut
from aflow_connectors.spark.result_files import Into, ResultFiles
from aflow_connectors.spark.results_places import ResultsFolder, ResultsTable, results_of
from aflow_connectors.spark.schemas import declared, spark_schema
from tests.spark.parquet_rows import parquet_file, parquet_rows
from tests.spark.test_backfill import UNTIL, Bid, build, frame

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
async def test_spark_reads_what_executors_have_written_as_what_it_has_written_itself(
    spark: SparkSession, tmp_path: Path
) -> None:
    schema = ", ".join(f"{name} {kind}" for name, (kind, _) in VALUES.items())

    def write(table: DataFrame) -> None:
        table.write.parquet(str(tmp_path / "by spark"))

    done = await backfill(
        of_all_types,
        session=spark,
        sources={"rows": spark.range(0, 2, 1, 2)},
        sinks={
            "by_executors": Results(tmp_path / "by executors", schema),
            "by_spark": Results(write, schema),
        },
        until=None,
        savepoint=None,
    )

    ours, theirs = (
        spark.read.parquet(str(tmp_path / name)) for name in ("by executors", "by spark")
    )
    assert ours.schema == theirs.schema
    # As text, which an ancient day of another calendar would differ in, and NaN would not.
    text = [
        sorted(map(repr, table.selectExpr("to_json(struct(*)) AS t", "*").collect()))
        for table in (ours, theirs)
    ]
    assert text[0] == text[1]
    assert len(text[0]) == 6
    assert done.results == {"by_executors": 6, "by_spark": 6}
    assert (tmp_path / "by executors" / "_SUCCESS").exists()
    assert not (tmp_path / "by executors" / "_temporary").exists()


async def sums(spark: SparkSession, folder: Path, **more: Any) -> list[dict[str, Any]]:
    """The results of a backfill."""
    await backfill(
        build,
        session=spark,
        sources={"bids": SparkSource(more.pop("bids", frame(spark)), of=Bid)},
        sinks={"sums": Results(folder / "sums", more.pop("schema", SCHEMA), **more)},
        until=UNTIL,
        savepoint=folder / "savepoint",
    )
    return sorted(parquet_rows(folder / "sums"), key=repr)


@pytest.mark.asyncio
@pytest.mark.slow
async def test_a_folder_that_is_replaced_has_what_is_new_alone_and_one_without_results_has_columns(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "sums"
    first = await sums(spark, tmp_path)
    assert len(first) > 100
    (folder / "of somebody").mkdir()
    (tmp_path / "savepoint").rename(tmp_path / "first")

    assert await sums(spark, tmp_path, bids=frame(spark).limit(0), overwrite=True) == []

    assert parquet_file(next(folder.glob("part-*.parquet"))).schema_arrow.names == [
        "who",
        "start",
        "total",
    ]
    assert spark.read.parquet(str(folder)).schema.names == ["who", "start", "total"]
    assert sorted(one.name for one in folder.iterdir() if not one.name.startswith("part-")) == [
        "_SUCCESS"
    ]


@pytest.mark.asyncio
@pytest.mark.slow
async def test_a_backfill_that_fails_leaves_no_folder_and_what_was_there_stays(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = tmp_path / "sums"
    misfit: dict[str, Any] = {"schema": "who string, start long, total string"}

    with pytest.raises(ConnectorError, match="column 'total' is declared as string"):
        await sums(spark, tmp_path, **misfit)
    assert list(tmp_path.iterdir()) == []

    before = await sums(spark, tmp_path)
    (tmp_path / "savepoint").rename(tmp_path / "first")
    with pytest.raises(ConnectorError, match="column 'total' is declared as string"):
        await sums(spark, tmp_path, overwrite=True, **misfit)
    assert sorted(parquet_rows(folder), key=repr) == before
    assert not (folder / "_temporary").exists()


@pytest.mark.slow
def test_what_only_spark_can_write_as_the_session_says_is_left_to_it(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def kind(to: Any = tmp_path / "new", schema: str | None = SCHEMA, **conf: str) -> type:
        for name, value in conf.items():
            spark.conf.set(name.replace("_", "."), value)
        try:
            return type(results_of(Results(to, schema), "sums", spark))
        finally:
            for name in conf:
                spark.conf.unset(name.replace("_", "."))

    (tmp_path / "file").touch()
    codec = "spark_sql_parquet_compression_codec"
    assert kind() is ResultsFolder
    assert kind(**{codec: "zstd"}) is ResultsFolder
    assert kind(str(tmp_path / "new")) is ResultsFolder
    assert kind((tmp_path / "new").as_uri()) is ResultsFolder
    assert kind(schema=None) is ResultsTable
    assert kind(print) is ResultsTable
    assert kind("s3a://bucket/new") is ResultsTable
    assert kind(tmp_path / "file") is ResultsTable
    assert kind(schema="a interval day to second") is ResultsTable
    assert kind(schema="a array<struct<b: variant>>") is ResultsTable
    assert kind(schema="a string collate UNICODE_CI") is ResultsTable
    assert kind(**{codec: "lz4"}) is ResultsTable
    assert kind(parquet_crypto_factory_class="org.Factory") is ResultsTable


@pytest.mark.asyncio
@pytest.mark.slow
async def test_files_are_compressed_as_the_session_says(
    spark: SparkSession, tmp_path: Path
) -> None:
    codec = "spark.sql.parquet.compression.codec"
    spark.conf.set(codec, "zstd")
    try:
        await sums(spark, tmp_path)
    finally:
        spark.conf.unset(codec)

    for file in (tmp_path / "sums").glob("part-*.parquet"):
        column = parquet_file(file).metadata.row_group(0).column(0)
        assert column.compression == "ZSTD"


def into(folder: Path, session: SparkSession) -> Into:
    rows = RowsOut(
        declared(spark_schema("n long", owner="sink 'n'"), owner="sink 'n'"), owner="sink 'n'"
    )
    return Into(
        owner="sink 'n'", folder=str(folder), columns=rows, compression="snappy", metadata={}
    )


def leaving(way: int, values: list[int]) -> Leaving:
    exit_ = Exit(number=way, origin=cast("Any", None), side=None)
    return Leaving(exit_, Batch([{"n": value} for value in values], None, None))


@pytest.mark.slow
def test_files_of_an_attempt_have_names_of_their_own_and_only_what_leaves_by_their_exit(
    spark: SparkSession, tmp_path: Path
) -> None:
    found: list[dict[int, str]] = []
    for _ in range(2):
        with ResultFiles({3: into(tmp_path, spark)}, 7) as files:
            assert files.takes(leaving(3, [1, 2]))
            assert not files.takes(leaving(4, [9]))
            assert files.takes(leaving(3, [3]))
            found.append(files.finish())

    first, second = (tmp_path / names[3] for names in found)
    assert first != second
    for file in (first, second):
        assert parquet_rows(file) == [{"n": 1}, {"n": 2}, {"n": 3}]


@pytest.mark.slow
def test_an_attempt_that_fails_removes_its_files_and_one_behind_the_end_finds_no_folder(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(result_files, "_RECORDS", 2)

    def fail() -> None:
        with ResultFiles({3: into(tmp_path, spark)}, 7) as files:
            files.takes(leaving(3, [1, 2, 3]))
            assert len(list(tmp_path.iterdir())) == 1
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert list(tmp_path.iterdir()) == []

    gone = tmp_path / "gone"
    with (
        pytest.raises(
            ConnectorError, match=r"sink 'n': executor \S+ cannot write .*gone.*see alike"
        ),
        ResultFiles({3: into(gone, spark)}, 7) as files,
    ):
        files.takes(leaving(3, [1, 2, 3]))
    assert not gone.exists()


@pytest.mark.slow
@pytest.mark.parametrize(("limit", "groups"), [("_RECORDS", [4, 4, 2]), ("_BYTES", [4, 4, 2])])
def test_records_wait_in_memory_until_they_are_a_row_group(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    limit: str,
    groups: list[int],
) -> None:
    monkeypatch.setattr(result_files, limit, 4 if limit == "_RECORDS" else 32)
    with ResultFiles({3: into(tmp_path, spark)}, 7) as files:
        for number in range(5):
            files.takes(leaving(3, [number, number]))
        name = files.finish()[3]

    metadata = parquet_file(tmp_path / name).metadata
    assert [
        metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)
    ] == groups


@pytest.mark.slow
def test_what_somebody_wrote_meanwhile_and_what_is_not_seen_here_is_refused_before_anything_is_replaced(
    spark: SparkSession, tmp_path: Path
) -> None:
    def begun(*, overwrite: bool) -> ResultsFolder:
        made = results_of(Results(tmp_path / "sums", SCHEMA, overwrite), "sums", spark)
        assert isinstance(made, ResultsFolder)
        made.check()
        made.begin()
        return made

    one, other = begun(overwrite=False), begun(overwrite=True)
    mine = tmp_path / "sums" / "mine"
    mine.touch()
    with pytest.raises(SinkError, match="is there already: remove it"):
        one.take([])
    one.drop()
    with pytest.raises(SinkError, match="which this machine does not see"):
        other.take(["part-00.parquet"])
    other.drop()
    assert list((tmp_path / "sums").iterdir()) == [mine]
