"""A small database, and writers to it without a job."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from aflow.connect import Batch, Committable, Sink, Writer, WriterContext
from aflow.model.codecs import PLAIN


def made(path: Path, *statements: str) -> Path:
    """A database in which ``statements`` have run."""
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()
    return path


def rows(path: Path, sql: str = "SELECT * FROM t ORDER BY rowid") -> list[tuple[Any, ...]]:
    """Committed rows."""
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchall()


async def opened(sink: Sink[Any], *, subtask: int = 0, checkpoints: bool = True) -> Writer[Any]:
    return await sink.writer(WriterContext("out", subtask=subtask, checkpoints=checkpoints))


async def put(writer: Writer[Any], *values: object) -> None:
    writing = writer.write(Batch(list(values)))
    if writing is not None:
        await writing


async def prepared(writer: Writer[Any], checkpoint: int, *values: object) -> Committable:
    """Committables for ``values``, after storage."""
    if values:
        await put(writer, *values)
    return PLAIN.decode(PLAIN.encode(await writer.prepare(checkpoint)))


async def written(sink: Sink[Any], *batches: Sequence[object]) -> None:
    """All of ``batches``, without checkpoints."""
    writer = await opened(sink, checkpoints=False)
    try:
        for batch in batches:
            await put(writer, *batch)
        await writer.flush()
    finally:
        await writer.close()
