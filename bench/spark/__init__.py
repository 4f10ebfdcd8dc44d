"""``spark``: what aflow costs on Spark's executors, beside what Spark does there by itself, in one local session."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from aflow.errors import ConnectorError
from aflow_connectors.spark import local_session
from bench.harness import Measurement
from bench.spark import cold, enrichment, passing, reading, windows
from bench.spark.session import settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def measure(records: int, rounds: int) -> Measurement:
    """``records`` events in Parquet: passed through, read, and in windows; half of them are called for."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        try:
            session = local_session("bench", conf=settings(folder))
        except ConnectorError as exc:
            raise SystemExit(f"spark: {exc}") from exc
        try:
            measurement = measured(session, folder, records, rounds)
        finally:
            session.stop()
        measurement.figures.update(cold.figures(records, rounds))
        return measurement


def measured(session: SparkSession, folder: Path, records: int, rounds: int) -> Measurement:
    """The same in a session that is there."""
    events = windows.events(session, folder, records)
    figures: dict[str, float | int | bool | str] = {
        "records": records,
        **passing.figures(events, rounds),
        **enrichment.figures(session, records // 2, rounds),
        **windows.figures(session, events, folder, rounds),
        **reading.figures(events, folder, rounds),
        "rounds": rounds,
        "verified": True,
    }
    budgets = [*passing.BUDGETS, *enrichment.BUDGETS, *windows.BUDGETS, *reading.BUDGETS]
    return Measurement("spark", figures, budgets)
