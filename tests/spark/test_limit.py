"""``limit`` after ``map_async`` ends the calls when Spark has enough results."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from aflow_connectors.spark import map_async

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: All their results together fit into the buffer of Spark's worker, which is flushed at 64 KiB.
ROWS = 5_000


async def counted(folder: Path, row: dict[str, Any]) -> dict[str, Any]:
    (folder / str(row["id"])).touch()
    await asyncio.sleep(0.02)
    return row


@pytest.mark.slow
def test_calls_end_when_spark_has_seen_enough_results(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(0, ROWS, 1, 1)

    # 500 calls in a second at most.
    found = map_async(rows, partial(counted, tmp_path), schema="id long", capacity=10).limit(5)

    assert len(found.collect()) == 5
    assert len(list(tmp_path.iterdir())) < ROWS / 2
