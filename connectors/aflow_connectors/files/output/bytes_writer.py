"""Writer of records that were encoded to bytes, in large blocks in a worker thread."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, TypeVar

from aflow.connect import Batch, Committable, Writer
from aflow_connectors.files.output.output_file import SinkOutput
from aflow_connectors.worker_thread import WorkerThread

T = TypeVar("T")

#: Bytes that are buffered before they are written.
_BUFFER: Final = 1 << 20


def _nothing() -> bytes:
    return b""


class BytesWriter(Writer[T]):
    """Encodes each batch at once, and writes when a mebibyte is buffered. Each file starts with ``head()``."""

    def __init__(
        self,
        output: SinkOutput,
        blocking: WorkerThread,
        encode: Callable[[list[T]], bytes],
        *,
        head: Callable[[], bytes] = _nothing,
    ) -> None:
        self._output = output
        self._blocking = blocking
        self._encode = encode
        self._head = head
        self._buffer: list[bytes] = []
        self._buffered = 0
        #: False while the next record begins a file.
        self._begun = False
        if not output.in_pieces:  # then there is a file, also without a record
            self._begin()

    # Hot: `python -m bench files`.
    def write(self, batch: Batch[T]) -> Awaitable[None] | None:
        if not self._begun:
            self._begin()
        data = self._encode(batch.values)
        self._buffer.append(data)
        self._buffered += len(data)
        return None if self._buffered < _BUFFER else self._write_buffer()

    async def prepare(self, checkpoint: int) -> Committable:
        """End the file: later records are written into another one."""
        await self._write_buffer()
        committable = await self._blocking.run(partial(self._output.prepare, checkpoint))
        self._begun = False
        return committable

    async def commit(self, committable: Committable) -> None:
        await self._blocking.run(partial(self._output.commit, committable))

    async def flush(self) -> None:
        """Publish the file under its name; nothing can be written after that."""
        await self._write_buffer()
        await self._blocking.run(self._output.finish)

    async def close(self) -> None:
        await self._blocking.finish(self._output.discard)

    def _begin(self) -> None:
        self._begun = True
        self._buffer.append(self._head())

    async def _write_buffer(self) -> None:
        data, self._buffer, self._buffered = b"".join(self._buffer), [], 0
        if data:
            await self._blocking.run(partial(self._output.write, data))
