"""Reading ahead: queued records, their limit, and ``has_queued``."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from aflow.connect import BadRecord, Chunk, Position, Reader, Source, SourceError, Split
from aflow.machines.batch_size import BatchSize
from aflow.runtime.clock import SystemClock
from aflow.runtime.fetcher import Failed, Fetcher, Read
from aflow.runtime.loop_budget import LoopBudget
from aflow.runtime.splits import SplitQueue
from aflow.testing.virtual_time import settle, virtual_time

BAD = BadRecord("here", "bad", b"")


class Endless(Source[int]):
    """Splits that repeat the same chunk for ever."""

    concurrency = None

    def __init__(self, **chunks: Chunk[int]) -> None:
        self._chunks = chunks

    async def splits(self) -> Sequence[Split]:
        return [Split(name) for name in self._chunks]

    async def reader(self, split: Split, position: Position | None) -> Reader[int]:
        return _Endless(self._chunks[split.id])


class _Endless(Reader[int]):
    def __init__(self, chunk: Chunk[int]) -> None:
        self._chunk = chunk
        self._read = False

    async def read(self, limit: int) -> Chunk[int] | None:
        if self._read and not self._chunk.values and not self._chunk.rejected:
            await asyncio.Event().wait()
        self._read = True
        return self._chunk


async def fetching(
    source: Source[int], group: asyncio.TaskGroup, size: BatchSize | None = None
) -> Fetcher:
    splits = SplitQueue("numbers", source, 1)
    await splits.fill()
    loop = asyncio.get_running_loop()
    fetcher = Fetcher(
        "numbers",
        source,
        splits,
        subtask=0,
        size=size or BatchSize(10, 1.0),
        loop_budget=LoopBudget(loop, SystemClock(), 1.0),
        on_fetched=lambda: None,
    )
    fetcher.start(group)
    await settle()
    return fetcher


@virtual_time
async def test_it_knows_of_which_splits_records_wait() -> None:
    source = Endless(busy=Chunk([1], 1), silent=Chunk([], 0))

    async with asyncio.TaskGroup() as group:
        fetcher = await fetching(source, group)
        queued = {name: fetcher.has_queued(name) for name in ("busy", "other", "")}
        fetcher.stop()

    assert queued == {"busy": True, "other": False, "": True}


CHUNKS: dict[str, Chunk[int]] = {
    "records": Chunk([1, 2], 2),
    "rejected": Chunk([], 2, rejected=[BAD, BAD]),
}


@pytest.mark.parametrize("chunk", CHUNKS.values(), ids=CHUNKS)
@pytest.mark.parametrize("splits", [1, 50])
@virtual_time
async def test_reading_ahead_is_bounded_for_all_splits_together(
    chunk: Chunk[int], splits: int
) -> None:
    source = Endless(**{f"split {number}": chunk for number in range(splits)})

    async with asyncio.TaskGroup() as group:
        fetcher = await fetching(source, group)
        first = most = fetcher.queued_records
        for _ in range(splits + 20):
            fetcher.take()
            await settle()
            most = max(most, fetcher.queued_records)
        fetcher.stop()

    # Four batches of ten: a reader that is woken checks that there is still room.
    assert first == 40
    assert most <= 42


@virtual_time
async def test_reading_ahead_is_bounded_in_records_with_large_batches() -> None:
    source = Endless(large=Chunk(list(range(1_024)), 1_024))
    size = BatchSize(4_096, 1.0)
    while size.limit < 4_096:
        size.took(size.limit, 0.0)

    async with asyncio.TaskGroup() as group:
        fetcher = await fetching(source, group, size)
        queued = fetcher.queued_records
        fetcher.stop()

    assert queued == 4_096


@virtual_time
async def test_a_chunk_that_is_larger_than_a_batch_is_taken_in_parts() -> None:
    source = Endless(large=Chunk(list(range(25)), 25))

    async with asyncio.TaskGroup() as group:
        fetcher = await fetching(source, group)
        taken = [item for _ in range(5) if isinstance(item := fetcher.take(), Read)]
        fetcher.stop()

    assert [(list(item.chunk.values), item.whole) for item in taken[:2]] == [
        (list(range(10)), False),
        (list(range(10, 25)), True),
    ]


@virtual_time
async def test_a_chunk_of_a_source_that_divides_none_is_taken_whole() -> None:
    source = Endless(large=Chunk(list(range(25)), 25))
    source.divides_chunks = False

    async with asyncio.TaskGroup() as group:
        fetcher = await fetching(source, group)
        taken = [item for _ in range(5) if isinstance(item := fetcher.take(), Read)]
        fetcher.stop()

    assert (len(taken[0].chunk.values), taken[0].whole) == (25, True)


@virtual_time
async def test_a_chunk_with_columns_of_unequal_length_is_refused() -> None:
    source = Endless(crooked=Chunk([1, 2, 3], 3, timestamps=[10]))

    async with asyncio.TaskGroup() as group:
        fetcher = await fetching(source, group)
        failures = [item for _ in range(5) if isinstance(item := fetcher.take(), Failed)]
        fetcher.stop()

    (failed,) = failures
    assert isinstance(failed.error, SourceError)
    assert "3 values and 1 timestamps" in str(failed.error)


class Broken(Endless):
    """A connector that names the location and the cause of a failure, without the name of the source."""

    async def reader(self, split: Split, position: Position | None) -> Reader[int]:
        raise SourceError("file numbers.txt, line 2: bad") from ValueError("bad")


@virtual_time
async def test_an_error_of_a_connector_starts_with_the_name_of_the_source() -> None:
    async with asyncio.TaskGroup() as group:
        fetcher = await fetching(Broken(only=Chunk([1], 1)), group)
        failures = [item for _ in range(5) if isinstance(item := fetcher.take(), Failed)]
        fetcher.stop()

    (failed,) = failures
    assert str(failed.error) == "source 'numbers': file numbers.txt, line 2: bad"
