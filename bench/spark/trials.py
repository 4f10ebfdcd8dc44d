"""Median times of programs on Spark."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping

from bench.harness import timed


def medians(
    name: str, programs: Mapping[str, Callable[[], object]], rounds: int
) -> dict[str, float]:
    """Return the median seconds of ``rounds`` runs after a warm-up, by program; with 0 rounds, those of the warm-up.

    Raises ``SystemExit`` if the results differ.
    """
    expected: object = None
    times: dict[str, list[float]] = {name: [] for name in programs}
    for number in range(rounds + 1):
        for program_name, program in programs.items():
            seconds, result = timed(program)
            expected = result if expected is None else expected
            if result != expected:
                raise SystemExit(f"{name}: {program_name} gave {result}, not {expected}")
            if number or not rounds:
                times[program_name].append(seconds)
    return {name: statistics.median(some) for name, some in times.items()}
