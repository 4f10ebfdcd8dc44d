"""Stateful handlers that are awaited, in running jobs: timers, ends, timeouts, limits, checkpoints."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import aflow as af
from aflow.operators.calls.async_process import FiredTimer
from aflow.testing import At, CollectSink, FlowDriver, Pause, ScriptedSource, run_flow
from aflow.testing.leftovers import no_leftovers
from aflow.testing.virtual_time import virtual_time
from tests.runtime.checkpoints.ledger_sink import LedgerSink

SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)


def millis(number: int) -> timedelta:
    return timedelta(milliseconds=number)


class Totals(af.AsyncKeyedProcess[int, int, tuple[int, int]]):
    """The running total of each key; key 0 takes as long as it is told."""

    total = af.ValueState("total", of=int)

    def __init__(self, slow: float = 0.0) -> None:
        self.slow = slow

    async def process(self, value: int, ctx: af.AsyncContext[int]) -> list[tuple[int, int]]:
        before = ctx.state(self.total).get(0)
        await asyncio.sleep(self.slow if ctx.key == 0 else 0.01)
        ctx.state(self.total).set(before + value)
        return [(ctx.key, before + value)]


class Later(af.AsyncKeyedProcess[int, int, tuple[int, int]]):
    """Rings ``after`` (ms) later, by event time, and takes its time for it."""

    last = af.ValueState("last", of=int)

    def __init__(self, after: int, takes: float = 0.5) -> None:
        self.after = after
        self.takes = takes

    async def process(self, value: int, ctx: af.AsyncContext[int]) -> None:
        assert ctx.timestamp is not None
        await asyncio.sleep(self.takes)
        ctx.state(self.last).set(value)
        ctx.set_event_timer(ctx.timestamp + self.after)

    async def on_timer(self, at: int, ctx: af.AsyncContext[int]) -> list[tuple[int, int]]:
        await asyncio.sleep(self.takes)
        return [(ctx.key, at)]


def handled(
    source: af.Source[int] | Iterable[int],
    function: af.AsyncKeyedProcess[int, int, Any],
    *,
    keys: int = 5,
    **options: Any,
) -> tuple[af.Flow, CollectSink[Any]]:
    flow, sink = af.Flow("handling"), CollectSink[Any]()
    keyed = flow.source(source, name="numbers").key_by(lambda n: n % keys)
    keyed.process_async(function, name="handle", **options).to(sink, name="out")
    return flow, sink


def timed(count: int, every: int = 100) -> ScriptedSource[int]:
    return ScriptedSource[int](*(At(n, n * every) for n in range(count)))


# ------------------------------------------------------------------------------------------------ timers


def test_the_end_of_the_input_rings_all_timers_before_the_job_ends() -> None:
    flow, sink = handled(timed(10), Later(1_000_000))

    run_flow(flow)

    assert sorted(sink.values) == sorted((n % 5, n * 100 + 1_000_000) for n in range(10))


@pytest.mark.parametrize("parallelism", [1, 3])
def test_windows_behind_handlers_miss_nothing_of_what_timers_give(parallelism: int) -> None:
    flow, sink = af.Flow("windows"), CollectSink[tuple[int, int]]()
    scripts = {
        f"split {split}": [
            line for n in range(split, 200, 2) for line in (At(n, n * 10), Pause(millis(3)))
        ]
        for split in range(2)
    }
    source: ScriptedSource[int] = ScriptedSource.of_splits(scripts)
    events = flow.source(source, name="numbers").event_time(max_delay=millis(40))
    later = events.key_by(lambda n: n % 7).process_async(Later(25, 0.02), name="later")
    windows = later.key_by(lambda one: one[0]).window(af.Tumbling(millis(100)))
    windows.fold(int, lambda so_far, _: so_far + 1, name="count").map(
        lambda one: (one.window.start, one.value)
    ).to(sink, name="out")

    run_flow(flow, parallelism=parallelism, options=af.Options(chaining=False))

    expected: dict[int, int] = {}
    for n in range(200):
        start = (n * 10 + 25) // 100 * 100
        expected[start] = expected.get(start, 0) + 1
    found: dict[int, int] = {}
    for start, value in sink.values:
        found[start] = found.get(start, 0) + value
    assert found == expected


def test_event_timers_of_a_key_ring_in_time_order_however_long_their_handlers_take() -> None:
    class Backwards(af.AsyncKeyedProcess[int, int, int]):
        async def process(self, value: int, ctx: af.AsyncContext[int]) -> None:
            for at in range(1000, 1010):
                ctx.set_event_timer(2010 - at)

        async def on_timer(self, at: int, ctx: af.AsyncContext[int]) -> list[int]:
            await asyncio.sleep((1010 - at) / 10)
            return [at]

    flow, sink = handled(ScriptedSource[int](At(0, 0)), Backwards())

    run_flow(flow)

    assert sink.values == [*range(1001, 1011)]


class ByTheClock(af.AsyncKeyedProcess[int, int, tuple[str, int]]):
    """Rings again three times, each second, and takes longer than that."""

    rung = af.ValueState("rung", of=int)

    async def process(self, value: int, ctx: af.AsyncContext[int]) -> list[tuple[str, int]]:
        ctx.set_processing_timer(ctx.processing_time + 1000)
        return [("set", ctx.processing_time)]

    async def on_timer(self, at: int, ctx: af.AsyncContext[int]) -> list[tuple[str, int]]:
        assert ctx.timer_domain is af.TimeDomain.PROCESSING
        begun = ctx.processing_time
        rung = ctx.state(self.rung).get(0) + 1
        ctx.state(self.rung).set(rung)
        if rung < 3:
            ctx.set_processing_timer(at + 1000)
        await asyncio.sleep(2.5)
        return [("rung", begun)]


@virtual_time
async def test_processing_timers_ring_on_the_clock_of_the_job() -> None:
    source = af.PushSource[int]()
    flow, sink = handled(source, ByTheClock())

    async with FlowDriver(flow) as driver:
        await driver.send(0)
        await driver.advance(timedelta(seconds=20))
        start = sink.values[0][1]
        assert [(what, at - start) for what, at in sink.values] == [
            ("set", 0),
            ("rung", 1000),
            ("rung", 3500),
            ("rung", 6000),
        ]
        await driver.end()


@pytest.mark.slow
def test_a_watermark_that_makes_very_many_timers_due_rings_each_once() -> None:
    class Many(af.AsyncKeyedProcess[int, int, int]):
        async def process(self, value: int, ctx: af.AsyncContext[int]) -> None:
            ctx.set_event_timer(1_000_000)

        async def on_timer(self, at: int, ctx: af.AsyncContext[int]) -> list[int]:
            await asyncio.sleep(0.001)
            return [ctx.key]

    count = 20_000
    source = ScriptedSource[int](*(At(n, 1) for n in range(count)))
    flow, sink = handled(source, Many(), keys=count)

    run_flow(flow)

    assert sorted(sink.values) == [*range(count)]


# ------------------------------------------------------------------------------------- slow ones, and room


@virtual_time
async def test_a_slow_handler_of_one_key_does_not_hold_up_others_until_the_step_is_full() -> None:
    flow, sink = handled(timed(10_000, 0), Totals(slow=3600.0), keys=1000, capacity=50)

    async with FlowDriver(flow) as driver:
        await driver.advance(timedelta(seconds=60))

        others = [one for one in sink.values if one[0] != 0]
        assert len(others) == 9990
        await driver.advance(timedelta(hours=11))
        assert [total for key, total in sink.values if key == 0][-1] == sum(range(0, 10_000, 1000))
        await driver.job.wait()


@virtual_time
async def test_what_waits_behind_one_key_is_bounded_as_what_waits_for_calls_is() -> None:
    flow, sink = handled(timed(10_000, 0), Totals(slow=3600.0), keys=1, capacity=10)

    async with FlowDriver(flow, options=af.Options(batch_records=7)) as driver:
        await driver.advance(timedelta(seconds=60))

        calls = driver.metrics.steps["handle"].calls
        assert calls is not None
        assert (calls.in_flight, sink.values) == (1, [])
        assert calls.waiting <= 2 * 10 + 7
        await driver.job.cancel()


# ------------------------------------------------------------------------------------------ ends and starts


class Storing:
    """The storage of a job's checkpoints, and the request for one."""

    def __init__(self, folder: Path, *, unaligned: bool = False) -> None:
        barriers = af.checkpoints.Unaligned() if unaligned else af.checkpoints.Aligned()
        self.settings = af.Checkpointing(every=None, storage=folder, barriers=barriers)


