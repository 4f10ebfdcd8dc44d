"""Fixed costs of a trigger: a flow over small batches, against a function for ``foreachBatch`` that returns."""

from __future__ import annotations

from pathlib import Path
from shutil import rmtree
from statistics import median
from typing import TYPE_CHECKING, Final

from bench.harness import Budget
from bench.spark_stream.batches import Batches
from bench.spark_stream.programs import by_aflow, by_nothing
from bench.spark_stream.trial import Trial

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BUDGETS: Final = [Budget("trigger_overhead_s", at_most=0.5)]


def figures(session: SparkSession, folder: Path, measured: int) -> dict[str, float]:
    """Measure with ``measured`` batches of 100 events of 10 keys."""
    batches = Batches(rows=100, keys=10, window_rows=1_000, warm=measured // 4, measured=measured)
    trial = Trial(session, folder, batches)
    empty = median(trial.unverified_seconds(by_nothing))
    aflow = median(trial.seconds(by_aflow))
    rmtree(folder)
    return {"empty_trigger_s": round(empty, 3), "trigger_overhead_s": round(aflow - empty, 3)}
