"""Asynchronous steps in front of services that fail, recover and change, in virtual time."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

import aflow as af
from aflow.testing import CollectSink, Pause, ScriptedSource, VirtualClock, run_flow
from aflow.testing.virtual_time import virtual_time
from tests.runtime.calls.limited_service import SECOND, NotedService, ServiceWithRoom

MS = timedelta(milliseconds=1)
DEAD = af.Tag[af.calls.FailedCall[int]]("dead")


def calling(
    source: af.Source[int] | range, service: NotedService | ServiceWithRoom, **options: Any
) -> tuple[af.Flow, CollectSink[int], CollectSink[af.calls.FailedCall[int]]]:
    flow, sink, dead = (
        af.Flow("calling"),
        CollectSink[int](),
        CollectSink[af.calls.FailedCall[int]](),
    )
    asked = flow.source(source, name="numbers").map_async(service.ask, name="ask", **options)
    asked.to(sink, name="out")
    if isinstance(options.get("on_error"), af.calls.DeadLetter):
        asked.side(DEAD).to(dead, name="dead")
    return flow, sink, dead


def down_until(end: float, begin: float = 0.0) -> NotedService:
    return NotedService(fails=lambda number, now: begin <= now < end)


# ------------------------------------------------------------------------------------------- circuit breaker


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("seed", [None, 1, 2])
def test_nothing_is_lost_while_the_service_is_down(ordered: bool, seed: int | None) -> None:
    service = down_until(20)
    flow, sink, dead = calling(
        range(2000),
        service,
        capacity=10,
        ordered=ordered,
        breaker=af.calls.CircuitBreaker(calls=5, pause=SECOND),
        on_error=af.calls.DeadLetter(DEAD),
    )

    run_flow(flow, seed=seed)

    failed = [letter.value for letter in dead.values]
    assert sorted(sink.values + failed) == list(range(2000))
    # Ten at once, at most ten more until five of them have failed, and a probe after 1, 3, 7 and 15 seconds.
    assert 10 + 4 <= len(failed) <= 20 + 4
    assert service.within(0.5, 20) == 4


def test_with_retry_each_record_has_its_result_at_last() -> None:
    service = down_until(10)
    flow, sink, _ = calling(
        range(500),
        service,
        capacity=10,
        breaker=af.calls.CircuitBreaker(calls=5, pause=SECOND, max_pause=SECOND),
        retry=af.Retry(attempts=20, delay=100 * MS),
    )

    run_flow(flow)

    assert sink.values == list(range(500))
    assert service.within(1, 10) <= 9


def test_calls_that_fail_fast_are_dead_letters_that_say_so() -> None:
    source = ScriptedSource(*range(10), Pause(SECOND), *range(10, 3000), Pause(10 * SECOND), 3000)
    flow, sink, dead = calling(
        source,
        down_until(5),
        breaker=af.calls.CircuitBreaker(calls=5, pause=5 * SECOND, fail_fast=True),
        on_error=af.calls.DeadLetter(DEAD),
    )

    run_flow(flow)

    assert sink.values == [3000]
    assert [letter.error for letter in dead.values] == ["ConnectionError"] * 10 + [
        "CircuitOpen"
    ] * 2990
    assert "too many calls have failed; the service is tried again in 4.05 s" in (
        dead.values[-1].message
    )


@pytest.mark.slow
@virtual_time
async def test_thousands_that_fail_fast_leave_the_loop_to_others() -> None:
    flow, _, dead = calling(
        range(20_000),
        down_until(1e9),
        capacity=5000,
        breaker=af.calls.CircuitBreaker(
            calls=1, pause=timedelta(days=1), max_pause=None, fail_fast=True
        ),
        on_error=af.calls.DeadLetter(DEAD),
    )
    turns = 0

    running = asyncio.ensure_future(flow.run(options=af.Options(clock=VirtualClock())))
    while not running.done():
        turns += 1
        await asyncio.sleep(0)
        if asyncio.get_running_loop().time() < 0.05:
            await asyncio.sleep(0.001)
    await running

    assert len(dead.values) == 20_000
    assert turns > 100


def test_timeouts_open_the_circuit() -> None:
    service = NotedService(takes=1000)
    flow, _, dead = calling(
        range(50),
        service,
        capacity=5,
        timeout=100 * MS,
        breaker=af.calls.CircuitBreaker(calls=5, pause=SECOND, max_pause=SECOND),
        on_error=af.calls.DeadLetter(DEAD),
    )

    run_flow(flow)

    assert {letter.error for letter in dead.values} == {"TimeoutError"}
    assert len(dead.values) == 50
    assert service.times[5:8] == pytest.approx([1.1, 2.2, 3.3], abs=0.002)


# ----------------------------------------------------------------------------------------- adaptive capacity


async def limit_after(job: af.Job, seconds: float) -> int:
    await asyncio.sleep(seconds)
    calls = job.metrics().steps["ask"].calls
    assert calls is not None
    return calls.limit


@pytest.mark.parametrize("ordered", [True, False])
@virtual_time
async def test_the_limit_grows_to_what_the_service_takes_and_follows_when_that_changes(
    ordered: bool,
) -> None:
    service = ServiceWithRoom(40)
    flow, _, _ = calling(
        range(10**9), service, capacity=af.calls.Adaptive(start=4), ordered=ordered
    )
    found: list[int] = []
    rates: list[float] = []

    async with flow.start(options=af.Options(clock=VirtualClock())) as job:
        for room in (40, 20, 40):
            service.room = room
            await asyncio.sleep(10)
            before = service.done
            found.append(await limit_after(job, 10))
            rates.append((service.done - before) / 10)
        await job.cancel()

    assert 32 <= found[0] <= 64
    assert 16 <= found[1] <= 32
    assert 32 <= found[2] <= 64
    assert rates[0] > 0.85 * 400
    assert rates[1] > 0.85 * 200
    assert rates[2] > 0.85 * 400


def test_all_limits_together_let_each_record_through_once() -> None:
    service = down_until(3, begin=2)
    flow, sink, _ = calling(
        range(1000),
        service,
        capacity=af.calls.Adaptive(start=4),
        rate=af.calls.RateLimit[int](100, per=SECOND),
        breaker=af.calls.CircuitBreaker(calls=5, pause=200 * MS),
        retry=af.Retry(attempts=10, delay=300 * MS),
        cache=af.calls.Cache[int, int](100),
        timeout=30 * SECOND,
    )

    took = run_flow(flow).took.total_seconds()

    assert sink.values == list(range(1000))
    assert 9.9 < took < 14
