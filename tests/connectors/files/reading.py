"""Drives the sources and sinks of files without a job."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any, TypeVar

import pytest

from aflow.connect import Batch, Chunk, Committable, Sink, Source, Split, Writer, WriterContext
from aflow.model.codecs import PLAIN

T = TypeVar("T")


async def chunks(
    source: Source[T], *, limits: Sequence[int] = (1000,), reopen: bool = False
) -> list[Chunk[T]]:
    """All chunks of ``source``, read with ``limits`` in turn, optionally with a new reader each."""
    found: list[Chunk[T]] = []
    for split in await source.splits():
        found += await chunks_of_split(source, split, limits=limits, reopen=reopen)
    return found


async def chunks_of_split(
    source: Source[T], split: Split, *, limits: Sequence[int], reopen: bool
) -> list[Chunk[T]]:
    found: list[Chunk[T]] = []
    reader = await source.reader(split, None)
    try:
        for limit in cycle(limits):
            chunk = await reader.read(limit)
            if chunk is None:
                break
            assert 0 < len(chunk.values) + len(chunk.rejected) <= limit
            found.append(chunk)
            if reopen:
                await reader.close()
                reader = await source.reader(split, chunk.position)
    finally:
        await reader.close()
    return found


def files_in(folder: Path) -> list[str]:
    """Names of all files but manifests, without the owner ids in names of hidden ones."""
    names = (path.name for path in folder.iterdir() if not path.name.endswith(".manifest"))
    return sorted(re.sub(r"\.[0-9a-f]{16}\.", ".", name) for name in names)


def fill_disk(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    """Redirect the output of a sink for ``file`` to a full disk."""

    def zeros(size: int) -> str:
        return "0" * (2 * size)

    monkeypatch.setattr("secrets.token_hex", zeros)
    monkeypatch.setattr("aflow_connectors.files.output.manifest._NEW", "wb")
    file.with_name(f".{file.name}.{'0' * 16}.writing").symlink_to("/dev/full")


async def put(writer: Writer[Any], *values: object) -> None:
    writing = writer.write(Batch(list(values)))
    if writing is not None:
        await writing


async def prepared(writer: Writer[Any], checkpoint: int, *values: object) -> Committable:
    """Committables for ``values``, after storage."""
    if values:
        await put(writer, *values)
    return PLAIN.decode(PLAIN.encode(await writer.prepare(checkpoint)))


async def records(source: Source[T]) -> list[T]:
    return values(await chunks(source))


def values(found: Iterable[Chunk[T]]) -> list[T]:
    return [value for chunk in found for value in chunk.values]


def rejected(found: Iterable[Chunk[object]]) -> list[tuple[str, str, bytes]]:
    return [(bad.place, bad.reason, bad.raw) for chunk in found for bad in chunk.rejected]


async def write(
    sink: Sink[T], *batches: Sequence[T], subtask: int = 0, parallelism: int = 1
) -> None:
    """All of ``batches``, up to the end of the input."""
    context = WriterContext("out", subtask=subtask, parallelism=parallelism)
    writer = await sink.writer(context)
    try:
        for batch in batches:
            writing = writer.write(Batch(list(batch)))
            if writing is not None:
                await writing
        await writer.flush()
    finally:
        await writer.close()
