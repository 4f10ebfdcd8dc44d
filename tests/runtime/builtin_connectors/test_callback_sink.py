"""A sink that calls a function."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import cast

import pytest

from aflow.connect import Writer
from aflow.errors import FlowDefinitionError, OperatorError
from aflow.model.batch import Batch
from aflow.runtime.builtin_connectors import CallbackSink
from tests.runtime.builtin_connectors.helpers import running, settle, writer_of


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
async def test_the_result_of_a_plain_function_is_ignored() -> None:
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


async def _async_give_up(value: int) -> None:
    raise asyncio.CancelledError("given up")


def _give_up(value: int) -> None:
    raise asyncio.CancelledError("given up")


@pytest.mark.asyncio
@pytest.mark.parametrize("first", [True, False], ids=["first record", "behind a call that waited"])
@pytest.mark.parametrize("give_up", [_give_up, _async_give_up])
async def test_a_cancelled_error_of_the_function_is_its_failure(
    first: bool, give_up: Callable[[int], object]
) -> None:
    called: list[int] = []

    async def store(value: int) -> None:
        called.append(value)

    writer = await writer_of(CallbackSink[int](lambda n: give_up(n) if n == 2 else store(n)))

    with pytest.raises(OperatorError, match=r"'out' failed on record 2: CancelledError: given up"):
        await _write(writer, Batch([2] if first else [1, 2]))

    assert called == ([] if first else [1])


@pytest.mark.asyncio
async def test_a_call_that_swallows_its_cancellation_is_the_last_one() -> None:
    called: list[int] = []

    async def stubborn(value: int) -> None:
        called.append(value)
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

    writer = await writer_of(CallbackSink(stubborn))
    async with running(_write(writer, Batch([1, 2]))) as writing:
        writing.cancel()

    assert writing.cancelled()
    assert called == [1]


@pytest.mark.asyncio
async def test_closing_also_closes_a_call_that_was_not_awaited() -> None:
    async def store(value: int) -> None: ...

    calls: list[Coroutine[object, object, None]] = []

    def keep(value: int) -> Coroutine[object, object, None]:
        calls.append(store(value))
        return calls[-1]

    writer = await writer_of(CallbackSink(keep))
    writing = writer.write(Batch([1]))
    cast("Coroutine[object, object, None]", writing).close()  # as if the job had failed meanwhile

    await writer.close()

    assert inspect.getcoroutinestate(calls[0]) == inspect.CORO_CLOSED


def test_an_object_that_is_not_callable_is_refused_at_once() -> None:
    with pytest.raises(FlowDefinitionError, match="needs a function"):
        CallbackSink(cast("Callable[[int], object]", "print"))
