"""Virtual time with threads and sockets: it is held while a thread works."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta

import anyio
import anyio.from_thread
import anyio.to_thread
import pytest

from aflow.testing.virtual_time import (
    NothingCanHappen,
    VirtualTimeLoop,
    hold,
    run,
    settle,
    virtual_time,
)

_MOMENT = timedelta(milliseconds=30)


def _work() -> str:
    time.sleep(_MOMENT.total_seconds())
    return "done"


async def _lines_read_in_a_thread() -> AsyncIterator[str]:
    while True:
        yield await anyio.to_thread.run_sync(_work)


async def _first_line() -> str:
    async for line in _lines_read_in_a_thread():
        return line
    raise AssertionError


async def _with_a_limiter() -> str:
    return await anyio.to_thread.run_sync(_work, limiter=anyio.CapacityLimiter(1))


async def _by_a_thread_of_its_own() -> str:
    answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def work() -> None:
        answer.get_loop().call_soon_threadsafe(answer.set_result, _work())

    thread = threading.Thread(target=work)
    thread.start()
    with hold():
        result = await answer
    thread.join()
    return result


@pytest.mark.parametrize(
    "wait",
    [
        lambda: asyncio.to_thread(_work),
        lambda: anyio.to_thread.run_sync(_work),
        _first_line,
        _with_a_limiter,
        _by_a_thread_of_its_own,
    ],
    ids=["asyncio", "anyio", "anyio in an async generator", "anyio with a limiter", "held"],
)
@virtual_time
async def test_virtual_time_does_not_advance_while_a_thread_works(
    wait: Callable[[], Awaitable[str]],
) -> None:
    loop = asyncio.get_running_loop()
    ticks: list[float] = []
    loop.call_later(0.001, lambda: ticks.append(loop.time()))

    result = await wait()

    assert (result, ticks, loop.time()) == ("done", [], 0.0)
    await asyncio.sleep(1)
    assert ticks == [0.001]


@virtual_time
async def test_an_idle_worker_of_anyio_does_not_hold_time() -> None:
    await anyio.to_thread.run_sync(_work)

    await asyncio.sleep(3600)

    assert asyncio.get_running_loop().time() == 3600.0


@virtual_time
async def test_a_wait_for_a_token_of_a_limiter_is_in_virtual_time() -> None:
    limiter = anyio.CapacityLimiter(1)

    async def occupy() -> None:
        async with limiter:
            await asyncio.sleep(60)

    async with asyncio.TaskGroup() as group:
        group.create_task(anyio.to_thread.run_sync(lambda: None))  # another thread exists after it
        group.create_task(occupy())
        await settle()
        await anyio.to_thread.run_sync(lambda: None, limiter=limiter)

    assert asyncio.get_running_loop().time() == 60.0


@virtual_time
async def test_many_concurrent_jobs_return_before_time_advances() -> None:
    async with asyncio.TaskGroup() as group:
        jobs = [group.create_task(asyncio.to_thread(pow, n, 2)) for n in range(20)]
        jobs += [group.create_task(anyio.to_thread.run_sync(pow, n, 2)) for n in range(20)]

    assert [job.result() for job in jobs] == [n * n for n in range(20)] * 2
    assert asyncio.get_running_loop().time() == 0.0


@virtual_time
async def test_a_job_that_is_no_longer_awaited_does_not_hold_time() -> None:
    release = threading.Event()
    job = asyncio.ensure_future(asyncio.to_thread(release.wait))
    await asyncio.sleep(0)

    job.cancel()
    await asyncio.sleep(5)
    release.set()

    assert job.cancelled()
    assert asyncio.get_running_loop().time() == 5.0


def test_a_thread_that_waits_for_virtual_time_is_named_when_patience_ends() -> None:
    async def thread_waits_for_the_loop() -> None:
        await anyio.to_thread.run_sync(lambda: anyio.from_thread.run(anyio.sleep, 5))

    with pytest.raises(NothingCanHappen, match=r"Waited 0\.03 s of real time for a thread"):
        run(thread_waits_for_the_loop, patience=_MOMENT)


# Sockets


@virtual_time
async def test_bytes_through_a_socket_take_no_virtual_time() -> None:
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours)
    theirs.sendall(b"ping\n")

    line = await reader.readline()

    assert line == b"ping\n"
    assert asyncio.get_running_loop().time() == 0.0
    writer.close()
    await writer.wait_closed()
    theirs.close()


@virtual_time
async def test_with_an_open_socket_and_no_timer_the_world_is_waited_for() -> None:
    ours, theirs = socket.socketpair()
    reader, writer = await asyncio.open_connection(sock=ours)
    later = threading.Timer(_MOMENT.total_seconds(), theirs.sendall, [b"ping\n"])
    later.start()

    assert await reader.readline() == b"ping\n"

    later.join()
    writer.close()
    await writer.wait_closed()
    theirs.close()


@virtual_time
async def test_a_thread_is_noticed_by_a_loop_that_is_never_idle() -> None:
    working = asyncio.ensure_future(anyio.to_thread.run_sync(_work))

    while not working.done():  # noqa: ASYNC110  # busy on purpose
        await asyncio.sleep(0)

    assert working.result() == "done"


@virtual_time
async def test_a_signal_is_noticed_by_a_loop_that_is_never_idle() -> None:
    loop, noticed = asyncio.get_running_loop(), asyncio.Event()
    loop.add_signal_handler(signal.SIGUSR1, noticed.set)

    os.kill(os.getpid(), signal.SIGUSR1)
    while not noticed.is_set():  # noqa: ASYNC110  # busy on purpose
        await asyncio.sleep(0)

    assert loop.remove_signal_handler(signal.SIGUSR1)
    assert loop.time() == 0


def test_no_file_is_open_after_a_run() -> None:
    leftover: list[asyncio.Task[object]] = []

    async def main() -> VirtualTimeLoop:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualTimeLoop)
        await asyncio.to_thread(_work)
        await anyio.to_thread.run_sync(_work)
        leftover.append(loop.create_task(asyncio.Event().wait()))
        return loop

    run(main)  # what is loaded on first use is not a leak
    _join_leaving_workers()
    files, threads = set(os.listdir("/proc/self/fd")), threading.active_count()
    loop = run(main)

    assert loop.is_closed()
    assert all(task.cancelled() for task in leftover)
    assert set(os.listdir("/proc/self/fd")) == files
    _join_leaving_workers()
    assert threading.active_count() <= threads


def _join_leaving_workers() -> None:
    # anyio stops its workers when the task that started them ends, but does not wait for them.
    for thread in threading.enumerate():
        if thread is not threading.current_thread():
            thread.join(1)
