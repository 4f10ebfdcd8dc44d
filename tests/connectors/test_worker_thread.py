"""Blocking calls on one file never overlap, even if one is cancelled."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from threading import Event

import anyio
import pytest

from aflow.connect import Split, WriterContext
from aflow_connectors.files import JsonLinesSink, TextSource
from aflow_connectors.worker_thread import WorkerThread


@pytest.mark.asyncio
async def test_closing_waits_for_the_call_that_was_cancelled() -> None:
    blocking = WorkerThread()
    entered, go_on = asyncio.Event(), Event()
    loop = asyncio.get_running_loop()
    done: list[str] = []

    def read() -> None:
        loop.call_soon_threadsafe(entered.set)
        go_on.wait()
        done.append("read")

    async with asyncio.TaskGroup() as group:
        reading = group.create_task(blocking.run(read))
        await entered.wait()
        reading.cancel()
        closing = group.create_task(blocking.finish(lambda: done.append("closed")))
        # Time enough for another thread to close, if nothing held it up.
        for _ in range(1000):
            await asyncio.sleep(0)
        assert done == []
        go_on.set()
        await closing

    assert done == ["read", "closed"]
    assert reading.cancelled()


@pytest.mark.asyncio
async def test_a_file_is_closed_in_a_scope_that_is_cancelled(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("a\n")
    source = TextSource(file)
    reader = await source.reader((await source.splits())[0], None)
    await reader.read(1)
    writer = await JsonLinesSink[int](tmp_path / "out.jsonl").writer(WriterContext("out"))

    with anyio.CancelScope() as scope:
        scope.cancel()
        await reader.close()
        await writer.close()

    # A file that stays open is reported by Python, and that fails the test.
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


@pytest.mark.asyncio
async def test_no_line_is_lost_when_a_read_is_cancelled(tmp_path: Path) -> None:
    pipe = tmp_path / "a.txt"
    os.mkfifo(pipe)
    reader = await TextSource(pipe).reader(Split(str(pipe)), None)

    async with asyncio.TaskGroup() as group:
        reading = group.create_task(reader.read(10))
        writing = await when_read(pipe)
        reading.cancel()
    os.write(writing, b"a\nb\n")
    os.close(writing)
    chunk = await reader.read(10)
    await reader.close()

    assert reading.cancelled()
    assert chunk is not None
    assert chunk.values == ["a", "b"]


async def when_read(pipe: Path) -> int:
    """Descriptor for writing into ``pipe``, once its other end is open."""
    while True:
        try:
            return os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            await asyncio.sleep(0)


@pytest.mark.asyncio
async def test_a_sink_that_is_cancelled_while_it_opens_leaves_no_files(tmp_path: Path) -> None:
    sink = JsonLinesSink[int](tmp_path / "out.jsonl")

    async with asyncio.TaskGroup() as group:
        opening = group.create_task(sink.writer(WriterContext("out")))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        opening.cancel()

    assert opening.cancelled()
    assert list(tmp_path.iterdir()) == []
