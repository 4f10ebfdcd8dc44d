"""A source over an iterator that blocks."""

from __future__ import annotations

import asyncio
import threading
from asyncio import CancelledError
from collections.abc import Iterable, Iterator
from contextvars import ContextVar
from typing import cast

import pytest

from aflow.connect import Chunk
from aflow.errors import FlowDefinitionError, SourceError
from aflow.model.batch import BATCH_RECORDS
from aflow.runtime.builtin_connectors import ThreadSource
from tests.runtime.builtin_connectors.helpers import chunks, opened, running, values

#: Longer than any of these tests: a forgotten thread ends with the process nevertheless.
_PATIENCE = 60.0


class _Blocking:
    """Iterates over ``first``, then blocks until ``go_on`` is set, then over ``then``."""

    def __init__(self, first: Iterable[int], then: Iterable[int] = ()) -> None:
        self.first = first
        self.then = then
        self.go_on = threading.Event()
        self.blocked = threading.Event()
        self.closed = threading.Event()

    def __iter__(self) -> Iterator[int]:
        try:
            yield from self.first
            self.blocked.set()
            self.go_on.wait(_PATIENCE)
            yield from self.then
        finally:
            self.closed.set()


@pytest.mark.asyncio
async def test_all_records_come_in_order_with_their_positions() -> None:
    source = ThreadSource(range(3 * BATCH_RECORDS))

    found = await chunks(source)

    assert [value for chunk in found for value in chunk.values] == list(range(3 * BATCH_RECORDS))
    assert [chunk.position for chunk in found] == [chunk.values[-1] + 1 for chunk in found]


@pytest.mark.asyncio
async def test_a_chunk_has_at_most_as_many_records_as_asked_for() -> None:
    iterable = _Blocking([1, 2, 3])
    async with opened(ThreadSource(iterable)) as reader:
        first = await reader.read(1)
        iterable.blocked.wait(_PATIENCE)  # now the other records are there

        second = await reader.read(2)
        iterable.go_on.set()

    assert first == Chunk([1], 1)
    assert second == Chunk([2, 3], 3)


@pytest.mark.asyncio
async def test_a_record_is_handed_over_while_the_iterator_blocks_for_the_next_one() -> None:
    iterable = _Blocking([1], then=[2])
    async with opened(ThreadSource(iterable)) as reader:
        first = await reader.read(10)
        still_blocked = not iterable.go_on.is_set()

        iterable.go_on.set()

        assert first == Chunk([1], 1)
        assert still_blocked
        assert await reader.read(10) == Chunk([2], 2)
        assert await reader.read(10) is None


@pytest.mark.asyncio
async def test_the_event_loop_runs_while_the_iterator_blocks() -> None:
    iterable = _Blocking([], then=[1])
    async with opened(ThreadSource(iterable)) as reader, asyncio.TaskGroup() as group:
        reading = group.create_task(reader.read(10))
        await asyncio.sleep(0)

        iterable.go_on.set()  # reached only if the loop is not blocked

        assert await reading == Chunk([1], 1)


@pytest.mark.asyncio
async def test_the_thread_reads_no_further_ahead_than_one_batch() -> None:
    produced = 0

    def counted() -> Iterator[int]:
        nonlocal produced
        for number in range(5 * BATCH_RECORDS):
            produced += 1
            yield number

    async with opened(ThreadSource(counted())) as reader:
        handed_out = 0
        while (chunk := await reader.read(100)) is not None:
            handed_out += len(chunk.values)
            assert produced <= handed_out + BATCH_RECORDS

    assert handed_out == 5 * BATCH_RECORDS


@pytest.mark.asyncio
async def test_the_whole_life_of_the_iterator_happens_in_one_thread() -> None:
    threads: set[threading.Thread] = set()

    def watched() -> Iterator[int]:
        try:
            for number in range(3 * BATCH_RECORDS):
                threads.add(threading.current_thread())
                yield number
        finally:
            threads.add(threading.current_thread())

    await values(ThreadSource(watched()))

    assert len(threads) == 1
    assert threading.current_thread() not in threads


@pytest.mark.asyncio
async def test_the_iterator_sees_the_context_of_the_job() -> None:
    tenant = ContextVar("tenant", default="nobody")
    tenant.set("acme")

    assert await values(ThreadSource(tenant.get() for _ in range(1))) == ["acme"]


@pytest.mark.asyncio
async def test_it_continues_after_a_position() -> None:
    assert await chunks(ThreadSource(range(5)), position=3, limit=1) == [
        Chunk([3], 4),
        Chunk([4], 5),
    ]