def totals(values: Iterable[tuple[int, int]]) -> dict[int, list[int]]:
    by_key: dict[int, list[int]] = {}
    for key, total in values:
        by_key.setdefault(key, []).append(total)
    return by_key


def expected_totals(count: int, keys: int) -> dict[int, list[int]]:
    by_key: dict[int, list[int]] = {}
    for n in range(count):
        so_far = by_key.setdefault(n % keys, [])
        so_far.append((so_far[-1] if so_far else 0) + n)
    return by_key


def ledger_flow(
    sink: af.Sink[Any], function: af.AsyncKeyedProcess[int, int, Any], count: int, **options: Any
) -> af.Flow:
    flow = af.Flow("ledger")
    lines: list[Any] = []
    for n in range(count):
        lines.append(At(n, n * 100))
        if n % 10 == 9:
            lines.append(Pause(millis(100)))
    keyed = flow.source(ScriptedSource[int](*lines), name="numbers").key_by(lambda n: n % 7)
    keyed.process_async(function, name="handle", **options).to(sink, name="out")
    return flow


@pytest.mark.parametrize("unaligned", [True, False])
def test_a_checkpoint_does_not_wait_for_handlers(tmp_path: Path, unaligned: bool) -> None:
    storing, sink = Storing(tmp_path, unaligned=unaligned), LedgerSink[Any]()

    class Hours(Totals):
        async def process(self, value: int, ctx: af.AsyncContext[int]) -> list[tuple[int, int]]:
            before = ctx.state(self.total).get(0)
            await asyncio.sleep(3600)
            ctx.state(self.total).set(before + value)
            return [(ctx.key, before + value)]

    @virtual_time
    async def main() -> float:
        loop = asyncio.get_running_loop()
        async with FlowDriver(
            ledger_flow(sink, Hours(), 40), checkpointing=storing.settings
        ) as driver:
            await driver.advance(SECOND)
            begun = loop.time()
            await driver.job.checkpoint()
            took = loop.time() - begun
            await driver.job.cancel()
        return took

    assert main() < 1.0
    run_flow(ledger_flow(sink, Totals(), 40), parallelism=3, checkpointing=storing.settings)

    assert totals(sink.values) == expected_totals(40, 7)


