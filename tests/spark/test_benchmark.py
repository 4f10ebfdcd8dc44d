"""The benchmarks of Spark measure and verify their cases."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bench import spark as history
from bench.spark.windows import WINDOW
from bench.spark_stream.batches import Batches
from bench.spark_stream.programs import SumProcessor
from bench.spark_stream.trial import Trial
from tests.long_tests import LONG

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pd: Any = import_module("pandas")  # which has no types

pytestmark = pytest.mark.slow


@LONG
def test_the_benchmark_verifies_its_results(spark: SparkSession, tmp_path: Path) -> None:
    found = history.measured(spark, tmp_path, records=24_000, rounds=0)

    assert found.figures["verified"]
    assert {one.figure for one in found.budgets} <= set(found.figures)


def test_the_processor_emits_the_sum_of_all_batches_when_the_window_ends() -> None:
    handle = _Handle()
    processor = SumProcessor()
    processor.init(handle)

    for prices in ([1, 2], [3]):
        rows = iter([pd.DataFrame({"price": prices})])
        assert not list(processor.handleInputRows(("anna", WINDOW), rows, None))
    (result,) = processor.handleExpiredTimer(("anna", WINDOW), None, None)

    assert result.to_dict("records") == [{"who": "anna", "start": WINDOW, "total": 6}]
    assert handle.timers == [2 * WINDOW - 1]
    assert handle.held is None


class _Handle:
    """A handle with one value, for one key."""

    def __init__(self) -> None:
        self.held: tuple[int] | None = None
        self.timers: list[int] = []

    def getValueState(self, name: str, schema: str) -> _Handle:  # noqa: N802
        return self

    def registerTimer(self, time: int) -> None:  # noqa: N802
        self.timers.append(time)

    def get(self) -> tuple[int] | None:
        return self.held

    def update(self, value: tuple[int]) -> None:
        self.held = value

    def clear(self) -> None:
        self.held = None


def test_a_program_with_other_results_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    def nothing(session: SparkSession, batches: Batches, files: Path, out: Path) -> list[float]:
        columns = ("cast(id as string) as who", "id as start", "id as total")
        session.range(0).selectExpr(*columns).write.parquet(str(out / "sums"))
        return [1.0]

    batches = Batches(rows=40, keys=5, window_rows=50, warm=0, measured=1)

    with pytest.raises(SystemExit, match="nothing gave"):
        Trial(spark, tmp_path / "trial", batches).seconds(nothing)