@pytest.mark.asyncio
async def test_an_iterator_is_read_once_and_then_refused_as_exhausted() -> None:
    source = ThreadSource(iter([1, 2]))
    await values(source)

    with pytest.raises(SourceError, match="exhausted"):
        await values(source)

    assert not source.replayable
    assert ThreadSource([1, 2]).replayable


@pytest.mark.asyncio
@pytest.mark.parametrize("position", [None, 9], ids=["from the start", "on the way to a position"])
async def test_an_error_follows_the_preceding_records_and_names_its_record(
    position: int | None,
) -> None:
    def broken() -> Iterator[int]:
        yield from (10, 11)
        raise OSError("pipe burst")

    with pytest.raises(
        SourceError, match=r"ThreadSource failed at record 2\b.*pipe burst"
    ) as error:
        await values(ThreadSource(broken()), position=position)

    assert isinstance(error.value.__cause__, OSError)


@pytest.mark.asyncio
async def test_a_cancelled_read_loses_nothing() -> None:
    iterable = _Blocking([], then=[1, 2])
    async with opened(ThreadSource(iterable)) as reader:
        async with running(reader.read(10)) as reading:
            reading.cancel()
        iterable.go_on.set()
        iterable.closed.wait(_PATIENCE)

        assert await reader.read(10) == Chunk([1, 2], 2)


@pytest.mark.asyncio
async def test_closing_does_not_wait_for_an_iterator_that_blocks_and_that_is_closed_later() -> None:
    iterable = _Blocking([1], then=[2, 3])
    async with opened(ThreadSource(iterable)) as reader:
        await reader.read(10)
        iterable.blocked.wait(_PATIENCE)
    closed_before = iterable.closed.is_set()

    iterable.go_on.set()

    assert not closed_before
    assert iterable.closed.wait(_PATIENCE)


@pytest.mark.asyncio
async def test_closing_ends_a_thread_that_waits_for_room_without_asking_the_iterator_again() -> (
    None
):
    produced = 0
    as_far_as_it_may, closed = threading.Event(), threading.Event()

    def endless() -> Iterator[int]:
        nonlocal produced
        try:
            while True:
                produced += 1
                if produced > BATCH_RECORDS:
                    as_far_as_it_may.set()
                yield produced
        finally:
            closed.set()

    async with opened(ThreadSource(endless())) as reader:
        await reader.read(1)
        as_far_as_it_may.wait(_PATIENCE)

    assert closed.wait(_PATIENCE)
    assert produced == BATCH_RECORDS + 1


@pytest.mark.asyncio
@pytest.mark.parametrize("read", [0, 1, 100])
async def test_records_that_the_thread_took_and_no_read_returned_are_left_over_at_a_stop(
    read: int,
) -> None:
    taken: list[int] = []

    def endless() -> Iterator[int]:
        while True:
            taken.append(len(taken))
            yield taken[-1]

    async with opened(ThreadSource(endless())) as reader:
        first = await reader.read(1)
        seen = list(first.values) if first else []
        for _ in range(read):
            chunk = await reader.read(1)
            seen += chunk.values if chunk else []

        leftover = reader.leftover()

    assert leftover is not None
    assert [*seen, *leftover.values] == taken
    assert leftover.position == len(taken)


@pytest.mark.asyncio
async def test_a_record_that_the_blocked_iterator_gives_after_the_stop_is_not_taken() -> None:
    iterable = _Blocking([1, 2], then=[3])
    async with opened(ThreadSource(iterable)) as reader:
        await reader.read(1)
        iterable.blocked.wait(_PATIENCE)

        leftover = reader.leftover()
        iterable.go_on.set()

    assert leftover == Chunk([2], 2)
    assert iterable.closed.wait(_PATIENCE)


@pytest.mark.asyncio
async def test_nothing_is_left_over_of_a_source_that_was_not_read() -> None:
    async with opened(ThreadSource([1])) as reader:
        assert reader.leftover() is None


@pytest.mark.asyncio
async def test_a_reader_that_was_never_read_starts_no_thread() -> None:
    before = threading.active_count()

    async with opened(ThreadSource([1])):
        during = threading.active_count()

    assert during == before


def test_an_object_that_is_not_iterable_is_refused_at_once() -> None:
    with pytest.raises(FlowDefinitionError, match="needs an iterable, not 5"):
        ThreadSource(cast("Iterable[int]", 5))


@pytest.mark.asyncio
async def test_a_cancelled_error_of_the_iterator_is_its_failure() -> None:
    def gives_up() -> Iterator[int]:
        yield 1
        raise CancelledError("given up")

    with pytest.raises(SourceError, match=r"record 1\b.*CancelledError: given up"):
        await values(ThreadSource(gives_up()))
