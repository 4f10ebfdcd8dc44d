"""The end of a chain: hands batches to the writer of a sink, one at a time and in order."""

from __future__ import annotations

from asyncio import CancelledError
from collections import deque
from collections.abc import Awaitable, Callable
from inspect import iscoroutine
from typing import Any, Final

from aflow.connect import Writer
from aflow.errors import AflowError, SinkError
from aflow.model.batch import Batch
from aflow.operators.base import Operator

#: Records that may wait while the writer is busy before the task takes no more input.
_CAPACITY: Final = 2048


class SinkOperator(Operator):
    """Gives each batch to the writer at once if it is free, and keeps what comes while it is busy.

    The operator never waits. When ``write`` returned an awaitable, it stands in ``writing``; the runtime awaits it in a
    coroutine of its own and then posts ``written``, which goes on with the batches that came meanwhile.
    """

    def __init__(self, writer: Writer[Any]) -> None:
        self.writer = writer
        #: What the writer is doing; None while it is free. Batches wait only while it is not None.
        self.writing: Awaitable[None] | None = None
        self._waiting: deque[Batch[Any]] = deque()
        self._waiting_records = 0
        #: Called when ``writing`` was set; given by the runtime.
        self.on_writing: Callable[[], None] = _nobody

    @property
    def full(self) -> bool:
        """True while the task should take no more input."""
        return self._waiting_records >= _CAPACITY

    def process(self, batch: Batch[Any]) -> None:
        if self.writing is None:
            self._write(batch)
        else:
            self._waiting.append(batch)
            self._waiting_records += len(batch)

    def written(self) -> None:
        """The writer is free: go on."""
        self.writing = None
        while self.writing is None and self._waiting:
            batch = self._waiting.popleft()
            self._waiting_records -= len(batch)
            self._write(batch)

    def close(self) -> None:
        """Discard a write that nobody has begun to await: the job ended in that very moment."""
        if iscoroutine(self.writing):
            self.writing.close()

    def _write(self, batch: Batch[Any]) -> None:
        try:
            self.writing = self.writer.write(batch)
        except AflowError:
            raise
        except (Exception, CancelledError, SystemExit) as exc:
            # Synchronous, so a CancelledError comes from the writer and cancels nobody.
            raise self.failed(exc) from exc
        if self.writing is not None:
            self.on_writing()

    def failed(self, cause: BaseException) -> SinkError:
        """Describe ``cause``, raised by the writer."""
        return SinkError(f"sink {self.name!r} could not write: {type(cause).__name__}: {cause}")


def _nobody() -> None:
    """Stands in until the runtime wants to be told."""
