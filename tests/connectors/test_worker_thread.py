"""Blocking calls on one resource are made one after the other, and none begins after it was cancelled."""

from __future__ import annotations

import asyncio
import threading

import pytest

from aflow_connectors.worker_thread import WorkerThread


@pytest.mark.asyncio
async def test_a_cancelled_call_that_waits_for_an_earlier_one_does_not_begin() -> None:
    thread, made = WorkerThread(), list[str]()
    earlier_runs, earlier_ends = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def earlier() -> None:
        loop.call_soon_threadsafe(earlier_runs.set)
        asyncio.run_coroutine_threadsafe(earlier_ends.wait(), loop).result(30)
        made.append("earlier")

    first = asyncio.create_task(thread.run(earlier))
    await earlier_runs.wait()
    second = asyncio.create_task(thread.run(lambda: made.append("opened")))
    await asyncio.sleep(0.01)
    second.cancel()
    with pytest.raises(asyncio.CancelledError):
        await second
    closing = asyncio.create_task(thread.finish(lambda: made.append("closed")))
    earlier_ends.set()
    await first
    await closing
    await thread.run(lambda: None)

    assert sorted(made) == ["closed", "earlier"]


@pytest.mark.asyncio
async def test_a_cancelled_call_that_has_begun_ends_before_the_resource_is_closed() -> None:
    thread, made = WorkerThread(), list[str]()
    runs, may_end = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def read() -> None:
        loop.call_soon_threadsafe(runs.set)
        asyncio.run_coroutine_threadsafe(may_end.wait(), loop).result(30)
        made.append("read")

    reading = asyncio.create_task(thread.run(read))
    await runs.wait()
    reading.cancel()
    closing = asyncio.create_task(thread.finish(lambda: made.append("closed")))
    may_end.set()
    await closing

    assert made == ["read", "closed"]
    assert reading.cancelled() or await asyncio.gather(reading, return_exceptions=True)


@pytest.mark.asyncio
@pytest.mark.parametrize("steps", range(4))
async def test_a_resource_is_closed_though_the_close_is_cancelled_before_it_begins(
    steps: int,
) -> None:
    thread, closed = WorkerThread(), asyncio.Event()
    loop, may_read = asyncio.get_running_loop(), threading.Event()
    reading = asyncio.create_task(thread.run(lambda: may_read.wait(30)))
    closing = asyncio.create_task(
        thread.finish(lambda: asyncio.run_coroutine_threadsafe(_set(closed), loop).result(30))
    )
    for _ in range(1 + steps):
        await asyncio.sleep(0)

    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    may_read.set()

    await asyncio.wait_for(closed.wait(), 30)
    assert await reading


@pytest.mark.asyncio
@pytest.mark.parametrize("steps", range(3))
async def test_a_call_that_must_be_complete_ends_before_its_cancellation_is_raised(
    steps: int,
) -> None:
    made, may_end = list[str](), threading.Event()

    def recover() -> None:
        assert may_end.wait(30)
        made.append("recovered")

    recovering = asyncio.create_task(WorkerThread().complete(recover))
    for _ in range(1 + steps):
        await asyncio.sleep(0)
    for _ in range(2):
        recovering.cancel()
        await asyncio.sleep(0)
    waits = not recovering.done()
    may_end.set()
    await asyncio.wait([recovering])

    assert waits
    assert recovering.cancelled()
    assert made == ["recovered"]


@pytest.mark.asyncio
async def test_a_call_that_must_be_complete_returns_its_result_and_raises_its_error() -> None:
    thread = WorkerThread()

    assert await thread.complete(lambda: 5) == 5
    with pytest.raises(ZeroDivisionError):
        await thread.complete(lambda: 1 // 0)


async def _set(event: asyncio.Event) -> None:
    event.set()
