"""A CancelledError of user code is an error of that code, and one that it swallows still ends the job."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any

import pytest

import aflow as af
from aflow.connect import Batch, Sink, Writer, WriterContext
from aflow.testing import VirtualClock
from aflow.testing.virtual_time import virtual_time


async def given_up() -> None:
    """Awaits something of its own that was cancelled."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


async def broken_source() -> AsyncIterator[int]:
    yield 1
    await given_up()


def broken_iterable() -> Iterator[int]:
    yield 1
    raise asyncio.CancelledError


def broken_function(number: int) -> int:
    raise asyncio.CancelledError


async def broken_callback(number: int) -> None:
    await given_up()


class BrokenOpen(af.ProcessFunction[int, int]):
    def open(self) -> None:
        raise asyncio.CancelledError

    def process(self, value: int, ctx: af.ProcessContext) -> Iterable[int]:
        return [value]


class BrokenTimer(af.KeyedProcess[int, int, int]):
    def process(self, value: int, ctx: af.Context[int]) -> None:
        ctx.set_processing_timer(ctx.processing_time + 10)

    def on_timer(self, at: int, ctx: af.Context[int]) -> Iterable[int]:
        raise asyncio.CancelledError


class BrokenFlush(Sink[Any]):
    async def writer(self, context: WriterContext) -> Writer[Any]:
        return _BrokenFlush()


class _BrokenFlush(Writer[Any]):
    def write(self, batch: Batch[Any]) -> None:
        return None

    async def flush(self) -> None:
        await given_up()


def flow_of(make: Callable[[af.Flow], None]) -> af.Flow:
    flow = af.Flow("broken")
    make(flow)
    return flow


async def slow_numbers() -> AsyncIterator[int]:
    yield 1
    await asyncio.sleep(1)
    yield 2


PLACES: dict[str, Callable[[af.Flow], None]] = {
    "an async source": lambda flow: flow.source(broken_source()).to(af.CollectSink()),
    "an iterable": lambda flow: flow.source(broken_iterable()).to(af.CollectSink()),
    "a function": lambda flow: flow.source([1]).map(broken_function).to(af.CollectSink()),
    "a callback": lambda flow: flow.source([1]).to(af.CallbackSink(broken_callback)),
    "open": lambda flow: flow.source([1]).process(BrokenOpen()).to(af.CollectSink()),
    "a timer": lambda flow: (
        flow.source(slow_numbers())
        .key_by(lambda n: n)
        .process(BrokenTimer(), name="timer")
        .to(af.CollectSink())
    ),
    "a flush": lambda flow: flow.source([1]).to(BrokenFlush()),
}


@pytest.mark.parametrize("place", PLACES)
@virtual_time
async def test_a_foreign_cancellation_fails_the_job(place: str) -> None:
    flow = flow_of(PLACES[place])

    with pytest.raises(af.AflowError, match=r"CancelledError|cancelled"):
        await flow.run(options=af.Options(clock=VirtualClock()))


async def stubborn_source() -> AsyncIterator[int]:
    number = 0
    while True:
        with suppress(asyncio.CancelledError):  # on purpose: the subject of this test
            await asyncio.sleep(0.01)
        yield number
        number += 1


async def stubborn_callback(number: int) -> None:
    with suppress(asyncio.CancelledError):  # on purpose: the subject of this test
        await asyncio.sleep(10)


@virtual_time
async def test_a_source_that_swallows_its_cancellation_is_stopped_all_the_same() -> None:
    flow, numbers = af.Flow("stubborn"), af.CollectSink[int]()
    flow.source(stubborn_source()).to(numbers)

    async with flow.start(options=af.Options(clock=VirtualClock())) as job:
        await asyncio.sleep(0.05)
        await job.stop()

    assert numbers.values == list(range(len(numbers.values)))
    assert not job.running


@virtual_time
async def test_a_callback_that_swallows_its_cancellation_does_not_keep_the_job() -> None:
    flow = af.Flow("stubborn")
    flow.source([1, 2, 3]).to(af.CallbackSink(stubborn_callback))

    async with flow.start(options=af.Options(clock=VirtualClock())) as job:
        await asyncio.sleep(1)
        await job.cancel()

    assert not job.running


