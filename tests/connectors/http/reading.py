"""Reads sources of HTTP services directly, without a job."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Final

import aflow as af
from aflow.connect import Position, Reader, Source, Split
from aflow.graph.guarantee import RecoveryMode, after_crash
from aflow.testing import CollectSink
from aflow_connectors.reconnect import Reconnect
from tests.runtime.builtin_connectors.helpers import eventually

#: Attempts follow each other quickly, and end soon.
FAST: Final = Reconnect(
    delay=timedelta(milliseconds=1),
    most=timedelta(milliseconds=5),
    give_up_after=timedelta(seconds=5),
)

HASTY: Final = Reconnect(delay=FAST.delay, most=FAST.most, give_up_after=timedelta(milliseconds=50))


@asynccontextmanager
async def opened(
    source: Source[Any], position: Position | None = None
) -> AsyncGenerator[Reader[Any]]:
    """Open the only split of ``source``."""
    reader = await source.reader(Split("url"), position)
    try:
        yield reader
    finally:
        await reader.close()


async def read(reader: Reader[Any], count: int, limit: int = 100) -> list[Any]:
    """Return ``count`` records, or those up to the end."""
    values: list[Any] = []
    while len(values) < count:
        chunk = await reader.read(min(limit, count - len(values)))
        if chunk is None:
            break
        values += chunk.values
    return values


async def read_nothing(reader: Reader[Any], until: Callable[[], bool]) -> None:
    """Read ``until`` returns True, in vain."""
    reading = asyncio.create_task(read(reader, 1))
    await eventually(until)
    was_done = reading.done()
    reading.cancel()
    await asyncio.wait([reading])
    assert not was_done


async def read_from(source: Source[Any], count: int, position: Position | None = None) -> list[Any]:
    """Return ``count`` records after ``position``, or those up to the end."""
    async with opened(source, position) as reader:
        return await read(reader, count)


def reason_after_a_crash(source: Source[Any]) -> str:
    """Return what the plan of a job with checkpoints says about its only sink."""
    flow = af.Flow("test")
    flow.source(source, name="source").to(CollectSink())
    (entry,) = after_crash(flow.plan(), RecoveryMode.EXACTLY_ONCE)
    return entry.reason
