"""Markers measure the latency from each source to each sink."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

import aflow as af
from aflow.errors import FlowDefinitionError
from aflow.metrics import LatencyMetrics
from aflow.testing import Pause, ScriptedSource
from aflow.testing.virtual_time import virtual_time

SCRIPT = [one for number in range(20) for one in (number, Pause(timedelta(milliseconds=500)))]


async def latencies(flow: af.Flow, options: af.Options | None = None) -> list[LatencyMetrics]:
    async with flow.start(options=options or af.Options(), parallelism=2) as job:
        await job.wait()
        return job.metrics().latencies


async def wait(number: int) -> int:
    await asyncio.sleep(0.25)
    return number


async def write_slowly(number: int) -> None:
    await asyncio.sleep(0.05)


@pytest.mark.parametrize("ordered", [False, True])
@virtual_time
async def test_the_latency_includes_calls_and_not_the_next_records(ordered: bool) -> None:
    flow = af.Flow("calls")
    numbers = flow.source(ScriptedSource[int](*SCRIPT), name="numbers")
    numbers.rebalance().map_async(wait, ordered=ordered, name="wait").to(
        af.CollectSink[int](), name="out"
    )

    (one,) = await latencies(flow)

    assert (one.source, one.sink) == ("numbers", "out")
    assert one.count == 10  # one each second, at half of the records
    assert (one.p50_ms, one.p99_ms, one.max_ms) == pytest.approx((250, 250, 250))


@virtual_time
async def test_each_source_and_sink_has_a_latency_of_its_own() -> None:
    flow = af.Flow("two")
    slow = flow.source(ScriptedSource[int](*SCRIPT), name="slow").map_async(wait, name="wait")
    fast = flow.source(ScriptedSource[int](*SCRIPT), name="fast")
    both = slow.union(fast)
    both.to(af.CollectSink[int](), name="all")
    fast.to(af.CollectSink[int](), name="direct")

    measured = {(one.source, one.sink): one.p50_ms for one in await latencies(flow)}

    assert measured == {
        ("slow", "all"): pytest.approx(250),
        ("fast", "all"): pytest.approx(0),
        ("fast", "direct"): pytest.approx(0),
    }


@virtual_time
async def test_the_latency_includes_the_wait_for_the_writer() -> None:
    flow = af.Flow("writer")
    flow.source(ScriptedSource[int](*range(5), *SCRIPT), name="numbers").to(
        af.CallbackSink(write_slowly), name="out"
    )

    (one,) = await latencies(flow)

    assert one.max_ms >= 50


@virtual_time
async def test_latency_is_not_measured_without_an_interval() -> None:
    flow = af.Flow("none")
    flow.source(range(10), name="numbers").to(af.CollectSink[int](), name="out")

    assert await latencies(flow, af.Options(latency_interval=None)) == []


def test_an_interval_of_nothing_is_refused() -> None:
    with pytest.raises(FlowDefinitionError, match="latency_interval"):
        af.Options(latency_interval=timedelta(0))
