"""``generator``: the load of ``aflow bench`` itself. Its error at 5,000/s against a known delay, and its highest rate.

The known delay is a loop of 20 µs in a step, so the latency of a record that does not wait is 20 µs. What is measured
beyond it is the error of the load, with the cost of the engine for one record. Each step also notes with its own clock
when it ended, and the intended times are known, so the latency of each record is known twice. The error is the median
of the p99 of each second: a virtual machine whose host stops it for some 10 ms in some seconds delays any program. The
difference compares the p99 of all seconds, that of the load and that of the clock, and so has these delays in both.
"""

from __future__ import annotations

import time
from datetime import timedelta
from statistics import median

import aflow as af
from aflow.bench import BenchResult, run
from bench.harness import Budget, Measurement, percentile, run_async

RATE = 5_000
DELAY = 0.00002
FASTEST = 500_000


def measure(records: int, rounds: int) -> Measurement:
    """Measure ``records`` at 5,000/s, and two seconds at 500,000/s; the best of ``rounds``."""
    errors: list[float] = []
    differences: list[float] = []
    noise: list[float] = []
    accepted: list[float] = []
    for _ in range(rounds):
        slow, ended = run_async(_delayed(records / RATE))
        if slow.problems:
            continue  # the machine was too busy for the load: this round has no figure
        errors.append(median(_by_second(ended)) - DELAY * 1000)
        differences.append(abs(_difference(slow, ended)))
        noise.append(slow.noise.timer_p99_ms)
        fast = run_async(_fast())
        accepted.append(fast.sources[0].accepted_per_s)
    if not errors:
        raise SystemExit("generator: the machine was too busy in all rounds; nothing was measured")
    return Measurement(
        "generator",
        {
            "records": records,
            "seconds": round(records / RATE, 2),
            "p99_error_ms": round(min(errors), 3),
            "p99_difference_ms": round(min(differences), 3),
            "idle_timer_p99_ms": round(min(noise), 3),
            "records_per_s": round(max(accepted)),
            "rounds": len(errors),
            "verified": True,
        },
        [
            Budget("p99_error_ms", at_most=0.2),
            Budget("p99_difference_ms", at_most=0.2),
            Budget("records_per_s", at_least=FASTEST * 0.99),
        ],
    )


async def _delayed(seconds: float) -> tuple[BenchResult, list[float]]:
    ended: list[float] = []

    def delay(n: int) -> int:
        until = time.perf_counter() + DELAY
        while time.perf_counter() < until:
            pass
        ended.append(time.perf_counter())
        return n

    flow = af.Flow("delayed")
    flow.source([0], name="numbers").map(delay, name="delay").to(af.CollectSink[int](), name="out")
    result = await run(
        flow,
        {"numbers": lambda n: n},
        rate=RATE,
        duration=timedelta(seconds=seconds),
        warmup=timedelta(0),
    )
    if result.latency().count != len(ended):
        raise SystemExit(
            f"generator: {len(ended):,} records, and {result.latency().count:,} latencies"
        )
    return result, ended


def _difference(result: BenchResult, ended: list[float]) -> float:
    """Return the difference of the p99 in ms: measured, and from the clock of the step."""
    return result.latency().percentiles_ms["99"] - percentile(_latencies(ended), 0.99)


def _by_second(ended: list[float]) -> list[float]:
    """Return the p99 (ms) of the records of each second, from the clock of the step."""
    latencies = _latencies(ended)
    return [
        percentile(latencies[begin : begin + RATE], 0.99)
        for begin in range(0, len(latencies), RATE)
    ]


def _latencies(ended: list[float]) -> list[float]:
    """Return the latency (ms) of each record from the clock of the step.

    The start of the load is unknown here, so it is taken from the record that was processed the soonest.
    """
    late = [time - number / RATE for number, time in enumerate(ended)]
    origin = min(late) - DELAY
    return [(one - origin) * 1000 for one in late]


async def _fast() -> BenchResult:
    flow = af.Flow("fast")
    flow.source([0], name="numbers").to(af.CollectSink[int](), name="out")
    return await run(
        flow,
        {"numbers": list(range(10_000))},
        rate=FASTEST,
        duration=timedelta(seconds=2),
        warmup=timedelta(seconds=0.5),
    )
