"""``spark_stream``: keyed windows as a stream on Spark, against Structured Streaming alone, in one local session."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from bench.harness import Measurement
from bench.spark.session import started
from bench.spark_stream import cases, growth, trigger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Measured triggers of small batches.
_TRIGGERS: Final = 20
#: Part of the events with which all programs run first, so that Java has compiled what they use.
_WARM_UP: Final = 20


def measure(records: int, rounds: int) -> Measurement:
    """Measure with batches of ``records`` events and a tenth, and the costs of a trigger; each run is verified."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        with started("spark_stream", folder) as session:
            warm_up, *_ = cases.cases(max(20, records // _WARM_UP))
            cases.figures(session, folder / "warm up", [warm_up], 1)
            found = cases.cases(records)
            measurement = measured(session, folder, found, records, rounds)
            overhead = trigger.figures(session, folder / "trigger", _TRIGGERS)
        measurement.figures.update({**overhead, **growth.figures(records)})
        measurement.budgets.extend(trigger.BUDGETS)
        return measurement


def measured(
    session: SparkSession,
    folder: Path,
    compared: Sequence[cases.Case],
    records: int,
    rounds: int,
) -> Measurement:
    """Measure the cases in an existing session."""
    figures: dict[str, float | int | bool | str] = {
        "records": records,
        **cases.figures(session, folder, compared, rounds),
        "rounds": rounds,
        "verified": True,
    }
    budgets = [budget for case in compared for budget in case.budgets]
    return Measurement("spark_stream", figures, budgets)
