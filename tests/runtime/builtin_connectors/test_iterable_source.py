"""A source over an iterable of this process."""

from __future__ import annotations

from asyncio import CancelledError
from collections import deque
from collections.abc import Iterable, Iterator
from typing import cast

import pytest

from aflow.connect import Chunk
from aflow.errors import FlowDefinitionError, RestoreError, SourceError
from aflow.runtime.builtin_connectors import IterableSource
from tests.runtime.builtin_connectors.helpers import chunks, opened, values


def _letters() -> Iterator[str]:
    yield from "abc"


def _broken_after(good: int) -> Iterator[int]:
    yield from range(good)
    raise OSError("no more paper")


class _Anew:
    """An object that can be iterated any number of times."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(4))


class _Refusing:
    def __iter__(self) -> Iterator[int]:
        raise OSError("out of reach")


@pytest.mark.asyncio
async def test_records_arrive_in_chunks_with_the_position_after_them() -> None:
    source = IterableSource([1, 2, 3, 4, 5])

    found = await chunks(source, limit=2)

    assert found == [Chunk([1, 2], 2), Chunk([3, 4], 4), Chunk([5], 5)]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "iterable",
    [[0, 1, 2, 3], (0, 1, 2, 3), range(4), deque(range(4)), dict.fromkeys(range(4)), _Anew()],
    ids=["list", "tuple", "range", "deque", "dict", "object"],
)
async def test_it_continues_after_the_position_of_a_chunk(iterable: Iterable[int]) -> None:
    source = IterableSource(iterable)
    first = (await chunks(source, limit=3))[0]

    found = await chunks(source, position=first.position)

    assert found == [Chunk([3], 4)]
    assert source.replayable


@pytest.mark.asyncio
@pytest.mark.parametrize("iterable", [[1, 2], _Anew()], ids=["sequence", "iterator"])
async def test_a_position_after_the_end_is_the_end(iterable: Iterable[int]) -> None:
    assert await values(IterableSource(iterable), position=9) == []


@pytest.mark.asyncio
@pytest.mark.parametrize("position", [-1, "3", True], ids=["negative", "text", "bool"])
async def test_a_position_of_another_kind_of_source_is_refused(position: object) -> None:
    with pytest.raises(RestoreError, match="another kind of source"):
        await chunks(IterableSource([1]), position=position)


@pytest.mark.asyncio
async def test_a_generator_is_read_once_and_then_refused_as_exhausted() -> None:
    source = IterableSource(_letters())
    first = await values(source)

    with pytest.raises(SourceError, match="exhausted"):
        await values(source)

    assert first == ["a", "b", "c"]
    assert not source.replayable


@pytest.mark.asyncio
async def test_a_new_generator_continues_at_the_position_of_an_old_one() -> None:
    assert await values(IterableSource(_letters()), position=2) == ["c"]


def test_a_set_is_not_replayable_since_another_process_orders_it_differently() -> None:
    assert not IterableSource({"a", "b"}).replayable
    assert not IterableSource(frozenset("ab")).replayable


@pytest.mark.asyncio
async def test_records_before_an_error_are_emitted_and_the_error_names_its_record() -> None:
    async with opened(IterableSource(_broken_after(2))) as reader:
        before = await reader.read(10)
        with pytest.raises(SourceError, match=r"record 2\b.*OSError: no more paper") as error:
            await reader.read(10)

    assert before == Chunk([0, 1], 2)
    assert isinstance(error.value.__cause__, OSError)


@pytest.mark.asyncio
async def test_an_error_before_the_position_names_the_record_as_well() -> None:
    with pytest.raises(SourceError, match=r"record 2\b"):
        await values(IterableSource(_broken_after(2)), position=5)


@pytest.mark.asyncio
async def test_an_object_that_cannot_be_iterated_fails_at_record_0() -> None:
    with pytest.raises(SourceError, match=r"record 0\b.*out of reach"):
        await values(IterableSource(_Refusing()))


@pytest.mark.asyncio
async def test_an_error_is_raised_again_by_another_read() -> None:
    async with opened(IterableSource(_broken_after(0))) as reader:
        with pytest.raises(SourceError):
            await reader.read(10)
        with pytest.raises(SourceError):
            await reader.read(10)


@pytest.mark.asyncio
async def test_closing_runs_the_finally_of_a_generator() -> None:
    ended: list[str] = []

    def endless() -> Iterator[int]:
        try:
            while True:
                yield 1
        finally:
            ended.append("closed")

    async with opened(IterableSource(endless())) as reader:
        await reader.read(3)

    assert ended == ["closed"]


def test_an_object_that_is_not_iterable_is_refused_at_once() -> None:
    with pytest.raises(FlowDefinitionError, match="needs an iterable, not 5"):
        IterableSource(cast("Iterable[int]", 5))


@pytest.mark.asyncio
async def test_a_cancelled_error_of_the_iterator_is_its_failure() -> None:
    def gives_up() -> Iterator[int]:
        yield 1
        raise CancelledError("given up")

    with pytest.raises(SourceError, match=r"record 1\b.*CancelledError: given up"):
        await values(IterableSource(gives_up()))


@pytest.mark.asyncio
async def test_an_error_while_a_generator_is_closed_is_an_error_of_the_source() -> None:
    def tangled() -> Iterator[int]:
        try:
            yield from range(10)
        finally:
            raise CancelledError("given up")

    with pytest.raises(SourceError, match="CancelledError: given up"):
        async with opened(IterableSource(tangled())) as reader:
            await reader.read(1)
