"""The benchmark of Spark measures and verifies its cases."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bench.spark import measured

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow


def test_the_benchmark_verifies_its_results(spark: SparkSession, tmp_path: Path) -> None:
    found = measured(spark, tmp_path, records=24_000, rounds=0)

    assert found.figures["verified"]
    assert {one.figure for one in found.budgets} <= set(found.figures)
