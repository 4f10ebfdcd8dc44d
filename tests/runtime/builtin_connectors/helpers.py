"""Reading a source and writing a sink without a job."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import asynccontextmanager
from typing import TypeVar

from aflow.connect import Chunk, Position, Reader, Sink, Source, Writer, WriterContext

T = TypeVar("T")


@asynccontextmanager
async def opened(
    source: Source[T], *, position: Position | None = None
) -> AsyncGenerator[Reader[T], None]:
    """The reader of the only split, closed afterwards."""
    (split,) = await source.splits()
    reader = await source.reader(split, position)
    try:
        yield reader
    finally:
        await reader.close()


async def chunks(
    source: Source[T], *, position: Position | None = None, limit: int = 1024
) -> list[Chunk[T]]:
    """All chunks up to the end."""
    found: list[Chunk[T]] = []
    async with opened(source, position=position) as reader:
        while (chunk := await reader.read(limit)) is not None:
            found.append(chunk)
    return found


async def values(source: Source[T], *, position: Position | None = None) -> list[T]:
    """All values up to the end."""
    return [value for chunk in await chunks(source, position=position) for value in chunk.values]


async def writer_of(sink: Sink[T], *, subtask: int = 0, parallelism: int = 1) -> Writer[T]:
    """The writer of one subtask of a step named ``out``."""
    return await sink.writer(WriterContext("out", subtask=subtask, parallelism=parallelism))


async def settle() -> None:
    """Let everything run that can run."""
    for _ in range(5):
        await asyncio.sleep(0)


@asynccontextmanager
async def running(work: Coroutine[object, object, T]) -> AsyncGenerator[asyncio.Task[T], None]:
    """``work`` as a task that has gone as far as it can; it must have ended at the end of the block."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(work)
        await settle()
        yield task
