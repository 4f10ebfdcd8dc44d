"""A transactional sink in memory, which makes exactly the committed values visible."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any, Generic, TypeVar, cast

from aflow.connect import Batch, Committable, Delivery, Sink, Writer, WriterContext

T = TypeVar("T")


class LedgerSink(Sink[T], Generic[T]):
    """Makes values visible when they are committed; committing twice changes nothing.

    ``delay`` are the seconds (of virtual time) that each batch takes, 0 for none.
    """

    delivery = Delivery.TRANSACTIONAL

    def __init__(self, *, delay: float = 0.0) -> None:
        self.delay = delay
        self._committed: dict[tuple[int, int], list[T]] = {}
        #: All calls of writers, in order.
        self.asked: list[str] = []

    @property
    def values(self) -> list[T]:
        """Return the visible values, by checkpoint and writer."""
        return [value for _, some in sorted(self._committed.items()) for value in some]

    def commit(self, committable: Committable) -> None:
        checkpoint, subtask, values = cast("tuple[int, int, list[T]]", committable)
        self._committed[checkpoint, subtask] = values

    async def writer(self, context: WriterContext) -> Writer[T]:
        return _LedgerWriter(self, context.subtask)

    async def recover(self, name: str, committables: Sequence[Committable]) -> None:
        self.asked.append("recover")
        for committable in committables:
            self.commit(committable)


class _LedgerWriter(Writer[T]):
    def __init__(self, ledger: LedgerSink[T], subtask: int) -> None:
        self._ledger = ledger
        self._subtask = subtask
        self._written: list[T] = []

    def write(self, batch: Batch[T]) -> Awaitable[None] | None:
        self._written += batch.values
        return asyncio.sleep(self._ledger.delay) if self._ledger.delay else None

    async def prepare(self, checkpoint: int) -> Committable | None:
        self._ledger.asked.append("prepare")
        written, self._written = self._written, []
        return (checkpoint, self._subtask, cast("list[Any]", written)) if written else None

    async def commit(self, committable: Committable) -> None:
        self._ledger.asked.append("commit")
        self._ledger.commit(committable)

    async def flush(self) -> None:
        self._ledger.asked.append("flush")
