"""Reading a source and writing a sink without a job."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import TypeVar

from aflow.connect import Chunk, Position, Reader, Sink, Source, Writer, WriterContext

T = TypeVar("T")


@asynccontextmanager
async def opened(
    source: Source[T], *, position: Position | None = None
) -> AsyncGenerator[Reader[T], None]:
    """Open the reader of the only split; close it after the block."""
    (split,) = await source.splits()
    reader = await source.reader(split, position)
    try:
        yield reader
    finally:
        await reader.close()


async def chunks(
    source: Source[T], *, position: Position | None = None, limit: int = 1024
) -> list[Chunk[T]]:
    """Return all chunks up to the end."""
    found: list[Chunk[T]] = []
    async with opened(source, position=position) as reader:
        while (chunk := await reader.read(limit)) is not None:
            found.append(chunk)
    return found


async def values(source: Source[T], *, position: Position | None = None) -> list[T]:
    """Return all values up to the end."""
    return [value for chunk in await chunks(source, position=position) for value in chunk.values]


async def writer_of(sink: Sink[T], *, subtask: int = 0, parallelism: int = 1) -> Writer[T]:
    """Open the writer of one subtask of a step named ``out``."""
    return await sink.writer(WriterContext("out", subtask=subtask, parallelism=parallelism))


async def settle() -> None:
    """Run everything that is ready."""
    for _ in range(5):
        await asyncio.sleep(0)


@asynccontextmanager
async def running(work: Coroutine[object, object, T]) -> AsyncGenerator[asyncio.Task[T], None]:
    """Run ``work`` in a task until it waits; it must have ended at the end of the block."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(work)
        await settle()
        yield task


async def eventually(holds: Callable[[], bool], *, seconds: float = 300) -> None:
    """Wait until ``holds``, in real time. Raises ``TimeoutError`` after so many seconds."""
    async with asyncio.timeout(seconds):
        while not holds():  # noqa: ASYNC110 - the condition is in the folders and results of a job
            await asyncio.sleep(0.001)