@pytest.mark.parametrize("drain", [True, False])
@pytest.mark.parametrize("parallelism", [1, 3])
def test_a_job_that_was_stopped_goes_on_where_it_was(
    tmp_path: Path, drain: bool, parallelism: int
) -> None:
    storing, sink = Storing(tmp_path), LedgerSink[Any]()

    @virtual_time
    async def main() -> None:
        flow = ledger_flow(sink, Totals(slow=7.0), 60)
        async with FlowDriver(flow, checkpointing=storing.settings) as driver:
            await driver.advance(millis(250))
            await driver.job.stop(drain=drain)

    main()
    run_flow(
        ledger_flow(sink, Totals(slow=7.0), 60),
        parallelism=parallelism,
        checkpointing=storing.settings,
    )

    assert totals(sink.values) == expected_totals(60, 7)


@pytest.mark.parametrize("drain", [True, False])
@pytest.mark.parametrize("parallelism", [1, 3])
def test_timers_are_rung_once_by_a_job_that_was_stopped_amid_them(
    tmp_path: Path, drain: bool, parallelism: int
) -> None:
    storing, sink = Storing(tmp_path), LedgerSink[Any]()

    @virtual_time
    async def main() -> None:
        flow = ledger_flow(sink, Later(150, 0.07), 60)
        async with FlowDriver(flow, checkpointing=storing.settings) as driver:
            await driver.advance(millis(250))
            await driver.job.stop(drain=drain)

    main()
    run_flow(
        ledger_flow(sink, Later(150, 0.07), 60),
        parallelism=parallelism,
        checkpointing=storing.settings,
    )

    assert sorted(sink.values) == sorted((n % 7, n * 100 + 150) for n in range(60))


# ------------------------------------------------------------------------------------- failures and limits


