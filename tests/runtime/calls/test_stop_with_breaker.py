"""Jobs that are stopped while the circuit breaker of a dead service is open."""

from __future__ import annotations

import asyncio

import pytest

import aflow as af
from aflow.testing import CollectSink, FlowDriver, Pause, ScriptedSource
from aflow.testing.virtual_time import virtual_time
from tests.runtime.calls.questions import HOUR, SECOND

FOREVER = Pause(1000 * HOUR)


class Dead(af.AsyncKeyedProcess[int, int, int]):
    """A service that is down."""

    @staticmethod
    async def ask(number: int) -> int:
        await asyncio.sleep(0.01)
        raise ConnectionError("down")

    async def process(self, value: int, ctx: af.AsyncContext[int]) -> list[int]:
        return [await self.ask(value)]


@pytest.mark.parametrize("step", ["calls", "handlers", "behind an exchange"])
@virtual_time
async def test_a_stop_ends_though_the_circuit_breaker_of_a_dead_service_is_open(step: str) -> None:
    flow, sink, dead = af.Flow("dead service"), CollectSink[int](), CollectSink[object]()
    failed: af.Tag[af.calls.FailedCall[int]] = af.Tag("failed")
    options: af.calls.CallOptions[int] = {
        "timeout": 10 * SECOND,
        "retry": af.Retry(attempts=4, on=ConnectionError),
        "breaker": af.calls.CircuitBreaker(),
        "on_error": af.calls.DeadLetter(failed),
    }
    numbers = flow.source(ScriptedSource[int](*range(1000), FOREVER), name="numbers")
    if step == "handlers":
        answers = numbers.key_by(lambda n: n % 10, of=int).process_async(
            Dead(), name="ask", **options
        )
    else:
        exchanged = numbers if step == "calls" else numbers.rebalance(2)
        answers = exchanged.map_async(Dead.ask, name="ask", **options)
    answers.to(sink, name="out")
    answers.side(failed).to(dead, name="dead")

    async with FlowDriver(flow) as driver:
        await driver.advance(10 * SECOND)
        await driver.job.stop()

    assert (len(sink.values), len(dead.values)) == (0, 1000)
    assert asyncio.get_running_loop().time() < 120
