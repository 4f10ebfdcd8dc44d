"""``fairness``: delay that a saturated pipeline causes to other coroutines of its event loop."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Coroutine
from typing import Any

import aflow as af
from bench.events import HandWritten, make_events
from bench.firing import CASES, fire
from bench.harness import Budget, Measurement, percentile, run_async
from bench.keyed_window import Totals, as_rows, windowed

#: Seconds between two ticks of the other coroutine.
TICK = 0.005


def measure(records: int, rounds: int) -> Measurement:
    """Measure the delay of a coroutine that wakes every 5 ms, alone and beside the pipeline."""
    events = make_events(records)
    program = HandWritten()
    program.add(events)
    expected = as_rows(program.finish())
    alone: list[float] = []
    beside: list[float] = []
    slow: list[float] = []
    for _ in range(rounds):
        alone += run_async(_ticks(asyncio.sleep(1.0)))
        flow, rows = af.Flow("fairness"), af.CollectSink[af.Windowed[str, Totals]]()
        flow.source(events).pipe(windowed).to(rows)
        beside += run_async(_ticks(flow.run()))
        if as_rows(rows.values) != expected:
            raise SystemExit(
                "fairness: the windows differ from those by hand; nothing was measured"
            )
        slow += run_async(_ticks(_slow_steps(records // 100)))
    firing = firing_figures(records)
    return Measurement(
        "fairness",
        {
            "records": records,
            "ticks": len(beside),
            "p50_ms": round(percentile(beside, 0.50) * 1000, 2),
            "p99_ms": round(percentile(beside, 0.99) * 1000, 2),
            "max_ms": round(max(beside) * 1000, 2),
            "slow_p99_ms": round(percentile(slow, 0.99) * 1000, 2),
            "alone_p99_ms": round(percentile(alone, 0.99) * 1000, 2),
            **firing,
            "rounds": rounds,
            "verified": True,
        },
        [
            Budget("p99_ms", at_most=10),
            Budget("slow_p99_ms", at_most=10),
            *(Budget(f"{case}_p99_ms", at_most=10) for case in CASES),
            *(Budget(f"{case}_max_ms", at_most=20) for case in CASES),
        ],
    )


def firing_figures(keys: int) -> dict[str, float]:
    """Return the delays while ``keys`` windows or timers fire, once without full collections of garbage, once with.

    The latter are ``…_gc_ms``, the longest collection, and ``…_max_with_gc_ms``.
    """
    figures: dict[str, float] = {}
    for name, case in CASES.items():
        tuned = fire(case, keys, full_collections=False)
        gc.collect()
        default = fire(case, keys)
        gc.collect()
        figures |= tuned.figures(name)
        collection = max(default.collections, default=0.0)
        figures[f"{name}_gc_ms"] = round(collection * 1000, 2)
        figures[f"{name}_max_with_gc_ms"] = round(max(default.delays) * 1000, 2)
    return figures


async def _slow_steps(records: int) -> None:
    """Run a pipeline whose step computes for 100 µs on each record: a batch of 1,024 would take 100 ms."""
    flow, done = af.Flow("slow"), af.CollectSink[int]()
    flow.source(range(records)).map(_compute).to(done)
    await flow.run()
    if len(done.values) != records:
        raise SystemExit(f"fairness: {len(done.values):,} of {records:,} records were processed")


def _compute(number: int) -> int:
    end = time.perf_counter() + 0.0001
    while time.perf_counter() < end:
        number += 1
    return number


async def _ticks(work: Coroutine[Any, Any, object]) -> list[float]:
    """Return the delays (seconds) of a coroutine that sleeps 5 ms at a time, while ``work`` runs."""
    delays: list[float] = []

    async def tick() -> None:
        while True:
            start = time.perf_counter()
            await asyncio.sleep(TICK)
            delays.append(max(0.0, time.perf_counter() - start - TICK))

    async with asyncio.TaskGroup() as group:
        ticking = group.create_task(tick())
        await work
        ticking.cancel()
    return delays
