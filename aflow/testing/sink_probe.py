"""Calls of a sink as a job makes them, for checks."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import timedelta
from typing import Any, Final, Generic, TypeAlias, TypeVar

from aflow.connect import Batch, Committable, Delivery, Sink, Writer, WriterContext
from aflow.errors import shown
from aflow.model.codecs import PLAIN, CodecError
from aflow.testing.secret_checks import Secrets
from aflow.testing.time_limit import in_time

S = TypeVar("S", bound=Sink[Any])
R = TypeVar("R")

#: The name of the sink in the flow.
_STEP: Final = "out"

#: Sizes of the written batches, in a cycle.
_SIZES: Final = (1, 3, 2, 5)

Visible: TypeAlias = Callable[[S], Iterable[object] | Awaitable[Iterable[object]]]
"""Returns the visible records of a sink."""


class SinkProbe(Generic[S]):
    """Make sinks and call them with a time limit. Raises ``AssertionError`` for results that break the contract."""

    def __init__(
        self,
        make: Callable[[], S],
        visible: Visible[S],
        patience: timedelta,
        secrets: Secrets = Secrets(()),  # noqa: B008  # it is immutable
    ) -> None:
        self.make = make
        self._secrets = secrets
        self._visible = visible
        self._patience = patience
        first = make()
        self.name = type(first).__name__
        self.delivery: Delivery = first.delivery

    @asynccontextmanager
    async def opened(
        self, sink: S, *, subtask: int = 0, parallelism: int = 1, checkpoints: bool = False
    ) -> AsyncGenerator[Writer[Any]]:
        context = WriterContext(
            _STEP, subtask=subtask, parallelism=parallelism, checkpoints=checkpoints
        )
        writer = await self._in_time(sink.writer(context), "writer()")
        try:
            yield writer
        finally:
            await self._in_time(writer.close(), "close()")

    @asynccontextmanager
    async def all_opened(self, sink: S, parallelism: int) -> AsyncGenerator[list[Writer[Any]]]:
        """Open the writers of a job that takes checkpoints."""
        async with AsyncExitStack() as open_writers:
            yield [
                await open_writers.enter_async_context(
                    self.opened(sink, subtask=number, parallelism=parallelism, checkpoints=True)
                )
                for number in range(parallelism)
            ]

    async def write(self, writer: Writer[Any], records: list[object]) -> None:
        """Write records in batches of several sizes; a record's index is its timestamp."""
        start = 0
        while start < len(records):
            stop = start + _SIZES[start % len(_SIZES)]
            batch = Batch(records[start:stop], list(range(start, min(stop, len(records)))))
            before = batch.slice(0, len(batch))
            taken = writer.write(batch)
            if inspect.isawaitable(taken):
                await self._in_time(taken, "write()")
            elif taken is not None:
                raise self.broken(f"write() returned {shown(taken)}; None or an awaitable is due")
            if batch != before:
                raise self.broken(
                    f"write() changed its batch from {shown(before)} to {shown(batch)}; others read it too"
                )
            start = stop

    async def flush(self, writer: Writer[Any]) -> None:
        await self._in_time(writer.flush(), "flush()")

    async def prepare(self, writer: Writer[Any], checkpoint: int) -> list[Committable]:
        """Return the committables, as they are read back from a checkpoint: one or none."""
        found = await self._in_time(writer.prepare(checkpoint), f"prepare({checkpoint})")
        if found is None:
            return []
        self._secrets.check(self.name, "a committable, which checkpoints store,", found)
        try:
            return [PLAIN.decode(PLAIN.encode(found))]
        except CodecError as exc:
            raise self.broken(
                f"prepare() returned {shown(found)}, which cannot be stored in a checkpoint: {exc}"
            ) from exc

    async def commit(self, writer: Writer[Any], committables: Sequence[Committable]) -> None:
        for one in committables:
            await self._in_time(writer.commit(one), "commit()")

    async def recover(self, sink: S, committables: Sequence[Committable]) -> None:
        await self._in_time(sink.recover(_STEP, committables), "recover()")

    async def seen(self, sink: S) -> list[object]:
        """Return the visible records."""
        seen = self._visible(sink)
        if inspect.isawaitable(seen):
            return list(await self._in_time(seen, "visible()"))
        return list(seen)

    async def expect(self, sink: S, records: Sequence[object], when: str) -> None:
        """Raise unless exactly ``records`` are visible, in order."""
        seen = await self.seen(sink)
        if seen != list(records):
            raise self.broken(
                f"{when} {shown(seen)} ({len(seen)} records) is visible instead of {shown(list(records))} "
                f"({len(records)} records)"
            )

    def broken(self, how: str) -> AssertionError:
        return AssertionError(f"{self.name} breaks the contract of sinks: {how}")

    async def _in_time(self, work: Awaitable[R], what: str) -> R:
        return await in_time(work, self._patience, f"{self.name}: {what}")
