"""A job with a ceiling on its share of the event loop. A clock of work advances when the functions of a test say so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import aflow as af
from aflow.errors import FlowDefinitionError
from aflow.model.time import Timestamp
from aflow.runtime.limited_budget import LimitedBudget, loop_budget
from aflow.runtime.loop_budget import LoopBudget
from aflow.testing.virtual_time import settle, virtual_time

MILLISECOND = 0.001


class WorkClock:
    """The time of the loop, and the work that was done while it stood still."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.worked = 0.0

    def work(self, seconds: float) -> None:
        self.worked += seconds

    def steady(self) -> float:
        return self._loop.time() + self.worked

    def now(self) -> Timestamp:
        return int(self.steady() * 1000)


def options(clock: WorkClock, share: float) -> af.Options:
    return af.Options(share=share, clock=clock, watchdog=None)


async def share_of(flow: af.Flow, clock: WorkClock, share: float, **more: Any) -> float:
    """Run ``flow``, and return the part of the time that was work."""
    begun = clock.steady()
    await flow.run(options=options(clock, share), **more)
    return clock.worked / (clock.steady() - begun)


def working(clock: WorkClock) -> Callable[[int], int]:
    def work(number: int) -> int:
        clock.work(MILLISECOND)
        return number

    return work


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("parallelism", [1, 3])
@virtual_time
async def test_tasks_take_their_share_and_no_more(share: float, parallelism: int) -> None:
    clock, sink = WorkClock(), af.CollectSink[int]()
    flow = af.Flow("work")
    rebalanced = flow.source(range(1_000), name="numbers").rebalance()
    rebalanced.map(working(clock), name="work").to(sink, name="out")

    found = await share_of(flow, clock, share, parallelism=parallelism)

    assert clock.worked == pytest.approx(1.0)
    assert share * 0.9 <= found <= share * 1.05
    assert sorted(sink.values) == list(range(1_000))


@pytest.mark.parametrize("share", [0.1, 0.5])
@pytest.mark.parametrize("retry", [None, af.Retry(attempts=2)])
@virtual_time
async def test_calls_take_their_share_and_no_more(share: float, retry: af.Retry | None) -> None:
    clock, sink = WorkClock(), af.CollectSink[int]()
    work = working(clock)

    async def call(number: int) -> int:
        work(number)
        await asyncio.sleep(MILLISECOND)
        return work(number)

    flow = af.Flow("calls")
    called = flow.source(range(500), name="numbers").map_async(
        call, capacity=100, ordered=False, name="call", retry=retry
    )
    called.to(sink, name="out")

    found = await share_of(flow, clock, share)

    assert clock.worked == pytest.approx(1.0)
    assert share * 0.8 <= found <= share * 1.1
    assert sorted(sink.values) == list(range(500))


async def most_steps_in_a_pass(share: float) -> int:
    """Let 500 calls end at once, and return how many of them ran between two callbacks of the host."""
    clock = WorkClock()
    steps = 0
    passes: list[int] = []
    gate = asyncio.Event()

    async def call(number: int) -> int:
        nonlocal steps
        await gate.wait()
        clock.work(MILLISECOND / 10)
        steps += 1
        return number

    def host() -> None:
        passes.append(steps)
        if steps < 500:
            asyncio.get_running_loop().call_soon(host)

    flow = af.Flow("calls")
    called = flow.source(range(500), name="numbers").map_async(call, capacity=500, name="call")
    called.to(af.CollectSink[int](), name="out")
    async with flow.start(options=options(clock, share)) as job:
        await settle()
        gate.set()
        host()
        await job.wait()
    return max(after - before for before, after in zip(passes, [*passes[1:], steps], strict=True))


@virtual_time
async def test_calls_that_end_at_once_are_spread_over_passes_of_the_loop() -> None:
    assert await most_steps_in_a_pass(0.99) <= 21  # a turn of 2 ms


@virtual_time
async def test_without_a_share_they_run_in_one_pass() -> None:
    assert await most_steps_in_a_pass(1) == 500


@virtual_time
async def test_a_resting_job_is_cancelled_at_once() -> None:
    clock = WorkClock()

    async def call(number: int) -> int:
        clock.work(10.0)
        await asyncio.sleep(0)
        return number

    flow = af.Flow("calls")
    called = flow.source(range(50), name="numbers").map_async(call, capacity=10, name="call")
    called.to(af.CollectSink[int](), name="out")
    async with flow.start(options=options(clock, 0.01)) as job:
        await asyncio.sleep(1)
        before = asyncio.get_running_loop().time()
        await job.cancel()

    assert asyncio.get_running_loop().time() == before


@virtual_time
async def test_calls_that_wait_for_their_turn_time_out() -> None:
    clock, sink = WorkClock(), af.CollectSink[int]()

    async def call(number: int) -> int:
        await asyncio.sleep(MILLISECOND)
        clock.work(10.0 if number == 0 else 0.0)
        return number

    flow = af.Flow("calls")
    called = flow.source(range(10), name="numbers").map_async(
        call,
        capacity=10,
        ordered=False,
        name="call",
        timeout=timedelta(seconds=5),
        on_error=af.calls.Fallback[int](lambda number, error: -1),
    )
    called.to(sink, name="out")
    await flow.run(options=options(clock, 0.5))

    assert len(sink.values) == 10


@virtual_time
async def test_a_cancelled_call_learns_it_at_once_while_the_job_rests() -> None:
    clock, loop = WorkClock(), asyncio.get_running_loop()
    budget = loop_budget(options(clock, 0.01), loop)
    ended: list[float] = []

    async def wait() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(loop.time())

    async def work() -> None:
        clock.work(10.0)

    waiting = asyncio.create_task(budget.driven(wait))
    await settle()
    await asyncio.create_task(budget.driven(work))
    begun = loop.time()
    waiting.cancel()
    await asyncio.wait([waiting])

    assert ended == [begun]


@virtual_time
async def test_an_error_of_a_call_reaches_its_policy() -> None:
    clock, sink = WorkClock(), af.CollectSink[int]()

    async def call(number: int) -> int:
        await asyncio.sleep(MILLISECOND)
        if number % 2:
            raise ValueError("odd")
        return number

    flow = af.Flow("calls")
    called = flow.source(range(20), name="numbers").map_async(
        call, name="call", on_error=af.calls.Drop()
    )
    called.to(sink, name="out")
    await flow.run(options=options(clock, 0.5))

    assert sink.values == list(range(0, 20, 2))


@virtual_time
async def test_without_a_share_the_budget_is_the_plain_one_and_calls_are_not_driven() -> None:
    loop = asyncio.get_running_loop()

    async def calls() -> None:
        return None

    plain = loop_budget(af.Options(), loop)
    coroutine = calls()
    assert type(plain) is LoopBudget
    assert plain.driven(lambda: coroutine) is coroutine
    await coroutine
    assert type(loop_budget(af.Options(share=0.5), loop)) is LimitedBudget


@pytest.mark.parametrize("share", [0, -0.5, 1.5, True, "half", float("nan"), None])
def test_other_shares_are_refused(share: Any) -> None:
    with pytest.raises(
        FlowDefinitionError, match=r"Options\.share must be a number above 0 and at most 1, not"
    ):
        af.Options(share=share)


@pytest.mark.parametrize("share", [1, 1.0, 0.5, 0.001])
def test_shares_above_0_up_to_1_are_accepted(share: float) -> None:
    assert af.Options(share=share).share == share
