"""Runs two programs in turn, checks that they agree, and compares their medians.

The machine is noisy and drifts, so aflow and the baseline alternate in one process and only ratios are quoted. A benchmark that
does not verify its result measures nothing, so every pair of runs is compared.
"""

from __future__ import annotations

import gc
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Run = Callable[[], object]
"""Does the whole work once and returns a result that can be compared."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """What a benchmark found. ``ratio`` is aflow's records per second divided by the baseline's."""

    name: str
    records: int
    seconds: float
    records_per_s: float
    baseline_records_per_s: float
    ratio: float
    verified: bool
    rounds: int
    budget: float
    extra: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def within(self) -> bool:
        """True if the ratio keeps the budget."""
        return self.ratio >= self.budget

    def as_dict(self) -> dict[str, Any]:
        """The measurement as JSON-able data, ``extra`` on the same level."""
        plain = {name: getattr(self, name) for name in self.__slots__ if name != "extra"}
        return plain | self.extra


def compare(
    name: str, records: int, aflow: Run, baseline: Run, *, budget: float, rounds: int
) -> Measurement:
    """Run both ``rounds`` times in turn after one warm-up each, and compare the medians."""
    expected = baseline()
    if aflow() != expected:
        raise SystemExit(f"{name}: aflow and the baseline do not agree, so there is nothing to measure")
    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(rounds):
        theirs.append(_timed(baseline, expected, name))
        ours.append(_timed(aflow, expected, name))
    seconds, base = statistics.median(ours), statistics.median(theirs)
    return Measurement(
        name=name,
        records=records,
        seconds=seconds,
        records_per_s=records / seconds,
        baseline_records_per_s=records / base,
        ratio=base / seconds,
        verified=True,
        rounds=rounds,
        budget=budget,
    )


def _timed(run: Run, expected: object, name: str) -> float:
    gc.collect()
    start = time.perf_counter()
    result = run()
    seconds = time.perf_counter() - start
    if result != expected:
        raise SystemExit(f"{name}: a run gave another result than the first one")
    return seconds


def write_json(measurement: dict[str, Any], path: Path) -> None:
    """Write one measurement to ``path``."""
    path.write_text(json.dumps(measurement, indent=2) + "\n")
