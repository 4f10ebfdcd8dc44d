"""Readers of a load that is stopped while they wait."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

import aflow as af
from aflow.bench.arrivals import ConstantRate, SteppedRate
from aflow.bench.load_source import LoadSource
from aflow.bench.precise_timer import PreciseTimer
from aflow.bench.record_supply import RecordSupply
from aflow.runtime.builtin_connectors.asked_chunk import AskedChunk
from aflow.runtime.clock import SystemClock
from aflow.testing.virtual_time import virtual_time


@virtual_time
async def test_all_readers_of_a_closed_loop_end_when_it_is_stopped() -> None:
    push = af.PushSource[int]()
    supply = RecordSupply([1], "numbers")
    load = LoadSource(
        "numbers", push, supply, ConstantRate(1.0), end=10.0, patience=1.0, in_flight=1, splits=2
    )
    loop = asyncio.get_running_loop()
    load.begin(loop.time(), loop.time, SystemClock())
    assert await load.next_chunk(10, PreciseTimer()) is not None

    async with asyncio.TaskGroup() as group:
        readers = [group.create_task(load.next_chunk(10, PreciseTimer())) for _ in range(2)]
        await asyncio.sleep(0.1)
        assert not any(one.done() for one in readers)
        load.stop()

    assert [one.result() for one in readers] == [None, None]
    assert load.finished.is_set()


@virtual_time
async def test_no_record_is_due_after_the_stop() -> None:
    supply = RecordSupply([1], "numbers")
    load = LoadSource(
        "numbers", af.PushSource[int](), supply, ConstantRate(10.0), end=10.0, patience=1.0
    )
    loop = asyncio.get_running_loop()
    load.begin(loop.time(), loop.time, SystemClock())
    await asyncio.sleep(1.05)
    load.stop()
    await asyncio.sleep(5)

    assert load.offered() == 11


@virtual_time
async def test_records_of_all_steps_have_the_same_chance_to_be_traced() -> None:
    """1,000 traced records of 5,000 a second, also in the part with 1,000 a second."""
    second = timedelta(seconds=1)
    load = LoadSource(
        "numbers",
        af.PushSource[int](),
        RecordSupply([1], "numbers"),
        SteppedRate([(1000, 5 * second), (5000, 5 * second)]),
        end=10.0,
        patience=1.0,
        traced_rate=1000.0,
    )
    clock = [0.0]
    load.begin(0.0, lambda: clock[0], SystemClock())
    timer = PreciseTimer()
    traced = [0, 0]
    for number in range(1, 1000):
        clock[0] = number / 100
        chunk = await load.next_chunk(1000, timer)
        assert isinstance(chunk, AskedChunk)
        traced[number // 500] += chunk.correlation is not None

    assert [one / 500 for one in traced] == pytest.approx([0.2, 0.2], abs=0.06)
