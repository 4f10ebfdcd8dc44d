"""Over history, processing-time timers of user code are refused when registered; clock-driven steps still work."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pytest

import aflow as af
from aflow import triggers
from aflow.errors import FlowDefinitionError, OperatorError
from tests.backfill.locally import backfill_locally

pytestmark = pytest.mark.asyncio

WHY = "set_processing_timer() waits for the clock, and a backfill has no clock"


class ByClock(af.KeyedProcess[str, int, int]):
    """Registers a processing-time timer, for a record or in an event timer."""

    def __init__(self, *, in_timer: bool) -> None:
        self.in_timer = in_timer

    def process(self, value: int, ctx: af.Context[str]) -> Iterable[int]:
        if self.in_timer:
            ctx.set_event_timer(value)
        else:
            ctx.delete_processing_timer(value)
            ctx.set_processing_timer(value)
        return ()

    def on_timer(self, at: int, ctx: af.Context[str]) -> Iterable[int]:
        ctx.set_processing_timer(at)
        return ()


class ByEventTime(af.KeyedProcess[str, int, int]):
    def process(self, value: int, ctx: af.Context[str]) -> Iterable[int]:
        ctx.set_event_timer(value + 5)
        return ()

    def on_timer(self, at: int, ctx: af.Context[str]) -> Iterable[int]:
        return (at,)


class BothByClock(af.CoProcess[str, int, int, int]):
    def process_left(self, value: int, ctx: af.Context[str]) -> Iterable[int]:
        return (value,)

    def process_right(self, value: int, ctx: af.Context[str]) -> Iterable[int]:
        ctx.set_processing_timer(value)
        return ()


class AwaitedByClock(af.AsyncKeyedProcess[str, int, int]):
    async def process(self, value: int, ctx: af.AsyncContext[str]) -> Iterable[int]:
        ctx.set_processing_timer(ctx.processing_time + 3_600_000)
        return (value,)


class TriggerByClock(triggers.Trigger[int]):
    """A user's trigger, whose behaviour is unknown to the planner."""

    def on_element(
        self,
        value: int,
        timestamp: int,
        window: af.TimeWindow,
        ctx: triggers.TriggerContext,
    ) -> triggers.TriggerResult:
        ctx.set_processing_timer(timestamp)
        return triggers.TriggerResult.CONTINUE


def keyed(flow: af.Flow) -> af.KeyedStream[str, int]:
    return flow.source([1], name="numbers").event_time(lambda n: n).key_by(lambda n: f"key {n}")


async def results(flow: af.Flow, stream: af.Stream[Any]) -> list[Any]:
    stream.to(af.CollectSink[Any](), name="out")
    done = await backfill_locally(flow, {"numbers": [7, 8, 9]}, parallelism=1)
    return done.results["out"]


@pytest.mark.parametrize("in_timer", [False, True])
async def test_a_process_function_is_refused_a_timer_on_the_clock(in_timer: bool) -> None:
    flow = af.Flow("clock")
    stream = keyed(flow).process(ByClock(in_timer=in_timer), name="dormant")

    with pytest.raises(OperatorError, match=r"step 'dormant' failed .*key 'key 7'") as refused:
        await results(flow, stream)

    assert WHY in str(refused.value)
    assert isinstance(refused.value.__cause__, FlowDefinitionError)


async def test_a_function_of_two_streams_is() -> None:
    flow = af.Flow("clock")
    stream = keyed(flow)
    met = stream.connect(stream).process(BothByClock(), name="meet")

    with pytest.raises(OperatorError, match="step 'meet' failed") as refused:
        await results(flow, met)

    assert WHY in str(refused.value)


async def test_an_awaited_handler_is_refused_under_any_error_policy() -> None:
    flow = af.Flow("clock")
    awaited = keyed(flow).process_async(
        AwaitedByClock(),
        name="ask",
        on_error=af.calls.Drop(),
        retry=af.Retry(attempts=1000, delay=timedelta(seconds=1), on=ConnectionError),
    )

    with pytest.raises(OperatorError, match="step 'ask' failed") as refused:
        await results(flow, awaited)

    assert WHY in str(refused.value)


async def test_a_trigger_of_a_users_is() -> None:
    flow = af.Flow("clock")
    windows = keyed(flow).window(af.Global(), trigger=TriggerByClock())

    with pytest.raises(OperatorError, match="step 'most' failed") as refused:
        await results(flow, windows.reduce(max, name="most"))

    assert WHY in str(refused.value)


async def test_timers_of_event_time_ring() -> None:
    flow = af.Flow("events")

    found = await results(flow, keyed(flow).process(ByEventTime(), name="later"))

    assert sorted(found) == [12, 13, 14]


async def test_calls_are_retried_and_run_out_of_time_by_the_clock() -> None:
    attempts: dict[int, int] = {}

    async def ask(value: int) -> int:
        attempts[value] = attempts.get(value, 0) + 1
        if value == 7 and attempts[value] == 1:
            raise ConnectionError("once")
        if value == 8:
            await asyncio.sleep(60)
        return value

    flow = af.Flow("calls")
    called = keyed(flow).map_async(
        ask,
        name="ask",
        timeout=timedelta(milliseconds=500),
        retry=af.Retry(attempts=3, delay=timedelta(milliseconds=1), on=ConnectionError),
        rate=af.calls.RateLimit(1000, per=timedelta(seconds=1)),
        on_error=af.calls.Drop(),
    )

    found = await results(flow, called)

    assert sorted(found) == [7, 9]
    assert attempts == {7: 2, 8: 1, 9: 1}


async def test_idleness_and_periodic_generators_have_no_effect() -> None:
    flow = af.Flow("generators")
    numbers = flow.source([1], name="numbers").event_time(
        lambda n: n, max_delay=timedelta(0), idle_after=timedelta(milliseconds=1)
    )

    found = await results(flow, numbers.key_by(lambda n: 0).reduce(max, name="most"))

    assert found == [7, 8, 9]


async def test_a_live_job_registers_processing_timers() -> None:
    flow, sink = af.Flow("live"), af.CollectSink[int]()
    live = flow.source([7]).event_time(lambda n: n).key_by(lambda n: f"key {n}")
    live.process_async(AwaitedByClock(), name="ask").to(sink)

    await flow.run()

    assert sink.values == [7]