class Stubborn(af.AsyncKeyedProcess[int, int, tuple[int, int]]):
    """Swallows its cancellation once, and then goes on as if nothing had happened."""

    total = af.ValueState("total", of=int)

    def __init__(self) -> None:
        self.said: list[str] = []

    async def process(self, value: int, ctx: af.AsyncContext[int]) -> list[tuple[int, int]]:
        cell = ctx.state(self.total)
        cell.set(cell.get(0) + value)
        if value == 1:
            try:
                await asyncio.sleep(100)
            except asyncio.CancelledError:
                await asyncio.sleep(1)
            for attempt in (
                lambda: cell.set(1000),
                lambda: ctx.state(self.total),
                lambda: ctx.set_event_timer(5),
            ):
                try:
                    attempt()
                except af.OperatorError as exc:
                    self.said.append(str(exc))
        return [(ctx.key, cell.get(0))]


def test_a_handler_that_ignores_its_end_cannot_touch_state_nor_the_next_handler() -> None:
    function = Stubborn()
    source = ScriptedSource[int](1, 2, 3, Pause(timedelta(seconds=10)), 4)
    flow, sink = handled(source, function, keys=1, timeout=SECOND, on_error=af.calls.Drop())

    run_flow(flow)

    assert sink.values == [(0, 2), (0, 5), (0, 9)]
    assert len(function.said) == 3
    assert all("after" in said for said in function.said)


class Unlucky(af.AsyncKeyedProcess[int, int, int]):
    """Sets a timer for each record; the timers fail."""

    async def process(self, value: int, ctx: af.AsyncContext[int]) -> None:
        ctx.set_event_timer(1000 + value)

    async def on_timer(self, at: int, ctx: af.AsyncContext[int]) -> list[int]:
        await asyncio.sleep(0.01)
        raise ConnectionError("no answer")


def test_timers_that_fail_for_good_are_dead_letters(tmp_path: Path) -> None:
    failures = af.Tag[af.calls.FailedCall[Any]]("failures")
    flow, letters = af.Flow("letters"), CollectSink[Any]()
    keyed = flow.source(timed(5), name="numbers").key_by(lambda n: n)
    step = keyed.process_async(Unlucky(), name="handle", on_error=af.calls.DeadLetter(failures))
    step.side(failures).to(letters, name="letters")
    step.to(CollectSink[Any](), name="out")

    run_flow(flow, options=af.Options(chaining=False))

    found = sorted(letter.value.at for letter in letters.values)
    assert found == [1000, 1001, 1002, 1003, 1004]
    assert all(isinstance(letter.value, FiredTimer) for letter in letters.values)


RATE: af.calls.RateLimit[int] = af.calls.RateLimit(50, per=SECOND)

LIMITS: dict[str, dict[str, Any]] = {
    "no limit": {},
    "one at a time": {"capacity": 1},
    "rate": {"rate": RATE},
    "adaptive": {"capacity": af.calls.Adaptive()},
    "breaker": {"breaker": af.calls.CircuitBreaker()},
    "several": {"rate": RATE, "capacity": af.calls.Adaptive(), "timeout": HOUR},
}


@pytest.mark.parametrize("limit", LIMITS)
def test_a_deadline_is_one_of_records_and_not_of_timers(limit: str) -> None:
    def deadline(n: int) -> int:
        return 10**12 + n

    flow, sink = handled(timed(10), Later(50, 0.01), deadline=deadline, **LIMITS[limit])

    run_flow(flow)

    assert sorted(sink.values) == sorted((n % 5, n * 100 + 50) for n in range(10))


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("parallelism", [1, 3])
def test_handlers_heed_limits_and_lose_nothing(limit: str, parallelism: int) -> None:
    flow, sink = handled(timed(100), Later(170, 0.03), **LIMITS[limit])

    run_flow(flow, parallelism=parallelism)

    assert sorted(sink.values) == sorted((n % 5, n * 100 + 170) for n in range(100))


@virtual_time
async def test_a_cancelled_job_leaves_no_handler_behind() -> None:
    with no_leftovers("a job with handlers"):
        flow, _ = handled(timed(50), Totals(slow=100.0))
        async with FlowDriver(flow) as driver:
            await driver.advance(millis(1))
            await driver.job.cancel()
