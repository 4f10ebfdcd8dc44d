"""Processing-time timers on the event loop: they fire by the clock, whatever the input does."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import timedelta

import pytest

import aflow as af
from aflow.connect import Batch, Sink, Writer, WriterContext
from aflow.model.time import Timestamp
from aflow.testing import At, CollectSink, FlowDriver, Pause, ScriptedSource, run_flow
from aflow.testing.virtual_time import virtual_time

START = 1_357_000_000_000

Rang = tuple[str, Timestamp, Timestamp]
"""Key, the time that the timer was set for, and that of the clock; both in ms after the start."""


class Ring(af.KeyedProcess[str, tuple[str, int], Rang]):
    """A record ``(key, delay)`` sets a timer, or deletes it if ``delay`` is negative."""

    def process(self, value: tuple[str, int], ctx: af.Context[str]) -> None:
        _, delay = value
        if delay < 0:
            ctx.delete_processing_timer(START - delay)
        else:
            ctx.set_processing_timer(ctx.processing_time + delay)

    def on_timer(self, at: Timestamp, ctx: af.Context[str]) -> Iterable[Rang]:
        yield ctx.key, at - START, ctx.processing_time - START


def ringing(
    *lines: tuple[str, int] | Pause, sink: Sink[Rang] | None = None
) -> tuple[af.Flow, CollectSink[Rang]]:
    flow, collected = af.Flow("ringing"), CollectSink[Rang]()
    rang = (
        flow.source(ScriptedSource[tuple[str, int]](*lines))
        .key_by(lambda record: record[0])
        .process(Ring(), name="ring")
    )
    rang.to(collected)
    if sink is not None:
        rang.to(sink, name="sink")
    return flow, collected


def ms(milliseconds: int) -> Pause:
    return Pause(timedelta(milliseconds=milliseconds))


@pytest.mark.parametrize("parallelism", [1, 3])
def test_timers_ring_at_their_moment_while_the_source_is_silent(parallelism: int) -> None:
    flow, rang = ringing(("a", 10_000), ("b", 2_500), ("c", 1), ms(20_000))

    run_flow(flow, start=START, parallelism=parallelism)

    assert rang.values == [("c", 1, 1), ("b", 2_500, 2_500), ("a", 10_000, 10_000)]


def test_an_earlier_timer_that_is_set_later_fires_first() -> None:
    flow, rang = ringing(("a", 60_000), ms(5_000), ("a", 1_000), ms(100_000))

    run_flow(flow, start=START)

    assert rang.values == [("a", 6_000, 6_000), ("a", 60_000, 60_000)]


def test_a_timer_that_was_taken_back_does_not_ring_and_the_others_do() -> None:
    flow, rang = ringing(("a", 1_000), ("a", 2_000), ("a", -1_000), ms(3_000))

    run_flow(flow, start=START)

    assert rang.values == [("a", 2_000, 2_000)]


def test_a_timer_for_a_past_time_fires_at_once() -> None:
    flow, rang = ringing(ms(500), ("a", 0), ms(1))

    run_flow(flow, start=START)

    assert rang.values == [("a", 500, 500)]


def test_a_timer_that_is_pending_at_the_end_of_the_input_neither_fires_nor_delays_the_end() -> None:
    flow, rang = ringing(("a", 3_600_000), ms(1_000))

    outcome = run_flow(flow, start=START)

    assert rang.values == []
    assert outcome.took == timedelta(seconds=1)


class _Slow(Sink[Rang]):
    """Takes a minute for each batch."""

    async def writer(self, context: WriterContext) -> Writer[Rang]:
        return _SlowWriter()


class _SlowWriter(Writer[Rang]):
    async def write(self, batch: Batch[Rang]) -> None:
        await asyncio.sleep(60)


def test_timers_ring_while_the_task_waits_for_its_sink() -> None:
    # More than the sink takes; the last piece of their firing begins before it is full.
    crowd = [(f"key {n}", 1_000) for n in range(4_000)]
    flow, rang = ringing(*crowd, ("late", 30_000), ms(2_000), *crowd, ms(100_000), sink=_Slow())

    run_flow(flow, start=START)

    assert ("late", 30_000, 30_000) in rang.values


class _Again(af.KeyedProcess[str, str, Timestamp]):
    """Sets a timer each second, for ever."""

    def process(self, value: str, ctx: af.Context[str]) -> None:
        ctx.set_processing_timer(ctx.processing_time + 1_000)

    def on_timer(self, at: Timestamp, ctx: af.Context[str]) -> Iterable[Timestamp]:
        ctx.set_processing_timer(at + 1_000)
        return [at]


@virtual_time
async def test_a_timer_that_sets_itself_again_fires_each_time() -> None:
    flow, rang = af.Flow("clock"), CollectSink[Timestamp]()
    (
        flow.source(af.PushSource[str]())
        .key_by(lambda value: value)
        .process(_Again(), name="again")
        .to(rang)
    )

    async with FlowDriver(flow) as driver:
        await driver.send("a")
        await driver.advance(timedelta(milliseconds=3_500))

    assert rang.values == [1_000, 2_000, 3_000]


def test_a_silent_split_stops_holding_back_the_others_after_idle_after() -> None:
    seconds: list[tuple[int, float]] = []
    flow = af.Flow("idle")
    source = ScriptedSource[int].of_splits(
        {
            "silent": [At(1, 1_000), Pause(timedelta(hours=1))],
            "talking": [At(1, 1_000), ms(10_000), At(5, 5_000), Pause(timedelta(hours=1))],
        }
    )

    def note(result: af.Windowed[str, int]) -> None:
        seconds.append((result.value, asyncio.get_running_loop().time()))

    (
        flow.source(source)
        .event_time(idle_after=timedelta(seconds=30))
        .key_by(lambda _: "all")
        .window(af.Tumbling(timedelta(seconds=1)))
        .fold(int, lambda count, _: count + 1, name="count")
        .to(af.CallbackSink(note))
    )

    run_flow(flow)

    # Silent for longer than 30 s, by the clock's millisecond.
    assert seconds == [(2, 30.001), (1, 3_610.0)]
