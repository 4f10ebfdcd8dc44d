"""A sink that calls a function."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

import pytest

from aflow.connect import Writer
from aflow.errors import FlowDefinitionError, OperatorError
from aflow.model.batch import Batch
from aflow.runtime.ends import CallbackSink
from tests.runtime.ends.helpers import running, settle, writer_of


async def _write(writer: Writer[int], batch: Batch[int]) -> None:
    waiting = writer.write(batch)
    if waiting is not None:
        await waiting


@pytest.mark.asyncio
async def test_a_plain_function_is_called_in_order_without_waiting() -> None:
    called: list[int] = []
    writer = await writer_of(CallbackSink(called.append))

    waiting = writer.write(Batch([1, 2, 3]))

    assert called == [1, 2, 3]
    assert waiting is None


@pytest.mark.asyncio
async def test_what_a_plain_function_returns_is_ignored() -> None:
    seen: dict[int, int] = {}
    writer = await writer_of(CallbackSink[int](lambda value: seen.setdefault(value, value)))

    waiting = writer.write(Batch([1, 2]))

    assert list(seen) == [1, 2]
    assert waiting is None


@pytest.mark.asyncio
async def test_an_async_function_is_awaited_for_one_record_at_a_time() -> None:
    log: list[str] = []

    async def store(value: int) -> None:
        log.append(f"begin {value}")
        await asyncio.sleep(0)
        log.append(f"end {value}")

    await _write(await writer_of(CallbackSink(store)), Batch([1, 2]))

    assert log == ["begin 1", "end 1", "begin 2", "end 2"]


@pytest.mark.asyncio
async def test_the_batch_is_not_taken_before_the_last_call_has_ended() -> None:
    gate = asyncio.Event()

    async def store(value: int) -> None:
        if value == 2:
            await gate.wait()

    writer = await writer_of(CallbackSink(store))
    async with running(_write(writer, Batch([1, 2]))) as writing:
        waited = not writing.done()

        gate.set()
        await settle()

        assert waited
        assert writing.done()


@pytest.mark.asyncio
async def test_a_function_that_waits_only_now_and_then_is_awaited_where_it_does() -> None:
    log: list[int] = []

    async def later(value: int) -> None:
        await asyncio.sleep(0)
        log.append(value)

    def sometimes(value: int) -> object:
        if value % 2:
            return later(value)
        log.append(value)
        return None

    await _write(await writer_of(CallbackSink(sometimes)), Batch([0, 1, 2, 3, 4]))

    assert log == [0, 1, 2, 3, 4]


@pytest.mark.asyncio
async def test_a_future_that_the_function_returns_is_awaited() -> None:
    answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    writer = await writer_of(CallbackSink[int](lambda _: answer))
    async with running(_write(writer, Batch([1]))) as writing:
        waited = not writing.done()

        answer.set_result("stored")
        await settle()

        assert waited
        assert writing.done()


@pytest.mark.asyncio
async def test_an_error_in_a_plain_function_names_step_record_and_timestamp() -> None:
    def divide(value: int) -> float:
        return 1 / value

    writer = await writer_of(CallbackSink(divide))

    with pytest.raises(
        OperatorError, match=r"step 'out' failed on record 0, timestamp 20 "
    ) as error:
        writer.write(Batch([1, 0], [10, 20]))

    assert (error.value.record, error.value.timestamp) == (0, 20)
    assert isinstance(error.value.__cause__, ZeroDivisionError)


@pytest.mark.asyncio
@pytest.mark.parametrize("bad", [1, 2, 3], ids=["first", "middle", "last"])
async def test_an_error_in_an_async_function_names_its_own_record(bad: int) -> None:
    called: list[int] = []

    async def store(value: int) -> None:
        called.append(value)
        await asyncio.sleep(0)
        if value == bad:
            raise ConnectionError("gone")

    writer = await writer_of(CallbackSink(store))

    with pytest.raises(OperatorError, match=f"record {bad}: ConnectionError: gone") as error:
        await _write(writer, Batch([1, 2, 3]))

    assert called == list(range(1, bad + 1))
    assert isinstance(error.value.__cause__, ConnectionError)


@pytest.mark.asyncio
async def test_cancelling_a_write_cancels_the_call_and_makes_no_further_one() -> None:
    log: list[str] = []

    async def store(value: int) -> None:
        log.append(f"begin {value}")
        try:
            await asyncio.Event().wait()
        finally:
            log.append(f"cut off {value}")

    writer = await writer_of(CallbackSink(store))
    async with running(_write(writer, Batch([1, 2]))) as writing:
        writing.cancel()

    assert log == ["begin 1", "cut off 1"]


def test_what_cannot_be_called_is_refused_at_once() -> None:
    with pytest.raises(FlowDefinitionError, match="needs a function"):
        CallbackSink(cast("Callable[[int], object]", "print"))
