"""Flows with more steps in a row than the stack of Python has room for."""

from __future__ import annotations

import pytest

import aflow as af

pytestmark = pytest.mark.asyncio


@pytest.mark.parametrize("parallelism", [1, 2])
async def test_five_hundred_steps_in_a_row_run_in_order(parallelism: int) -> None:
    flow, results = af.Flow("long"), af.CollectSink[int]()
    stream: af.Stream[int] = flow.source(range(20))
    for _ in range(500):
        stream = stream.flat_map(lambda number: (number + 1,))
    stream.to(results)

    await flow.run(parallelism=parallelism)

    assert results.values == list(range(500, 520))


class Timed(af.KeyedProcess[int, int, int]):
    """Pass each number on, and set a timer for it."""

    fired = 0

    def process(self, value: int, ctx: af.Context[int]) -> list[int]:
        ctx.set_event_timer(value + 1)
        return [value]

    def on_timer(self, at: int, ctx: af.Context[int]) -> list[int]:
        Timed.fired += 1
        return []


async def test_timers_of_many_steps_in_a_row_fire_at_the_last_watermark() -> None:
    steps = 120
    Timed.fired = 0
    flow, results = af.Flow("timed"), af.CollectSink[int]()
    stream: af.Stream[int] = flow.source(range(3)).event_time(lambda number: number)
    for number in range(steps):
        stream = stream.key_by(lambda value: value).process(Timed(), name=f"timed-{number}")
    stream.to(results)

    await flow.run()

    assert results.values == [0, 1, 2]
    assert Timed.fired == 3 * steps
