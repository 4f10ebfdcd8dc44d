"""Rates with few and many keys, in large and small batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import rmtree
from statistics import fmean, median
from typing import TYPE_CHECKING

from bench.harness import Budget
from bench.spark_stream.batches import Batches
from bench.spark_stream.programs import by_aflow, by_processor, by_spark
from bench.spark_stream.trial import Trial

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Case:
    """Micro-batches with which the programs are compared."""

    name: str
    batches: Batches
    with_processor: bool = True
    """False: ``transformWithState`` would take minutes for one batch."""

    @property
    def budgets(self) -> list[Budget]:
        """Return the budgets of the figures of the case."""
        native = Budget(f"{self.name}_ratio", at_least=0.35)
        processor = Budget(f"{self.name}_times_processor", at_least=5)
        return [native, processor] if self.with_processor else [native]


def cases(records: int) -> list[Case]:
    """Return the cases; a large batch has ``records`` events and a small one a tenth.

    Few keys are a twentieth of ``records``, and a window closes after ``records`` events. Many keys are five times as
    many, and each of them is in the one window that is open.
    """
    few, many, small = max(1, records // 20), records * 5, max(2, records // 10)
    large_few = Batches(rows=records, keys=few, window_rows=records, warm=1, measured=4)
    large_many = Batches(
        rows=records, keys=many, window_rows=2 * many, fill=many, warm=1, measured=3
    )
    return [
        Case("few_keys", large_few),
        Case("few_keys_small_batches", replace(large_few, rows=small, warm=2, measured=10)),
        Case("many_keys", large_many, with_processor=False),
        Case("many_keys_small_batches", replace(large_many, rows=small, measured=5)),
    ]


def figures(
    session: SparkSession, folder: Path, compared: Sequence[Case], rounds: int
) -> dict[str, float]:
    """Measure the cases."""
    found: dict[str, float] = {}
    for case in compared:
        found |= _figures(session, folder / case.name, case, rounds)
    return found


def _figures(session: SparkSession, folder: Path, case: Case, rounds: int) -> dict[str, float]:
    batches, name = case.batches, case.name
    trial = Trial(session, folder / "all", batches)
    spark, aflow = _medians(trial, rounds)
    found = {f"{name}_per_s": round(batches.rows / aflow), f"{name}_ratio": round(spark / aflow, 3)}
    if case.with_processor:
        # Fewer batches, and no other keys in the state, which makes no access slower.
        few = replace(batches, fill=0, warm=1, measured=1)
        slow = fmean(Trial(session, folder / "few", few).seconds(by_processor))
        found[f"{name}_times_processor"] = round(slow / aflow, 1)
    rmtree(folder)
    return found


def _medians(trial: Trial, rounds: int) -> tuple[float, float]:
    """Return the seconds of a measured batch of both programs: the median of the means of ``rounds`` runs in turn."""
    spark: list[float] = []
    aflow: list[float] = []
    for _ in range(rounds):
        spark.append(fmean(trial.seconds(by_spark)))
        aflow.append(fmean(trial.seconds(by_aflow)))
    return median(spark), median(aflow)
