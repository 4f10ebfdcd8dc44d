"""Programs that run in turn, each on Spark."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping

from bench.harness import timed


def medians(
    what: str, programs: Mapping[str, Callable[[], object]], rounds: int
) -> dict[str, float]:
    """Seconds of each program, the median of ``rounds`` after one run to warm up; of 0 rounds, those of that run.

    Raises ``SystemExit`` unless all runs of all programs give the same result.
    """
    expected: object = None
    times: dict[str, list[float]] = {name: [] for name in programs}
    for number in range(rounds + 1):
        for name, program in programs.items():
            seconds, result = timed(program)
            expected = result if expected is None else expected
            if result != expected:
                raise SystemExit(f"{what}: {name} gave {result}, and not {expected}")
            if number or not rounds:
                times[name].append(seconds)
    return {name: statistics.median(some) for name, some in times.items()}