class Stubborn(Sink[int]):
    async def writer(self, context: WriterContext) -> Writer[int]:
        return _Stubborn()


class _Stubborn(Writer[int]):
    async def write(self, batch: Batch[int]) -> None:
        await stubborn_callback(0)


@virtual_time
async def test_a_writer_that_swallows_its_cancellation_does_not_keep_the_job() -> None:
    flow = af.Flow("stubborn")
    flow.source(stubborn_source()).to(Stubborn())

    async with flow.start(options=af.Options(clock=VirtualClock())) as job:
        await asyncio.sleep(1)
        await job.cancel()

    assert not job.running


@virtual_time
async def test_a_job_can_be_stopped_from_within_its_own_callback() -> None:
    flow, seen = af.Flow("enough"), list[int]()

    async def count(number: int) -> None:
        seen.append(number)
        if len(seen) == 3:
            await job.stop()

    async def numbers() -> AsyncIterator[int]:
        number = 0
        while True:
            await asyncio.sleep(1)
            yield number
            number += 1

    flow.source(numbers()).to(af.CallbackSink(count))
    async with flow.start(options=af.Options(clock=VirtualClock())) as job:
        await job.wait()

    assert seen == [0, 1, 2]


class SlowToOpen(Sink[int]):
    async def writer(self, context: WriterContext) -> Writer[int]:
        await asyncio.sleep(60)
        return _BrokenFlushless()


class _BrokenFlushless(Writer[int]):
    def write(self, batch: Batch[int]) -> None:
        return None


@virtual_time
async def test_a_stop_while_the_job_opens_takes_effect_later() -> None:
    flow = af.Flow("slow")
    flow.source(stubborn_source()).to(SlowToOpen())
    job = flow.start(options=af.Options(clock=VirtualClock()))

    async def stop_soon() -> None:
        await asyncio.sleep(1)
        await job.stop()

    async with asyncio.timeout(3600), asyncio.TaskGroup() as group:
        group.create_task(stop_soon())
        async with job:
            await job.wait()

    assert not job.running


async def fail_later() -> None:
    await asyncio.sleep(1)
    raise ValueError


async def catch_a_failed_group(value: int) -> None:
    """Fail in a task group and catch that. Before Python 3.13, ``Task.cancelling()`` then remains 1."""
    with suppress(BaseExceptionGroup):
        async with asyncio.TaskGroup() as group:
            group.create_task(fail_later())


@virtual_time
async def test_a_task_group_that_fails_and_is_caught_in_a_callback_is_no_cancellation() -> None:
    seen: list[int] = []

    async def callback(value: int) -> None:
        await catch_a_failed_group(value)
        seen.append(value)

    flow = af.Flow("groups")
    flow.source([1, 2]).to(af.CallbackSink(callback))
    async with asyncio.timeout(60):
        await flow.run()

    assert seen == [1, 2]


@virtual_time
async def test_a_task_group_that_fails_and_is_caught_in_a_source_is_no_cancellation() -> None:
    async def numbers() -> AsyncIterator[int]:
        for number in (1, 2):
            await catch_a_failed_group(number)
            yield number

    flow, sink = af.Flow("groups"), af.CollectSink[int]()
    flow.source(numbers()).to(sink)
    async with asyncio.timeout(60):
        await flow.run()

    assert sink.values == [1, 2]


@virtual_time
async def test_a_job_is_cancelled_while_a_callback_has_caught_a_failed_task_group() -> None:
    closed: list[bool] = []

    async def callback(value: int) -> None:
        await catch_a_failed_group(value)
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            closed.append(True)
            raise

    flow = af.Flow("groups")
    flow.source([1, 2]).to(af.CallbackSink(callback))
    async with asyncio.timeout(60), flow.start() as job:
        await asyncio.sleep(2)
        await job.cancel()

    assert closed == [True]
