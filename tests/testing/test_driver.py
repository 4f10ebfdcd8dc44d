"""Whole flows in virtual time: run to the end, or driven step by step."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import timedelta

import pytest

import aflow as af
from aflow.model.time import Timestamp
from aflow.testing import (
    At,
    CollectSink,
    Crash,
    FlowDriver,
    Pause,
    ScriptedSource,
    run_flow,
)
from aflow.testing.virtual_time import VirtualClock, virtual_time


class Remind(af.KeyedProcess[str, str, str]):
    """Report keys without a record for a minute of processing time."""

    def process(self, value: str, ctx: af.Context[str]) -> None:
        ctx.set_processing_timer(ctx.processing_time + 60_000)

    def on_timer(self, at: Timestamp, ctx: af.Context[str]) -> Iterable[str]:
        return [f"{ctx.key} at {at}"]


def reminding(source: af.Source[str]) -> tuple[af.Flow, CollectSink[str]]:
    flow, sink = af.Flow("reminding"), CollectSink[str]()
    flow.source(source, name="events").key_by(lambda value: value).process(
        Remind(), name="remind"
    ).to(sink)
    return flow, sink


def test_a_flow_with_pauses_of_hours_runs_in_no_time() -> None:
    flow, sink = reminding(ScriptedSource("a", Pause(timedelta(hours=3)), "b"))

    outcome = run_flow(flow, start=1_000)

    assert sink.values == ["a at 61000"]
    assert outcome.took == timedelta(hours=3)
    assert outcome.metrics.steps["remind"].records_in == 2


def test_event_time_is_that_of_the_script() -> None:
    flow, sink = af.Flow("windows"), CollectSink[tuple[str, int]]()
    lines = [At("a", 0), At("a", 999), At("a", 1_000), At("b", 5_000)]
    (
        flow.source(ScriptedSource[str](*lines))
        .event_time()
        .key_by(lambda value: value)
        .window(af.Tumbling(timedelta(seconds=1)))
        .fold(int, lambda count, _: count + 1, name="count")
        .map(lambda result: (result.key, result.value))
        .to(sink)
    )

    run_flow(flow, parallelism=2)

    assert sorted(sink.values) == [("a", 1), ("a", 2), ("b", 1)]


def test_a_crash_of_the_script_fails_the_flow() -> None:
    flow, sink = reminding(ScriptedSource[str]("a", Crash(OSError("gone"))))

    with pytest.raises(
        af.errors.SourceError, match="'events' failed in split 'script': OSError: gone"
    ):
        run_flow(flow)

    assert sink.values == []


def test_a_seed_shuffles_the_tasks_and_repeats_itself() -> None:
    def order(seed: int | None) -> list[str]:
        flow, sink = af.Flow("race"), CollectSink[str]()
        streams = [flow.source(ScriptedSource[str](name), name=name).rebalance() for name in "abcd"]
        streams[0].union(*streams[1:]).to(sink)
        run_flow(flow, seed=seed)
        return sink.values

    assert order(3) == order(3)
    assert len({tuple(order(seed)) for seed in range(10)}) > 1


@virtual_time
async def test_a_driver_sends_records_and_advances_time() -> None:
    flow, sink = reminding(af.PushSource[str]())

    async with FlowDriver(flow) as driver:
        await driver.send("a")
        await driver.settle()
        received = driver.metrics.steps["remind"].records_in
        await driver.advance(timedelta(seconds=59))
        before = list(sink.values)
        await driver.advance(timedelta(seconds=1))
        after = list(sink.values)
        await driver.end()

    assert (received, before, after) == (1, [], ["a at 60000"])


@virtual_time
async def test_end_is_the_end_of_a_bounded_input() -> None:
    flow, sink = af.Flow("windows"), CollectSink[int]()
    (
        flow.source(af.PushSource[int]())
        .event_time()
        .key_by(lambda n: n % 2)
        .window(af.Tumbling(timedelta(seconds=1)))
        .reduce(max, name="max")
        .map(lambda result: result.value)
        .to(sink)
    )

    async with FlowDriver(flow) as driver:
        for n in (1, 2, 3):
            await driver.send(n, timestamp=n)
        await driver.settle()
        before = list(sink.values)
        await driver.end()

    assert before == []
    assert sorted(sink.values) == [2, 3]


@virtual_time
async def test_records_are_sent_to_the_named_source() -> None:
    flow, sink = af.Flow("two"), CollectSink[str]()
    left = flow.source(af.PushSource[str](), name="left").map(lambda value: f"left {value}")
    right = flow.source(af.PushSource[str](), name="right").map(lambda value: f"right {value}")
    left.union(right).to(sink)

    async with FlowDriver(flow) as driver:
        await driver.send("a", to="right")
        await driver.settle()
        await driver.send("b", to="left")
        await driver.settle()
        with pytest.raises(af.FlowDefinitionError, match="this flow has: 'left', 'right'"):
            await driver.send("c")
        with pytest.raises(af.FlowDefinitionError, match="no PushSource is named 'middle'"):
            await driver.send("c", to="middle")

    assert sink.values == ["right a", "left b"]


@virtual_time
async def test_a_failure_is_raised_where_the_test_settles() -> None:
    flow = af.Flow("failing")
    flow.source(af.PushSource[int]()).map(lambda n: 1 // n, name="invert").to(CollectSink[int]())

    async with FlowDriver(flow) as driver:
        await driver.send(0)
        with pytest.raises(af.OperatorError, match="step 'invert' failed on record 0"):
            await driver.settle()


@virtual_time
async def test_a_failure_is_raised_where_the_test_sends_again() -> None:
    flow = af.Flow("failing")
    flow.source(af.PushSource[int](capacity=1)).map(lambda n: 1 // n, name="invert").to(
        CollectSink[int]()
    )

    async def send_many(driver: FlowDriver) -> None:
        for _ in range(10):
            await driver.send(0)

    async with FlowDriver(flow) as driver:
        with pytest.raises(af.OperatorError, match="step 'invert' failed on record 0"):
            await send_many(driver)


@virtual_time
async def test_an_unseen_failure_is_raised_at_the_end_of_the_block() -> None:
    flow = af.Flow("failing")
    flow.source(af.PushSource[int]()).map(lambda n: 1 // n, name="invert").to(CollectSink[int]())

    with pytest.raises(af.OperatorError, match="step 'invert'"):
        async with FlowDriver(flow) as driver:
            await driver.send(0)


@virtual_time
async def test_another_clock_is_refused() -> None:
    flow, _ = reminding(af.PushSource[str]())

    with pytest.raises(af.FlowDefinitionError, match="cannot be a VirtualClock; leave it out"):
        FlowDriver(flow, options=af.Options(clock=VirtualClock()))


def test_a_driver_needs_virtual_time() -> None:
    flow, _ = reminding(af.PushSource[str]())

    async def drive() -> None:
        FlowDriver(flow)

    with pytest.raises(af.FlowDefinitionError, match="VirtualClock\\(\\) needs virtual time"):
        asyncio.run(drive())


def test_run_flow_refuses_a_running_loop() -> None:
    flow, _ = reminding(ScriptedSource("a"))

    async def run_within() -> None:
        run_flow(flow)

    with pytest.raises(RuntimeError, match="use FlowDriver in a test under @virtual_time"):
        asyncio.run(run_within())
