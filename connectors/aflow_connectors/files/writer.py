"""Writes records that were encoded to bytes, in large blocks in a worker thread."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from aflow.connect import Batch, Writer, WriterContext
from aflow.errors import FlowDefinitionError
from aflow_connectors.files.arguments import checked_path
from aflow_connectors.files.blocking import Blocking
from aflow_connectors.files.output import OutputFile, Target

T = TypeVar("T")

#: Bytes that are kept before they are written.
_BUFFER: Final = 1 << 20


class BytesWriter(Writer[T]):
    """Encodes each batch at once, and writes when a mebibyte has come together."""

    def __init__(
        self,
        output: OutputFile,
        blocking: Blocking,
        encode: Callable[[list[T]], bytes],
        *,
        head: bytes = b"",
    ) -> None:
        self._output = output
        self._blocking = blocking
        self._encode = encode
        self._buffer = [head]
        self._buffered = len(head)

    # Hot: `python -m bench files`.
    def write(self, batch: Batch[T]) -> Awaitable[None] | None:
        data = self._encode(batch.values)
        self._buffer.append(data)
        self._buffered += len(data)
        return None if self._buffered < _BUFFER else self._write_buffer()

    async def flush(self) -> None:
        """Give the file its name: nothing can be written after that."""
        await self._write_buffer()
        await self._blocking.run(self._output.finish)

    async def close(self) -> None:
        await self._blocking.finish(self._output.discard)

    async def _write_buffer(self) -> None:
        data, self._buffer, self._buffered = b"".join(self._buffer), [], 0
        if data:
            await self._blocking.run(partial(self._output.write, data))


async def open_output(
    path: Path, context: WriterContext, *, suffix: str, overwrite: bool
) -> tuple[OutputFile, Blocking]:
    """Begin the file of one writer. Raises ``SinkError``; then, and when cancelled, nothing is left behind."""
    target = Target.of(path, context, suffix=suffix)
    output = OutputFile(target, sink=context.name, overwrite=overwrite)
    blocking = Blocking()
    try:
        await blocking.run(output.open)
    except BaseException:
        await blocking.finish(output.discard)
        raise
    return output, blocking


def checked_output(sink: str, path: object) -> Path:
    """``path`` as a Path, or ``FlowDefinitionError``."""
    output = checked_path(sink, path)
    if not output.name:
        raise FlowDefinitionError(f"{sink}: {str(path)!r} names no file and no folder")
    return output
