"""Rows that wait for a savepoint are kept apart from those that a killed driver still writes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from aflow_connectors.spark import SparkStream
from aflow_connectors.spark.stream.held_rows import HeldRows
from aflow_connectors.spark.stream.rows import StreamRows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow


def test_a_job_of_a_killed_driver_adds_no_rows_to_those_of_the_next_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "ids").mkdir()
    source = SparkStream[Any](spark.readStream.schema("id long").json(str(tmp_path / "ids")))
    held = HeldRows(tmp_path / "held", StreamRows({"ids": source}))

    name = held.write(spark.range(0, 2, 1, 1).toDF("id"), 7, "the next driver")
    # The same epoch, whose driver was killed meanwhile: its job ends in the JVM.
    held.write(spark.range(0, 5, 1, 1).toDF("id"), 7, "the killed driver")

    assert sorted(row.id for row in held.read(spark, "ids", [name]).collect()) == [0, 1]
