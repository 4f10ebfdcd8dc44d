"""Rows of every type become the same records over history and live, and records become the same rows."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import aflow as af
from aflow_connectors.spark import SparkSink, SparkSource, backfill
from aflow_connectors.spark.dataframe.schema import spark_schema
from tests.connectors.files.reading import records
from tests.spark.every_type import ROWS, SCHEMA, SQL, Everything

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.asyncio]


def frame(spark: SparkSession) -> DataFrame:
    """``ROWS``, by way of Spark alone."""
    schema = spark_schema(SCHEMA, owner="test")
    selected = [
        f"CAST(col{number} AS {field.dataType.simpleString()}) AS {field.name}"
        for number, field in enumerate(schema.fields, 1)
    ]
    return spark.sql(SQL).selectExpr(*selected)


class Compared(af.ProcessFunction[Everything, Everything]):
    """Compares each record with the expected one, on the executor."""

    def process(self, value: Everything, ctx: af.ProcessContext) -> Iterable[Everything]:
        expected = ROWS[value.id]
        assert value == expected, f"{value} is not {expected}"
        assert repr(value) == repr(expected)
        yield value


def compared(rows: af.Source[Everything], out: af.Sink[Everything]) -> af.Flow:
    flow = af.Flow("compared")
    flow.source(rows, name="rows").process(Compared(), name="compared").to(out, name="out")
    return flow


async def test_rows_are_the_same_records_in_a_snapshot_in_a_stream_and_over_history(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = frame(spark)

    written = await records(SparkSource(rows, snapshot=tmp_path / "s", of=Everything))
    streamed = await records(SparkSource(rows, of=Everything))
    done = await backfill(
        compared,
        session=spark,
        sources={"rows": SparkSource(rows, of=Everything)},
        sinks={"out": None},
        until=None,
        savepoint=None,
    )

    assert sorted(written, key=lambda one: one.id) == ROWS
    assert repr(sorted(streamed, key=lambda one: one.id)) == repr(ROWS)
    assert done.results == {"out": 2}


async def test_records_are_the_same_rows_written_live_and_over_history(
    spark: SparkSession, tmp_path: Path
) -> None:
    schema = spark_schema(SCHEMA, owner="test")
    rows = frame(spark)
    over_history: SparkSink[Everything] = SparkSink(tmp_path / "history", schema=schema)
    live: SparkSink[Everything] = SparkSink(tmp_path / "live", schema=schema)

    await backfill(
        compared,
        session=spark,
        sources={"rows": SparkSource(rows, of=Everything)},
        sinks={"out": over_history},
        until=None,
        savepoint=None,
    )
    await compared(af.IterableSource(ROWS), live).run()

    for folder in ("history", "live"):
        found = spark.read.parquet(str(tmp_path / folder))
        assert found.schema.simpleString() == rows.schema.simpleString()
        assert _as_text(found) == _as_text(rows)


def _as_text(rows: DataFrame) -> list[str]:
    """Content as Spark formats it, since maps cannot be compared."""
    of_map = "map_entries(by_place) AS by_place"
    others = [f"`{name}`" for name in rows.columns if name != "by_place"]
    exact = ["unix_micros(at) AS micros", "CAST(there AS string) AS local"]
    plain = rows.selectExpr(*others, of_map, *exact)
    return sorted(row[0] for row in plain.selectExpr("to_json(struct(*))").collect())
