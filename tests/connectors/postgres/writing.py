"""Writers to a test database without a job."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

from aflow.connect import Batch, Committable, Sink, Writer, WriterContext
from aflow.model.codecs import PLAIN
from aflow_connectors.reconnect import Reconnect

#: Delays of tests.
QUICK: Final = Reconnect(
    delay=timedelta(milliseconds=1),
    most=timedelta(milliseconds=20),
    give_up_after=timedelta(seconds=20),
)


async def opened(sink: Sink[Any], *, subtask: int = 0, checkpoints: bool = True) -> Writer[Any]:
    return await sink.writer(WriterContext("out", subtask=subtask, checkpoints=checkpoints))


async def begun(sink: Sink[Any], *committables: Committable) -> Writer[Any]:
    """The writer of a job that starts fresh, or continues with ``committables``."""
    await sink.recover("out", committables)
    return await opened(sink)


async def put(writer: Writer[Any], *values: object) -> None:
    writing = writer.write(Batch(list(values)))
    if writing is not None:
        await writing


async def prepared(writer: Writer[Any], checkpoint: int, *values: object) -> Committable:
    """Committables for ``values``, after storage."""
    if values:
        await put(writer, *values)
    preparing = writer.prepare(checkpoint)
    return PLAIN.decode(PLAIN.encode(await preparing))


async def written(sink: Sink[Any], *values: object) -> None:
    """Write all ``values`` in a batch, without checkpoints."""
    writer = await opened(sink, checkpoints=False)
    try:
        await put(writer, *values)
        await writer.flush()
    finally:
        await writer.close()
