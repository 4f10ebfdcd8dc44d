"""Readers of a group of a stream, and the state of the group, for tests."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from aflow.connect import Chunk, Reader
from aflow_connectors.reconnect import Reconnect
from aflow_connectors.redis import RedisSource
from tests.connectors.redis.server import TestServer

QUICK = Reconnect(delay=timedelta(milliseconds=1), most=timedelta(milliseconds=50))


def shared(
    server: TestServer, stream: str, consumer: str = "a", **options: Any
) -> RedisSource[dict[str, str]]:
    url = options.pop("url", server.url)
    return RedisSource(url, stream, group="group", consumer=consumer, **options)


async def opened(source: RedisSource[Any], position: object = None) -> Reader[Any]:
    return await source.reader((await source.splits())[0], position)


async def read(reader: Reader[Any], count: int) -> tuple[list[int], Any]:
    """Read ``count`` numbers or to the end. Return them, and the position after them."""
    found: list[int] = []
    position: Any = None
    async with asyncio.timeout(300):
        while len(found) < count and (chunk := await reader.read(count - len(found))) is not None:
            found += [int(one["n"]) for one in chunk.values]
            position = chunk.position
    return found, position


async def read_all(source: RedisSource[Any], position: object = None) -> list[int]:
    reader = await opened(source, position)
    try:
        return (await read(reader, 1_000_000))[0]
    finally:
        await reader.close()


def fill(server: TestServer, stream: str, *numbers: int) -> None:
    server.add(stream, *({"n": n} for n in numbers))


def pending(server: TestServer, stream: str) -> int:
    return int(server.command("XPENDING", stream, "group")["pending"])


async def next_chunk(reader: Reader[Any], position: Any) -> Chunk[Any] | None:
    """Return the next chunk, while checkpoints at ``position`` are completed again and again."""
    reading = asyncio.create_task(reader.read(7))
    while not reading.done():
        await reader.on_checkpoint_completed(position)
        await asyncio.sleep(0.01)
    return await reading


def events(caplog: pytest.LogCaptureFixture) -> list[object]:
    return [event for one in caplog.records if (event := getattr(one, "event", None))]
