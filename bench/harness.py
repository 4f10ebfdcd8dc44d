"""Run two programs in turn, verify that their results are equal, and compare the medians of their times.

The machine is noisy and drifts, so aflow and the baseline alternate in one process and only ratios are quoted. A
benchmark without verification measures nothing, so the result of every run is compared.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

T = TypeVar("T")

Run = Callable[[], object]
"""A program: does the whole work once and returns its result."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Bound of a figure: ``at_least`` or ``at_most``."""

    figure: str
    at_least: float | None = None
    at_most: float | None = None

    def kept_by(self, value: float) -> bool:
        """Return True if ``value`` is within the bound."""
        return (self.at_least is None or value >= self.at_least) and (
            self.at_most is None or value <= self.at_most
        )

    def __str__(self) -> str:
        return f"≥ {self.at_least:g}" if self.at_least is not None else f"≤ {self.at_most:g}"


@dataclass(frozen=True, slots=True)
class Measurement:
    """Result of a benchmark: all ``figures`` by name."""

    name: str
    figures: dict[str, float | int | bool | str]
    budgets: list[Budget] = field(default_factory=list[Budget])

    def as_dict(self) -> dict[str, Any]:
        """Return the measurement as JSON-able data: the figures on one level, and the budgets by figure."""
        budgets = {
            budget.figure: {
                "bound": str(budget),
                "kept": budget.kept_by(float(self.figures[budget.figure])),
            }
            for budget in self.budgets
        }
        kept = all(budget["kept"] for budget in budgets.values())
        return {"name": self.name, **self.figures, "budgets": budgets, "within_budget": kept}


def compare(
    name: str,
    records: int,
    aflow: Run,
    baseline: Run,
    *,
    at_least: float,
    rounds: int,
    canonical: Callable[[Any], object] = lambda result: result,
) -> Measurement:
    """Run both ``rounds`` times in turn after one warm-up each, and compare the medians of their times.

    ``canonical`` converts both kinds of result to one form for the comparison; it is not timed. Raises ``SystemExit``
    if a result differs from the first one of the baseline.
    """
    expected = canonical(baseline())
    _check(name, canonical(aflow()), expected)
    times: dict[str, list[float]] = {"aflow": [], "baseline": []}
    for _ in range(rounds):
        for program, run in (("baseline", baseline), ("aflow", aflow)):
            seconds, result = timed(run)
            _check(name, canonical(result), expected)
            times[program].append(seconds)
    ours, theirs = (statistics.median(times[program]) for program in ("aflow", "baseline"))
    return Measurement(
        name,
        {
            "records": records,
            "seconds": round(ours, 4),
            "records_per_s": round(records / ours),
            "baseline_records_per_s": round(records / theirs),
            "ratio": round(theirs / ours, 3),
            "ratio_best": round(min(times["baseline"]) / min(times["aflow"]), 3),
            "rounds": rounds,
            "verified": True,
        },
        [Budget("ratio", at_least=at_least)],
    )


def timed(run: Callable[[], T]) -> tuple[float, T]:
    """Return the seconds that ``run`` took, after a garbage collection, and its result."""
    gc.collect()
    start = time.perf_counter()
    result = run()
    return time.perf_counter() - start, result


def run_async(main: Coroutine[Any, Any, T]) -> T:
    """Run on uvloop if it is installed, as ``aflow run`` does."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    return uvloop.run(main)


def percentile(values: list[float], share: float) -> float:
    """Return the value below which ``share`` (0 to 1) of ``values`` are: the nearest one that occurs."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def _check(name: str, result: object, expected: object) -> None:
    if result != expected:
        raise SystemExit(
            f"{name}: a run returned a different result than the baseline; nothing was measured"
        )
