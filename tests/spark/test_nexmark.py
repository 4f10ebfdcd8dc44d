"""Queries of Nexmark over history return the rows of DuckDB."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bench.nexmark.catalog import QUERIES
from bench.nexmark.generator import generate
from bench.nexmark.settings import NexmarkSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow


def test_queries_over_history_return_the_rows_of_sql(
    spark: SparkSession, require: Callable[[str, str], None], tmp_path: Path
) -> None:
    require("duckdb", "pip install duckdb")
    from bench.nexmark import history

    # Windows of windows, a join with timers, and windows of processing time.
    queries = history.comparable(["q5", "q9", "q12"])

    events = generate(4_000, NexmarkSettings(rate=200, out_of_order=100))

    found = history.measured(spark, tmp_path, queries, events, rounds=0)

    assert (found.figures["queries"], found.figures["verified"]) == (3, True)
    assert found.figures["q9_seconds"] != 0


def test_a_query_whose_results_have_no_order_over_history_is_refused(
    require: Callable[[str, str], None],
) -> None:
    require("duckdb", "pip install duckdb")
    pytest.importorskip("pyspark", reason="pyspark is not installed")
    from bench.nexmark import history

    with pytest.raises(SystemExit, match="q6 cannot be compared: auctions of a seller that expire"):
        history.comparable(["q1", "q6"])
    assert len(history.comparable([])) == len(QUERIES) - 3
