"""Stopping a job: records in flight are processed, and event time ends only with ``drain``."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import pytest

import aflow as af
from aflow.connect import (
    Batch,
    Chunk,
    Position,
    Reader,
    Sink,
    Source,
    Split,
    Writer,
    WriterContext,
)
from aflow.errors import FlowDefinitionError, StopTimeout
from aflow.metrics import JobStatus
from aflow.testing import CollectSink, FlowDriver, Pause, ScriptedSource, VirtualClock
from aflow.testing.virtual_time import settle, virtual_time
from tests.runtime.ledger import Ledger


def windows(source: af.Source[int]) -> tuple[af.Flow, CollectSink[int]]:
    """Sums of the records of each second; the record is its own timestamp in ms."""
    flow, sums = af.Flow("sums"), CollectSink[int]()
    (
        flow.source(source, name="source")
        .event_time(lambda n: n)
        .key_by(lambda _: "all")
        .window(af.Tumbling(timedelta(seconds=1)))
        .reduce(lambda a, b: a + b, name="sum")
        .map(lambda result: result.value)
        .to(sums)
    )
    return flow, sums


@pytest.mark.parametrize(("drain", "expected"), [(False, [3]), (True, [3, 1_000])])
@pytest.mark.parametrize("parallelism", [1, 2])
@virtual_time
async def test_windows_that_are_open_fire_only_if_the_job_is_drained(
    drain: bool, expected: list[int], parallelism: int
) -> None:
    flow, sums = windows(af.PushSource[int]())

    async with FlowDriver(flow, parallelism=parallelism) as driver:
        for n in (1, 2, 1_000):
            await driver.send(n)
        await driver.job.stop(drain=drain)
        running = driver.job.running

    assert not running
    assert sums.values == expected


@virtual_time
async def test_leaving_the_block_stops_without_draining() -> None:
    flow, sums = windows(af.PushSource[int]())

    async with FlowDriver(flow) as driver:
        for n in (1, 2, 1_000):
            await driver.send(n)

    assert sums.values == [3]


@virtual_time
async def test_accepted_records_are_written_before_the_job_has_stopped() -> None:
    loop = asyncio.get_running_loop()
    ledger = Ledger()
    sink = ledger.sink("sink", takes=timedelta(seconds=10))
    flow, source = af.Flow("slow"), af.PushSource[int]()
    flow.source(source).to(sink)

    async with FlowDriver(flow) as driver:
        await driver.send(1)
        await driver.settle()
        await driver.send(2)
        await driver.settle()
        await driver.job.stop()
        written, stopped_at = list(sink.values), loop.time()

    assert (written, stopped_at) == ([1, 2], 20.0)
    assert sink.flushed
    assert ledger.closed == ledger.opened


@virtual_time
async def test_stopping_interrupts_a_pause_of_the_source() -> None:
    loop = asyncio.get_running_loop()
    flow, sums = windows(ScriptedSource[int](1, Pause(timedelta(hours=1)), 2))

    async with FlowDriver(flow) as driver:
        await driver.advance(timedelta(seconds=3))
        await driver.job.stop(drain=True)

    assert sums.values == [1]
    assert loop.time() == 3.0


@virtual_time
async def test_a_sender_learns_that_the_job_was_stopped() -> None:
    source = af.PushSource[int]()
    flow, _ = windows(source)

    async with FlowDriver(flow) as driver:
        await driver.job.stop()
        with pytest.raises(af.JobStopped, match="has ended"):
            await driver.send(1)


@virtual_time
async def test_stopping_twice_and_after_the_end_does_nothing_more() -> None:
    flow, sums = windows(af.PushSource[int]())

    async with FlowDriver(flow) as driver:
        await driver.send(1)
        await asyncio.gather(driver.job.stop(drain=True), driver.job.stop(drain=True))
        await driver.job.stop(drain=True)
        await driver.job.wait()

    assert sums.values == [1]


@virtual_time
async def test_being_cancelled_in_wait_does_not_stop_the_job() -> None:
    flow, sums = windows(af.PushSource[int]())

    async with FlowDriver(flow) as driver:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await driver.job.wait()
        await driver.send(1)
        await driver.end()

    assert sums.values == [1]


@virtual_time
async def test_a_failure_while_stopping_is_raised_by_stop_and_once() -> None:
    def fail(place: str) -> None:
        if place == "flush sink":
            raise OSError("disk full")

    flow, sink = af.Flow("failing"), Ledger(fail).sink("sink")
    flow.source(af.PushSource[int]()).to(sink, name="sink")

    async with FlowDriver(flow) as driver:
        with pytest.raises(af.errors.SinkError, match="disk full"):
            await driver.job.stop()
        await driver.job.wait()


@virtual_time
async def test_a_failure_in_flush_is_a_sink_error_that_names_the_sink() -> None:
    def fail(place: str) -> None:
        if place == "flush out":
            raise OSError("disk full")

    flow = af.Flow("failing")
    flow.source([1]).to(Ledger(fail).sink("out"), name="files")

    with pytest.raises(af.errors.SinkError, match=r"sink 'files' .*disk full"):
        await flow.run()


@virtual_time
async def test_a_job_can_be_started_only_once() -> None:
    flow, _ = windows(af.PushSource[int]())
    job = flow.start()

    with pytest.raises(af.JobStopped, match="was not started"):
        await job.wait()
    async with job:
        await settle()
    with pytest.raises(af.FlowDefinitionError, match="was started already"):
        await job.__aenter__()


class Stuck(Writer[int]):
    """A writer whose close waits for an answer that does not arrive."""

    def __init__(self, story: list[str]) -> None:
        self._story = story

    def write(self, batch: Batch[int]) -> None:
        self._story.append("written")

    async def close(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            self._story.append("given up")


class StuckSink(Sink[int]):
    """A sink with such writers."""

    def __init__(self) -> None:
        self.story: list[str] = []

    async def writer(self, context: WriterContext) -> Writer[int]:
        return Stuck(self.story)


class StuckReader(Reader[int]):
    """A reader without records, whose close waits as well."""

    async def read(self, limit: int) -> Chunk[int] | None:
        await asyncio.Event().wait()
        return None

    async def close(self) -> None:
        await asyncio.Event().wait()


class StuckSource(Source[int]):
    """A source with one such reader."""

    bounded = False

    async def splits(self) -> Sequence[Split]:
        return [Split("only")]

    async def reader(self, split: Split, position: Position | None) -> Reader[int]:
        return StuckReader()


@virtual_time
async def test_writers_that_do_not_close_hold_up_a_stop_for_5_s_after_its_deadline() -> None:
    sink, loop = StuckSink(), asyncio.get_running_loop()
    flow = af.Flow("stuck")
    flow.source([1, 2], name="numbers").rebalance().to(sink, name="out")
    async with flow.start(parallelism=2) as job:
        began = loop.time()
        with pytest.raises(
            StopTimeout, match="the close of resources and writers, 2 readers or writers that did"
        ):
            await job.stop(deadline=timedelta(seconds=10))

    # The deadline, 5 s for the first close, and 1 s for the other.
    assert loop.time() - began == pytest.approx(16)
    assert sink.story.count("given up") == 2
    assert job.status is JobStatus.CANCELLED


@virtual_time
async def test_a_reader_that_does_not_close_is_cancelled_with_the_job_if_that_has_a_limit() -> None:
    flow, loop = af.Flow("stuck"), asyncio.get_running_loop()
    flow.source(StuckSource(), name="numbers").to(af.CollectSink[int](), name="out")
    async with flow.start() as job:
        await settle()
        began = loop.time()
        with pytest.raises(FlowDefinitionError, match="close_within"):
            await job.cancel(close_within=timedelta(0))
        assert job.running

        await job.cancel(close_within=timedelta(seconds=3))

    assert loop.time() - began == pytest.approx(3)
    assert job.status is JobStatus.CANCELLED


@virtual_time
async def test_cancelling_a_job_that_is_closing_its_writers_lets_them_close() -> None:
    story: list[str] = []

    class Slow(Sink[int]):
        async def writer(self, context: WriterContext) -> Writer[int]:
            return SlowToClose()

    class SlowToClose(Writer[int]):
        def write(self, batch: Batch[int]) -> None:
            raise ValueError("full")

        async def close(self) -> None:
            story.append("closing")
            await asyncio.sleep(60)
            story.append("closed")

    flow = af.Flow("slow")
    flow.source([1]).to(Slow())
    async with flow.start(options=af.Options(clock=VirtualClock())) as job:
        await asyncio.sleep(1)
        await job.cancel()
        await job.cancel()

    assert story == ["closing", "closed"]
