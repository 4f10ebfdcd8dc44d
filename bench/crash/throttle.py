"""Slow sources and sinks, so that there is time to kill their program."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, Generic, TypeVar

from aflow.connect import (
    Batch,
    Chunk,
    Committable,
    Position,
    Reader,
    Sink,
    Source,
    Split,
    Writer,
    WriterContext,
)
from bench.crash.records import ORDER_SPLITS, Order, order

T = TypeVar("T")

#: Maximum records of a chunk of a throttled reader.
_CHUNK: Final = 20
#: Pause in seconds before each chunk.
_PAUSE: Final = 0.04
#: Minimum accumulated delay in seconds for which a slow writer sleeps.
_MIN_SLEEP: Final = 0.01


class Throttled(Source[T], Generic[T]):
    """A source that is read in small chunks, with a pause before each."""

    def __init__(self, source: Source[T]) -> None:
        self._source = source
        self.concurrency = source.concurrency
        self.max_parallelism = source.max_parallelism

    async def splits(self) -> Sequence[Split]:
        return await self._source.splits()

    async def reader(self, split: Split, position: Position | None) -> Reader[T]:
        return _ThrottledReader(await self._source.reader(split, position))


class _ThrottledReader(Reader[T]):
    def __init__(self, reader: Reader[T]) -> None:
        self._reader = reader

    async def read(self, limit: int) -> Chunk[T] | None:
        await asyncio.sleep(_PAUSE)
        return await self._reader.read(min(limit, _CHUNK))

    async def close(self) -> None:
        await self._reader.close()


class Orders(Source[Order]):
    """A generated source: ``records`` orders in each split; the position is the number of the next one.

    An endless source withholds the last order of each split for ever.
    """

    concurrency = None

    def __init__(self, records: int, *, endless: bool) -> None:
        self._records = records
        self._endless = endless

    async def splits(self) -> Sequence[Split]:
        return [Split(str(number)) for number in range(ORDER_SPLITS)]

    async def reader(self, split: Split, position: Position | None) -> Reader[Order]:
        start = position if isinstance(position, int) else 0
        last = self._records - 1 if self._endless else None
        return _OrderReader(int(split.id), start, self._records, last)


class _OrderReader(Reader[Order]):
    def __init__(self, split: int, start: int, end: int, withheld_from: int | None) -> None:
        self._split = split
        self._next = start
        self._end = end
        self._withheld_from = withheld_from

    async def read(self, limit: int) -> Chunk[Order] | None:
        end = self._end if self._withheld_from is None else self._withheld_from
        if self._withheld_from is not None and self._next >= end:
            await asyncio.Event().wait()
        if self._next >= end:
            return None
        numbers = range(self._next, min(end, self._next + limit))
        self._next = numbers.stop
        return Chunk([order(self._split, number) for number in numbers], numbers.stop)


class Slow(Sink[T], Generic[T]):
    """A sink that sleeps ``per_record`` seconds for each record, so that channels fill up."""

    def __init__(self, sink: Sink[T], per_record: float) -> None:
        self._sink = sink
        self._per_record = per_record
        self.delivery = sink.delivery

    async def writer(self, context: WriterContext) -> Writer[T]:
        return _SlowWriter(await self._sink.writer(context), self._per_record)

    async def recover(self, name: str, committables: Sequence[Committable]) -> None:
        await self._sink.recover(name, committables)


class _SlowWriter(Writer[T]):
    def __init__(self, writer: Writer[T], per_record: float) -> None:
        self._writer = writer
        self._per_record = per_record
        self._delay = 0.0

    async def write(self, batch: Batch[T]) -> None:
        self._delay += len(batch) * self._per_record
        if self._delay >= _MIN_SLEEP:
            await asyncio.sleep(self._delay)
            self._delay = 0.0
        writing = self._writer.write(batch)
        if writing is not None:
            await writing

    async def flush(self) -> None:
        await self._writer.flush()

    async def prepare(self, checkpoint: int) -> Committable | None:
        preparing = self._writer.prepare(checkpoint)
        return await preparing

    async def commit(self, committable: Committable) -> None:
        await self._writer.commit(committable)

    async def close(self) -> None:
        await self._writer.close()
