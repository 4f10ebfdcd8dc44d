"""Readers of changes without a job."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from aflow.connect import Chunk, Position, Reader
from aflow.model.codecs import PLAIN
from aflow_connectors.postgres import Change, PostgresChanges
from aflow_connectors.postgres.changes.position import decoded

T = TypeVar("T")


async def opened(source: PostgresChanges[T], position: Position | None = None) -> Reader[Change[T]]:
    """A reader, at a position that was stored in a checkpoint."""
    (split,) = await source.splits()
    return await source.reader(split, PLAIN.decode(PLAIN.encode(position)))


async def received(reader: Reader[Change[T]], count: int) -> list[Chunk[Change[T]]]:
    """Chunks, until they have ``count`` changes."""
    chunks: list[Chunk[Change[T]]] = []
    async with asyncio.timeout(300):
        while sum(len(chunk.values) for chunk in chunks) < count:
            chunk = await reader.read(1000)
            assert chunk is not None
            chunks.append(chunk)
    return chunks


async def changes(reader: Reader[Change[T]], count: int) -> list[Change[T]]:
    return [one for chunk in await received(reader, count) for one in chunk.values]


async def snapshot_of(reader: Reader[Change[T]]) -> list[Change[T]]:
    """The rows of the snapshot, which holds locks until it is read."""
    rows: list[Change[T]] = []
    async with asyncio.timeout(300):
        while True:
            chunk = await reader.read(1000)
            assert chunk is not None
            rows += chunk.values
            if decoded(chunk.position, "").snapshot is None:
                return rows


async def all_changes(source: PostgresChanges[T]) -> list[Chunk[Change[T]]]:
    """The chunks of a source that ends."""
    reader = await opened(source)
    chunks: list[Chunk[Change[T]]] = []
    try:
        while (chunk := await reader.read(1000)) is not None:
            chunks.append(chunk)
    finally:
        await reader.close()
    return chunks


def values(chunks: list[Chunk[Any]]) -> list[Any]:
    return [one for chunk in chunks for one in chunk.values]
