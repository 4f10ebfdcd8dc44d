"""What every sink must keep to, as one check for the people who write sinks."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Final, Generic, TypeAlias, TypeVar

from aflow.connect import Batch, Sink, Writer, WriterContext
from aflow.errors import FlowDefinitionError, shown
from aflow.testing.leftovers import nothing_left_behind
from aflow.testing.waiting import PATIENCE, in_time

S = TypeVar("S", bound=Sink[Any])
R = TypeVar("R")

#: Sizes of the batches that are written, over and over.
_SIZES: Final = (1, 3, 2, 5)

Visible: TypeAlias = Callable[[S], Iterable[object] | Awaitable[Iterable[object]]]
"""Reads what others can see of a sink."""


async def check_sink(
    make_sink: Callable[[], S],
    visible: Visible[S],
    records: Sequence[object],
    *,
    patience: timedelta = PATIENCE,
) -> None:
    """Raise ``AssertionError`` if a sink breaks the contract of ``aflow.connect``; the message says how.

    ``make_sink`` makes a sink over a fresh, empty place, many times; ``visible(sink)``, plain or ``async``, reads what
    is there for everybody to see, and is called once for each sink. ``records`` are at least six different values. No
    call may take longer than ``patience`` of loop time.

    What was written must be visible after ``flush``, in order, and its batches unchanged; of a writer that is closed
    without flush nothing but a part from the beginning, and the sink can be opened again; writers of two subtasks do
    not disturb each other; a write that is cancelled can be followed by ``close``. Afterwards no task, thread or open
    file may be left.
    """
    if len(records) < 6 or any(records.count(one) > 1 for one in records):
        raise FlowDefinitionError(
            f"check_sink needs at least six records that are all different, not {shown(list(records))}"
        )
    check = _SinkCheck(make_sink, visible, list(records), patience)
    await (
        check.writing()
    )  # once before leftovers count: a library may open something at first use and keep it
    for scenario in check.scenarios():
        with nothing_left_behind(check.name):
            await scenario()


class _SinkCheck(Generic[S]):
    def __init__(
        self,
        make: Callable[[], S],
        visible: Visible[S],
        records: list[object],
        patience: timedelta,
    ) -> None:
        self._make = make
        self._visible = visible
        self._records = records
        self._patience = patience
        self.name = type(make()).__name__

    def scenarios(self) -> Sequence[Callable[[], Awaitable[None]]]:
        """All that is to be checked."""
        return (
            self.writing,
            self._writing_nothing,
            self._failing,
            self._opening_again,
            self._cancelling,
            self._two_writers,
        )

    async def writing(self) -> None:
        """What was written is visible after ``flush``, in order."""
        sink = self._make()
        async with self._opened(sink) as writer:
            await self._write(writer, self._records)
            await self._flush(writer)
            seen = await self._seen(sink)
        if seen != self._records:
            raise self._broken(
                f"after flush() {shown(seen)} ({len(seen)} records) is visible instead of what was written: "
                f"{shown(self._records)} ({len(self._records)} records)"
            )

    async def _writing_nothing(self) -> None:
        sink = self._make()
        async with self._opened(sink) as writer:
            await self._flush(writer)
        seen = await self._seen(sink)
        if seen:
            raise self._broken(f"nothing was written, and {shown(seen)} is visible")

    async def _failing(self) -> None:
        sink = self._make()
        async with self._opened(sink) as writer:
            await self._write(writer, self._records)
        seen = await self._seen(sink)
        if seen != self._records[: len(seen)]:
            raise self._broken(
                f"after close() without flush() {shown(seen)} is visible, which is no beginning of what was written"
            )

    async def _opening_again(self) -> None:
        """The same sink serves the next attempt after a failure; what the failed one left may be there too."""
        sink = self._make()
        half = self._records[: len(self._records) // 2]
        async with self._opened(sink) as writer:
            await self._write(writer, half)
        async with self._opened(sink) as writer:
            await self._write(writer, self._records)
            await self._flush(writer)
        seen = await self._seen(sink)
        before = seen[: -len(self._records)]
        if seen[-len(self._records) :] != self._records or before != half[: len(before)]:
            raise self._broken(
                f"opened again after a failure, {shown(seen)} is visible, which does not end with what was written "
                f"then: {shown(self._records)}"
            )

    async def _cancelling(self) -> None:
        async with self._opened(self._make()) as writer:
            try:
                async with asyncio.timeout(0):  # cancels as soon as a write has to wait
                    await self._write(writer, self._records)
            except TimeoutError:
                pass

    async def _two_writers(self) -> None:
        sink = self._make()
        halves = self._records[::2], self._records[1::2]
        async with (
            self._opened(sink, subtask=0, parallelism=2) as first,
            self._opened(sink, subtask=1, parallelism=2) as second,
        ):
            for record in range(len(halves[0])):
                await self._write(first, halves[0][record : record + 1])
                await self._write(second, halves[1][record : record + 1])
            await self._flush(first)
            await self._flush(second)
        seen = await self._seen(sink)
        for half in halves:
            if [one for one in seen if one in half] != half:
                raise self._broken(
                    f"of two writers, one wrote {shown(half)}, and {shown(seen)} is visible: its records are missing, "
                    f"there twice, or out of order"
                )
        if len(seen) != len(self._records):
            raise self._broken(
                f"two writers wrote {len(self._records)} records, {shown(seen)} is visible"
            )

    @asynccontextmanager
    async def _opened(
        self, sink: S, *, subtask: int = 0, parallelism: int = 1
    ) -> AsyncGenerator[Writer[Any]]:
        context = WriterContext("out", subtask=subtask, parallelism=parallelism)
        writer = await self._in_time(sink.writer(context), "writer()")
        try:
            yield writer
        finally:
            await self._in_time(writer.close(), "close()")

    async def _write(self, writer: Writer[Any], records: list[object]) -> None:
        """Write in batches of several sizes; a record's index is its timestamp."""
        start = 0
        while start < len(records):
            stop = start + _SIZES[start % len(_SIZES)]
            batch = Batch(records[start:stop], list(range(start, min(stop, len(records)))))
            before = batch.slice(0, len(batch))
            taken = writer.write(batch)
            if inspect.isawaitable(taken):
                await self._in_time(taken, "write()")
            elif taken is not None:
                raise self._broken(f"write() returned {shown(taken)}; None or an awaitable is due")
            if batch != before:
                raise self._broken(
                    f"write() changed its batch from {shown(before)} to {shown(batch)}; others read it too"
                )
            start = stop

    async def _flush(self, writer: Writer[Any]) -> None:
        await self._in_time(writer.flush(), "flush()")

    async def _seen(self, sink: S) -> list[object]:
        seen = self._visible(sink)
        if inspect.isawaitable(seen):
            return list(await self._in_time(seen, "visible()"))
        return list(seen)

    async def _in_time(self, work: Awaitable[R], what: str) -> R:
        return await in_time(work, self._patience, f"{self.name}: {what}")

    def _broken(self, how: str) -> AssertionError:
        return AssertionError(f"{self.name} breaks the contract of sinks: {how}")
