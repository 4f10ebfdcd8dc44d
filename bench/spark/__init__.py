"""``spark``: cost of aflow on Spark's executors, against Spark alone, in one local session."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from bench.harness import Measurement
from bench.spark import cold, enrichment, pass_through, source, windows
from bench.spark.session import started

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def measure(records: int, rounds: int) -> Measurement:
    """Measure with ``records`` events in Parquet: pass-through, source, windows, and calls for half of them."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        with started("spark", folder) as session:
            measurement = measured(session, folder, records, rounds)
        measurement.figures.update(cold.figures(records, rounds))
        return measurement


def measured(session: SparkSession, folder: Path, records: int, rounds: int) -> Measurement:
    """Measure in an existing session."""
    events = windows.events(session, folder, records)
    figures: dict[str, float | int | bool | str] = {
        "records": records,
        **pass_through.figures(events, rounds),
        **enrichment.figures(session, records // 2, rounds),
        **windows.figures(session, events, folder, rounds),
        **source.figures(events, folder, rounds),
        "rounds": rounds,
        "verified": True,
    }
    budgets = [*pass_through.BUDGETS, *enrichment.BUDGETS, *windows.BUDGETS, *source.BUDGETS]
    return Measurement("spark", figures, budgets)
