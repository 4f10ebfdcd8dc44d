"""A source over an async iterable."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable
from typing import cast

import pytest

from aflow.connect import Chunk
from aflow.errors import FlowDefinitionError, SourceError
from aflow.runtime.builtin_connectors import AsyncIterableSource
from tests.runtime.builtin_connectors.helpers import chunks, opened, running, settle, values


async def _count(start: int = 0) -> AsyncIterator[int]:
    for number in range(start, 4):
        await asyncio.sleep(0)
        yield number


class _Anew:
    def __aiter__(self) -> AsyncIterator[int]:
        return _count()


class _Subscription:
    """An iterator that loses nothing when ``anext`` is cancelled."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[int] = asyncio.Queue()

    def __aiter__(self) -> AsyncIterator[int]:
        return self

    async def __anext__(self) -> int:
        return await self.queue.get()


@pytest.mark.asyncio
async def test_each_record_is_emitted_when_it_arrives_with_its_position() -> None:
    assert await chunks(AsyncIterableSource(_count(2))) == [Chunk([2], 1), Chunk([3], 2)]


@pytest.mark.asyncio
async def test_an_async_generator_is_read_once_and_then_refused_as_exhausted() -> None:
    source = AsyncIterableSource(_count())
    await values(source)

    with pytest.raises(SourceError, match="exhausted"):
        await values(source)

    assert not source.replayable


@pytest.mark.asyncio
async def test_an_object_that_iterates_again_skips_the_records_before_the_position() -> None:
    source = AsyncIterableSource(_Anew())
    await values(source)

    found = await chunks(source, position=3)

    assert found == [Chunk([3], 4)]
    assert not source.replayable


@pytest.mark.asyncio
async def test_a_function_is_asked_to_start_at_the_position() -> None:
    source = AsyncIterableSource(_count)

    found = await chunks(source, position=3)

    assert found == [Chunk([3], 4)]
    assert source.replayable
    assert await values(source) == [0, 1, 2, 3]


@pytest.mark.asyncio
async def test_an_error_names_the_record_and_keeps_the_cause() -> None:
    async def broken() -> AsyncIterator[int]:
        yield 1
        raise ConnectionError("line cut")

    with pytest.raises(SourceError, match=r"record 1\b.*ConnectionError: line cut") as error:
        await values(AsyncIterableSource(broken()))

    assert isinstance(error.value.__cause__, ConnectionError)


@pytest.mark.asyncio
async def test_closing_runs_the_finally_of_the_generator() -> None:
    ended: list[str] = []

    async def endless() -> AsyncIterator[int]:
        try:
            while True:
                yield 1
        finally:
            await asyncio.sleep(0)
            ended.append("closed")

    async with opened(AsyncIterableSource(endless())) as reader:
        await reader.read(10)

    assert ended == ["closed"]


@pytest.mark.asyncio
async def test_an_error_while_closing_is_an_error_of_the_source() -> None:
    async def tangled() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            raise OSError("cannot hang up")

    with pytest.raises(SourceError, match="cannot hang up"):
        async with opened(AsyncIterableSource(tangled())) as reader:
            await reader.read(10)


@pytest.mark.asyncio
async def test_a_cancelled_read_loses_no_record_of_an_iterator_that_survives_it() -> None:
    subscription = _Subscription()
    async with opened(AsyncIterableSource(subscription)) as reader:
        async with running(reader.read(10)) as reading:
            reading.cancel()
            subscription.queue.put_nowait(7)

        assert await reader.read(10) == Chunk([7], 1)


@pytest.mark.asyncio
async def test_a_generator_that_died_of_a_cancelled_read_does_not_look_as_if_it_had_ended() -> None:
    async def silent() -> AsyncIterator[int]:
        await asyncio.Event().wait()
        yield 1

    async with opened(AsyncIterableSource(silent())) as reader:
        async with running(reader.read(10)) as reading:
            reading.cancel()
            await settle()

        with pytest.raises(SourceError, match="a read was cancelled"):
            await reader.read(10)


@pytest.mark.asyncio
async def test_a_function_that_returns_no_async_iterable_is_an_error_that_says_so() -> None:
    async def forgot_to_yield(start: int) -> int:
        return start

    source = AsyncIterableSource(cast("Callable[[int], AsyncIterable[int]]", forgot_to_yield))

    with pytest.raises(SourceError, match="only if it contains `yield`"):
        await values(source)


@pytest.mark.asyncio
async def test_an_error_in_the_function_names_the_position_it_was_asked_for() -> None:
    def refuse(start: int) -> AsyncIterator[int]:
        raise ConnectionError("closed on Sundays")

    with pytest.raises(SourceError, match=r"record 3\b.*closed on Sundays"):
        await values(AsyncIterableSource(refuse), position=3)


@pytest.mark.asyncio
async def test_a_cancelled_error_that_the_generator_raises_by_itself_is_its_failure() -> None:
    async def gives_up() -> AsyncIterator[int]:
        yield 1
        raise asyncio.CancelledError("given up")

    with pytest.raises(SourceError, match=r"record 1\b.*CancelledError: given up"):
        await values(AsyncIterableSource(gives_up()))


@pytest.mark.asyncio
async def test_a_cancelled_error_of_the_generator_s_own_while_closing_is_its_failure() -> None:
    async def gives_up() -> AsyncIterator[int]:
        try:
            yield 1
        finally:
            raise asyncio.CancelledError("given up")

    with pytest.raises(SourceError, match="CancelledError: given up"):
        async with opened(AsyncIterableSource(gives_up())) as reader:
            await reader.read(10)


@pytest.mark.asyncio
async def test_a_cancelled_error_of_the_function_is_an_error_of_the_source() -> None:
    def gives_up(start: int) -> AsyncIterator[int]:
        raise asyncio.CancelledError("given up")

    with pytest.raises(SourceError, match=r"record 3\b.*CancelledError: given up"):
        await values(AsyncIterableSource(gives_up), position=3)


def test_a_function_without_a_parameter_for_the_position_is_refused_at_once() -> None:
    def no_position() -> AsyncIterator[int]:
        return _count()

    with pytest.raises(FlowDefinitionError, match="called with one argument, the position"):
        AsyncIterableSource(cast("Callable[[int], AsyncIterable[int]]", no_position))


def test_a_plain_iterable_is_refused_with_the_source_that_takes_it() -> None:
    with pytest.raises(FlowDefinitionError, match="there is IterableSource"):
        AsyncIterableSource(cast("AsyncIterable[int]", [1, 2]))
