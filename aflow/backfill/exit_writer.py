"""Exits of a running fragment, as sinks of its task: a full outbox suspends the task, as any sink does."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Final

from aflow.backfill.blocks import ExitBatch, Outbox
from aflow.backfill.fragments import Exit
from aflow.connect import Writer
from aflow.errors import OperatorError
from aflow.model.batch import Batch
from aflow.model.time import Timestamp

#: Records emitted at once: passing them to another thread costs as much as processing some dozens.
TOGETHER: Final = 4096


class ExitWriter(Writer[Any]):
    """Buffers the records of one exit and emits them when ``together`` or more are buffered."""

    def __init__(self, exit: Exit, outbox: Outbox, together: int = TOGETHER) -> None:
        self._exit = exit
        self._outbox = outbox
        self._together = together
        self._values: list[Any] = []
        self._times: list[Timestamp] = []
        self._keys: list[Any] = []

    def write(self, batch: Batch[Any]) -> Awaitable[None] | None:
        self._values += batch.values
        if self._exit.reader is not None:
            self._add_columns(batch)
        return None if len(self._values) < self._together else self._outbox.put(self._gathered())

    async def flush(self) -> None:
        """Emit the remaining records."""
        if self._values and (taken := self._outbox.put(self._gathered())) is not None:
            await taken

    def _add_columns(self, batch: Batch[Any]) -> None:
        """Buffer the timestamps and keys that order records in an exchange."""
        if batch.timestamps is None or batch.keys is None:
            raise without_time(self._exit.origin.name, batch.values[0])
        self._times += batch.timestamps
        self._keys += batch.keys

    def _gathered(self) -> ExitBatch:
        batch = Batch(self._values, self._times or None, self._keys or None)
        self._values, self._times, self._keys = [], [], []
        return ExitBatch(self._exit, batch)


def without_time(step: str, record: object) -> OperatorError:
    """Return the error for a record without a timestamp, which has no position in history."""
    return OperatorError(
        f"step {step!r} sent records without a timestamp to a step that reads by key: history has no other order; "
        f"call .event_time(…) before it",
        operator=step,
        record=record,
    )
