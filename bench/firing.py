"""Firing of a million windows or timers at one watermark, for ``fairness``: the delay of another coroutine."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

import aflow as af
from bench.harness import percentile, run_async

#: Seconds between two ticks of the other coroutine.
TICK: Final = 0.005

#: Milliseconds of event time.
SIZE: Final = 60_000
SLIDE: Final = 10_000
SPREAD: Final = 9_000
LATER: Final = 1_000_000

#: A threshold of the oldest generation that is never reached.
NEVER: Final = 1_000_000_000

Keyed = af.KeyedStream[int, int]


class AddOne:
    """Count records."""

    def create(self) -> int:
        return 0

    def add(self, acc: int, value: int) -> int:
        return acc + 1

    def merge(self, a: int, b: int) -> int:
        return a + b

    def result(self, acc: int) -> int:
        return acc


class OneTimer(af.KeyedProcess[int, int, int]):
    """Register one timer for each key, all for the same time."""

    def process(self, value: int, ctx: af.Context[int]) -> None:
        ctx.set_event_timer(SIZE)

    def on_timer(self, at: int, ctx: af.Context[int]) -> list[int]:
        return [ctx.key]


def tumbling(keyed: Keyed) -> af.Stream[Any]:
    return keyed.window(af.Tumbling(timedelta(milliseconds=SIZE))).aggregate(
        AddOne(), name="windows"
    )


def sliding(keyed: Keyed) -> af.Stream[Any]:
    windows = af.Sliding(timedelta(milliseconds=SIZE), timedelta(milliseconds=SLIDE))
    return keyed.window(windows).aggregate(AddOne(), name="windows")


def session(keyed: Keyed) -> af.Stream[Any]:
    return keyed.window(af.Session(timedelta(milliseconds=SIZE))).aggregate(
        AddOne(), name="windows"
    )


def sessions(keyed: Keyed) -> af.Stream[Any]:
    return keyed.sessions(timedelta(milliseconds=SIZE), name="windows")


def timers(keyed: Keyed) -> af.Stream[Any]:
    return keyed.process(OneTimer(), name="timers")


#: The pipelines by name; each has one result for each key, and ``sliding`` one for each of the six windows of a record.
CASES: Final[Mapping[str, Callable[[Keyed], af.Stream[Any]]]] = {
    "tumbling": tumbling,
    "sliding": sliding,
    "session": session,
    "sessions": sessions,
    "timers": timers,
}


@dataclass
class Firing:
    """Delays while a case fires."""

    seconds: float = 0.0
    #: Delays of the ticks (seconds).
    delays: list[float] = field(default_factory=list[float])
    #: Duration of the collections of garbage (seconds).
    collections: list[float] = field(default_factory=list[float])

    def figures(self, case: str) -> dict[str, float]:
        """Return the duration of the firing (s), and p99 and maximum of the delays (ms)."""
        return {
            f"{case}_seconds": round(self.seconds, 2),
            f"{case}_p99_ms": _ms(percentile(self.delays, 0.99)),
            f"{case}_max_ms": _ms(max(self.delays)),
        }


def fire(
    case: Callable[[Keyed], af.Stream[Any]], keys: int, *, full_collections: bool = True
) -> Firing:
    """Run a case with ``keys`` keys, whose windows or timers are all due at the same watermark.

    The delays count from the record whose watermark fires them. ``full_collections=False`` is without collections of
    the oldest generation of garbage from then on. Results are counted and not kept: a list is copied when it grows, in
    2 to 30 ms up to six million. Raises ``SystemExit`` if results are missing.
    """
    return run_async(_fire(case, keys, full_collections=full_collections))


async def _fire(
    case: Callable[[Keyed], af.Stream[Any]], keys: int, *, full_collections: bool
) -> Firing:
    firing = Firing()
    start, results = 0.0, 0
    thresholds = gc.get_threshold()

    def passing(number: int) -> int:
        nonlocal start
        if number == keys:
            start = time.perf_counter()
            if not full_collections:
                gc.set_threshold(*thresholds[:2], NEVER)
        return number

    def timestamp(number: int) -> int:
        return LATER if number == keys else number * SPREAD // keys

    def count(_: Any) -> None:
        nonlocal results
        results += 1

    flow = af.Flow("firing")
    keyed = flow.source(range(keys + 1)).map(passing).event_time(timestamp).key_by(lambda n: n)
    case(keyed).to(af.CallbackSink(count))
    ticks: list[tuple[float, float]] = []
    with _collections() as collections:
        await _ticking(ticks, flow)
    gc.set_threshold(*thresholds)
    firing.seconds = time.perf_counter() - start
    expected = (keys + 1) * (SIZE // SLIDE if case is sliding else 1)
    if results != expected:
        raise SystemExit(f"fairness: {results} results of {case.__name__}, not {expected}")
    firing.delays = [delay for at, delay in ticks if at >= start]
    firing.collections = [took for at, took in collections if at >= start]
    return firing


async def _ticking(ticks: list[tuple[float, float]], flow: af.Flow) -> None:
    async def tick() -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(TICK)
            now = time.perf_counter()
            ticks.append((now, max(0.0, now - before - TICK)))

    async with asyncio.TaskGroup() as group:
        ticking = group.create_task(tick())
        await flow.run()
        ticking.cancel()


@contextmanager
def _collections() -> Generator[list[tuple[float, float]]]:
    """Return the end and the duration of each collection of garbage during the block."""
    found: list[tuple[float, float]] = []
    start = 0.0

    def callback(phase: str, info: Mapping[str, int]) -> None:
        nonlocal start
        now = time.perf_counter()
        if phase == "start":
            start = now
        else:
            found.append((now, now - start))

    gc.callbacks.append(callback)
    try:
        yield found
    finally:
        gc.callbacks.remove(callback)


def _ms(seconds: float) -> float:
    return round(seconds * 1000, 2)
