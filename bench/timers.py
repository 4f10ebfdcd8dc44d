"""``timers``: as many timers as records: registered, postponed (deleted and registered again), fired by the
watermark.

``TimerQueue`` alone and a ``KeyedProcess`` in a flow (``silent_keys.py``), each against a heap and a dict by hand. By
hand no timer is deleted: a postponed timer stays in the heap and is skipped when it is due, which is enough for one
timer per key.
"""

from __future__ import annotations

import asyncio
import random
import statistics
import time
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from typing import Any

import aflow as af
from aflow.machines.timer_queue import TimerQueue
from bench.harness import Budget, Measurement, compare, run_async, timed
from bench.silent_keys import Fired, Reading, dormant_by_hand, dormant_in_flow, readings

#: Number of watermarks.
STEPS = 1_000
#: Event time in ms per record: few timers have the same time.
SPREAD = 10
#: Event time (ms) after that of all records.
LAST = 2**62


@dataclass(frozen=True, slots=True)
class Work:
    """The time of the timer of each key, its postponed time, and the watermarks."""

    registered: list[int]
    postponed: list[int]
    moments: list[int]

    @staticmethod
    def of(keys: int) -> Work:
        """Return the same input for every call with the same number of keys."""
        rng = random.Random(7)
        end = keys * SPREAD
        first = [rng.randrange(end) for _ in range(keys)]
        later = [at + rng.randrange(1, end) for at in first]
        return Work(first, later, [2 * end * step // STEPS for step in range(1, STEPS + 1)])


class Watch:
    """Seconds of each part of a program."""

    def __init__(self) -> None:
        self.laps: dict[str, float] = {}
        self._since = time.perf_counter()

    def lap(self, part: str) -> None:
        """Record the end of ``part`` and the start of the next one."""
        now = time.perf_counter()
        self.laps[part] = now - self._since
        self._since = now


Program = Callable[[Work, Watch], list[Fired]]


def with_queue(work: Work, watch: Watch) -> list[Fired]:
    """Run ``TimerQueue`` alone."""
    queue: TimerQueue[int, None] = TimerQueue()
    fired: list[Fired] = []
    for key, at in enumerate(work.registered):
        queue.register(at, key, None)
    watch.lap("registered")
    for key, (at, later) in enumerate(zip(work.registered, work.postponed, strict=True)):
        queue.delete(at, key, None)
        queue.register(later, key, None)
    watch.lap("postponed")
    for moment in work.moments:
        for at, key, _ in queue.due(moment):
            fired.append((at, key))
    watch.lap("fired")
    return fired


def by_hand(work: Work, watch: Watch) -> list[Fired]:
    """Run with a heap, and a dict of the time of each key."""
    heap: list[Fired] = []
    live: dict[int, int] = {}
    fired: list[Fired] = []
    for key, at in enumerate(work.registered):
        live[key] = at
        heappush(heap, (at, key))
    watch.lap("registered")
    for key, later in enumerate(work.postponed):
        live[key] = later
        heappush(heap, (later, key))
    watch.lap("postponed")
    for moment in work.moments:
        while heap and heap[0][0] <= moment:
            at, key = heappop(heap)
            if live.get(key) == at:
                del live[key]
                fired.append((at, key))
    watch.lap("fired")
    return fired


def measure(records: int, rounds: int) -> Measurement:
    """Measure; ``ratio`` compares the queue with a heap by hand, ``flow_ratio`` the pipeline with a loop by hand."""
    laps, ratio, seconds = _measure_queue(Work.of(records), rounds)
    flow_seconds, flow_ratio = _measure_flow(readings(records), rounds)
    return Measurement(
        "timers",
        {
            "records": records,
            "seconds": round(seconds, 4),
            "records_per_s": round(records / seconds),
            **{f"{part}_ns": round(lap / records * 1e9) for part, lap in laps.items()},
            "ratio": round(ratio, 3),
            "bytes_per_timer": round(_bytes(records, _filled_queue)),
            "baseline_bytes_per_timer": round(_bytes(records, _filled_heap)),
            "flow_records_per_s": round(records / flow_seconds),
            "flow_ratio": round(flow_ratio, 3),
            "all_at_once_ms": round(max(run_async(_delays(records))) * 1000),
            "rounds": rounds,
            "verified": True,
        },
        [
            Budget("ratio", at_least=0.8),
            Budget("bytes_per_timer", at_most=150),
            Budget("flow_ratio", at_least=0.3),
        ],
    )


def _measure_queue(work: Work, rounds: int) -> tuple[dict[str, float], float, float]:
    """Return the seconds of each part of both programs, the ratio of the queue, and its total seconds."""
    expected = sorted(by_hand(work, Watch()))
    laps: dict[str, list[float]] = {}
    times: dict[str, list[float]] = {"": [], "baseline_": []}
    for _ in range(rounds):
        for prefix, program in (("baseline_", by_hand), ("", with_queue)):
            watch = Watch()
            seconds, fired = timed(partial(program, work, watch))
            _check(sorted(fired), expected)
            times[prefix].append(seconds)
            for part, lap in watch.laps.items():
                laps.setdefault(prefix + part, []).append(lap)
    ours, theirs = (statistics.median(times[prefix]) for prefix in ("", "baseline_"))
    return {part: statistics.median(some) for part, some in laps.items()}, theirs / ours, ours


def _measure_flow(records: list[Reading], rounds: int) -> tuple[float, float]:
    """Return the seconds of the pipeline, and its ratio to the loop by hand."""
    both = compare(
        "timers",
        len(records),
        lambda: dormant_in_flow(records),
        lambda: dormant_by_hand(records),
        at_least=0,
        rounds=rounds,
        canonical=sorted,
    )
    return float(both.figures["seconds"]), float(both.figures["ratio"])


def _check(fired: list[Fired], expected: list[Fired]) -> None:
    if fired != expected:
        raise SystemExit("timers: the fired timers differ from those by hand; nothing was measured")


def _bytes(timers: int, make: Callable[[Iterator[int]], Any]) -> float:
    """Return the memory of the result of ``make``, without that of its input."""
    times = [at * SPREAD + 1_000 for at in range(timers)]
    random.Random(3).shuffle(times)
    tracemalloc.start()
    kept = make(iter(times))
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del kept
    return size / timers


def _filled_queue(times: Iterator[int]) -> TimerQueue[int, None]:
    queue: TimerQueue[int, None] = TimerQueue()
    for at in times:
        queue.register(at, at, None)
    return queue


def _filled_heap(times: Iterator[int]) -> object:
    heap: list[Fired] = []
    live: dict[int, int] = {}
    for at in times:
        live[at] = at
        heappush(heap, (at, at))
    return heap, live


class AtTheEnd(af.KeyedProcess[int, int, int]):
    """Register a timer for each key that fires at the end of the input."""

    def process(self, value: int, ctx: af.Context[int]) -> None:
        ctx.set_event_timer(LAST - value)

    def on_timer(self, at: int, ctx: af.Context[int]) -> Iterable[int]:
        return [ctx.key]


async def _delays(timers: int) -> list[float]:
    """Return the delays (s) of a periodic coroutine beside a pipeline in which all timers fire at one watermark."""
    flow, fired = af.Flow("all at once"), af.CollectSink[int]()
    flow.source(range(timers)).key_by(lambda n: n).process(AtTheEnd(), name="end").to(fired)
    late: list[float] = []

    async def tick() -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.005)
            late.append(time.perf_counter() - before - 0.005)

    ticking = asyncio.create_task(tick())
    await flow.run()
    await asyncio.sleep(0.01)
    ticking.cancel()
    with suppress(asyncio.CancelledError):
        await ticking
    _check([(0, key) for key in sorted(fired.values)], [(0, key) for key in range(timers)])
    return late
