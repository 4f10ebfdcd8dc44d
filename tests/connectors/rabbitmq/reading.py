"""Readers of a test server without a job."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from aflow.connect import Chunk, Reader, Source
from aflow_connectors.reconnect import Reconnect

#: Delays of tests.
QUICK: Final = Reconnect(
    delay=timedelta(milliseconds=1),
    most=timedelta(milliseconds=20),
    give_up_after=timedelta(seconds=60),
)


async def opened(source: Source[Any], position: object = None, split: int = 0) -> Reader[Any]:
    return await source.reader((await source.splits())[split], position)


async def read(reader: Reader[Any], count: int) -> tuple[list[Any], Any]:
    """Read ``count`` values or to the end. Return them, and the position after them."""
    found: list[Any] = []
    position: Any = None
    async with asyncio.timeout(300):
        while len(found) < count and (chunk := await reader.read(count - len(found))) is not None:
            found += chunk.values
            position = chunk.position
    return found, position


async def values(reader: Reader[Any], count: int) -> list[Any]:
    """Read ``count`` values or to the end, and close the reader."""
    try:
        return (await read(reader, count))[0]
    finally:
        await reader.close()


async def until_chunk(reader: Reader[Any], wanted: Callable[[Chunk[Any]], bool]) -> Chunk[Any]:
    async with asyncio.timeout(300):
        while True:
            chunk = await reader.read(100)
            assert chunk is not None
            if wanted(chunk):
                return chunk


async def all_chunks(reader: Reader[Any]) -> list[Chunk[Any]]:
    """Read to the end."""
    found: list[Chunk[Any]] = []
    async with asyncio.timeout(300):
        while (chunk := await reader.read(100)) is not None:
            found.append(chunk)
    return found
