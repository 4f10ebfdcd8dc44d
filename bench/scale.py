"""``scale``: cost of a record as keys, subtasks, steps of a chain and jobs in one process grow.

Every figure is a cost divided by that of the smallest number, so 1 is flat. There is no budget: the page says what
grows, and why.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Callable
from datetime import timedelta
from typing import Final

import aflow as af
from aflow.connect import Batch, Sink, Writer, WriterContext
from bench.harness import Measurement, run_async, timed

KEYS: Final = (1_000, 10_000, 100_000, 1_000_000)
SUBTASKS: Final = (1, 2, 4, 16, 64)
STEPS: Final = (1, 10, 100, 500)
JOBS: Final = (1, 10, 100, 1_000)

#: The least number of records in a chain: in longer chains there are fewer, so that each step has as much work.
_LEAST: Final = 2_000


class CountSink(Sink[object]):
    """Counts records."""

    def __init__(self) -> None:
        self.count = 0

    async def writer(self, context: WriterContext) -> Writer[object]:
        return _CountWriter(self)


class _CountWriter(Writer[object]):
    def __init__(self, sink: CountSink) -> None:
        self._sink = sink

    def write(self, batch: Batch[object]) -> None:
        self._sink.count += len(batch.values)


def measure(records: int, rounds: int) -> Measurement:
    """Measure all four; ``records`` is the number of each run, but for more keys and for long chains."""
    figures: dict[str, float | int | bool | str] = {"records": records, "rounds": rounds}
    for name, numbers, cost in (
        ("keys", KEYS, _cost_with_keys),
        ("subtasks", SUBTASKS, _cost_with_subtasks),
        ("steps", STEPS, _cost_with_steps),
        ("jobs", JOBS, _cost_with_jobs),
    ):
        figures |= _growth(name, numbers, cost, records, rounds)
    figures["verified"] = True
    return Measurement("scale", figures)


def _growth(
    name: str,
    numbers: tuple[int, ...],
    cost: Callable[[int, int], float],
    records: int,
    rounds: int,
) -> dict[str, float | int | bool | str]:
    cost(numbers[0], records)  # a warm-up: the first job of a process imports modules
    costs = {
        number: statistics.median(cost(number, records) for _ in range(rounds))
        for number in numbers
    }
    first = costs[numbers[0]]
    return {
        f"{name}_{numbers[0]}_us": round(first * 1e6, 3),
        **{f"{name}_{number}": round(costs[number] / first, 2) for number in numbers[1:]},
    }


def _cost_with_keys(keys: int, records: int) -> float:
    """Return the seconds of a record that is counted by key in windows, two of each key in a window."""
    flow, counts = af.Flow("keys"), CountSink()
    windows = max(1, records // (2 * keys))
    total = windows * 2 * keys
    (
        flow.source(range(total))
        .event_time(lambda n: n // (2 * keys) * 1_000)
        .key_by(lambda n: n % keys)
        .window(af.Tumbling(timedelta(seconds=1)))
        .fold(int, lambda count, _: count + 1, name="count")
        .to(counts)
    )
    seconds, _ = timed(lambda: run_async(flow.run()))
    _check("keys", counts.count, keys * windows)
    return seconds / total


def _cost_with_subtasks(subtasks: int, records: int) -> float:
    """Return the seconds of a record that is sent to the owner of its key, one of ``subtasks``."""
    flow, counts = af.Flow("subtasks"), CountSink()
    (
        flow.source(range(records))
        .key_by(lambda n: n % 1_000)
        .fold(int, lambda count, _: count + 1, name="count")
        .to(counts)
    )
    seconds, _ = timed(lambda: run_async(flow.run(parallelism=subtasks)))
    _check("subtasks", counts.count, records)
    return seconds / records


def _cost_with_steps(steps: int, records: int) -> float:
    """Return the seconds of a record in a step of a chain of ``steps``, which are not fused."""
    some = max(_LEAST, records // steps)
    flow, counts = af.Flow("steps"), CountSink()
    stream: af.Stream[int] = flow.source(range(some))
    for _ in range(steps):
        stream = stream.flat_map(lambda n: (n,))
    stream.to(counts)
    seconds, _ = timed(lambda: run_async(flow.run()))
    _check("steps", counts.count, some)
    return seconds / some / steps


def _cost_with_jobs(jobs: int, records: int) -> float:
    """Return the seconds of a record in one of ``jobs`` that run at once, with their start and end."""
    each = max(1, records // jobs)
    counts = CountSink()

    async def run() -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(jobs):
                flow = af.Flow(f"job-{number}")
                flow.source(range(each)).map(lambda n: n + 1).to(counts)
                group.create_task(flow.run())

    seconds, _ = timed(lambda: run_async(run()))
    _check("jobs", counts.count, each * jobs)
    return seconds / (each * jobs)


def _check(name: str, found: int, wanted: int) -> None:
    if found != wanted:
        raise SystemExit(f"scale: {name}: {found:,} results, not {wanted:,}; nothing was measured")
