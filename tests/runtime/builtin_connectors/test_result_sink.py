"""A sink with an iteration over its results."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable
from typing import TypeVar

import pytest

from aflow.connect import Writer, WriterContext
from aflow.errors import FlowDefinitionError, JobStopped, SinkError
from aflow.model.batch import Batch
from aflow.runtime.builtin_connectors import ResultSink
from tests.runtime.builtin_connectors.helpers import running, settle, writer_of

T = TypeVar("T")


async def _all(results: AsyncIterable[T]) -> list[T]:
    return [result async for result in results]


async def _write(writer: Writer[T], *values: T) -> None:
    waiting = writer.write(Batch(list(values)))
    if waiting is not None:
        await waiting


async def _complete(writer: Writer[T]) -> None:
    await writer.flush()
    await writer.close()


@pytest.mark.asyncio
async def test_the_iteration_gives_all_results_in_order_and_ends_with_the_job() -> None:
    sink = ResultSink[int]()
    writer = await writer_of(sink)
    async with running(_all(sink)) as consuming:
        await _write(writer, 1, 2)
        await settle()
        await _write(writer, 3)
        await _complete(writer)

    assert consuming.result() == [1, 2, 3]


@pytest.mark.asyncio
async def test_results_can_be_read_after_the_job_has_ended() -> None:
    sink = ResultSink[int]()
    writer = await writer_of(sink)
    await _write(writer, 1)
    await _complete(writer)

    assert await _all(sink) == [1]


@pytest.mark.asyncio
async def test_the_consumer_may_come_before_the_job() -> None:
    sink = ResultSink[int]()
    async with running(_all(sink)) as consuming:
        writer = await writer_of(sink)
        await _write(writer, 1)
        await _complete(writer)

    assert consuming.result() == [1]


@pytest.mark.asyncio
async def test_the_iteration_ends_when_the_last_subtask_has_written_everything() -> None:
    sink = ResultSink[int]()
    async with running(_all(sink)) as consuming:
        first = await writer_of(sink, subtask=0, parallelism=2)
        await _write(first, 1)
        await _complete(first)
        await settle()
        ended_early = consuming.done()

        second = await writer_of(sink, subtask=1, parallelism=2)
        await _write(second, 2)
        await _complete(second)

    assert not ended_early
    assert consuming.result() == [1, 2]


@pytest.mark.asyncio
async def test_the_pipeline_waits_while_the_sink_is_full() -> None:
    sink = ResultSink[int](capacity=3)
    writer = await writer_of(sink)
    before = writer.write(Batch([1, 2]))
    results = aiter(sink)
    async with running(_write(writer, 3, 4)) as writing:
        first = await anext(results)
        await settle()
        still_full = not writing.done()

        second = await anext(results)
        await settle()

        assert before is None
        assert (first, second) == (1, 2)
        assert still_full
        assert writing.done()


@pytest.mark.asyncio
async def test_a_cancelled_write_does_not_disturb_the_others() -> None:
    sink = ResultSink[int](capacity=1)
    first = await writer_of(sink, subtask=0, parallelism=2)
    second = await writer_of(sink, subtask=1, parallelism=2)
    results = aiter(sink)
    async with running(_write(first, 1)) as cancelled, running(_write(second, 2)) as waiting:
        cancelled.cancel()
        await settle()
        still_waiting = not waiting.done()

        assert [await anext(results), await anext(results)] == [1, 2]

    assert still_waiting


@pytest.mark.asyncio
async def test_a_writer_closed_without_flush_ends_the_iteration_as_a_failure() -> None:
    sink = ResultSink[int]()
    writer = await writer_of(sink)
    results = aiter(sink)
    await _write(writer, 1)
    await writer.close()

    assert await anext(results) == 1
    with pytest.raises(JobStopped, match="before its results were complete"):
        await anext(results)


@pytest.mark.asyncio
async def test_a_failure_is_raised_to_a_waiting_consumer() -> None:
    sink = ResultSink[int]()
    writer = await writer_of(sink)
    async with asyncio.TaskGroup() as group:
        consuming = group.create_task(_failure_of(sink))
        await settle()

        sink.fail(ZeroDivisionError("division by zero"))
        sink.fail(ValueError("a consequence"))
        await writer.close()

    error = consuming.result()
    assert "ZeroDivisionError: division by zero" in str(error)
    assert isinstance(error.__cause__, ZeroDivisionError)


async def _failure_of(results: AsyncIterable[int]) -> JobStopped:
    with pytest.raises(JobStopped) as error:
        await _all(results)
    return error.value


@pytest.mark.asyncio
async def test_a_failed_job_that_restarts_continues_the_same_iteration() -> None:
    sink = ResultSink[int]()
    done = await writer_of(sink, subtask=0, parallelism=2)
    broken = await writer_of(sink, subtask=1, parallelism=2)
    await _write(broken, 1)
    await _complete(done)
    await broken.close()

    again = [await writer_of(sink, subtask=subtask, parallelism=2) for subtask in range(2)]
    async with running(_all(sink)) as consuming:
        await _write(again[1], 2)
        await _complete(again[1])
        await settle()
        ended_early = consuming.done()
        await _write(again[0], 3)
        await _complete(again[0])

    assert not ended_early
    assert consuming.result() == [1, 2, 3]


@pytest.mark.asyncio
async def test_a_consumer_that_breaks_off_does_not_hold_up_the_pipeline() -> None:
    sink = ResultSink[int](capacity=2)
    writer = await writer_of(sink)
    async with running(_write(writer, 1, 2, 3)) as writing:
        async for result in sink:
            assert result == 1
            break
        await settle()
        went_on = writing.done()

        await _write(writer, 4, 5)

    assert went_on
    assert sink.dropped == 4


@pytest.mark.asyncio
async def test_a_consumer_that_keeps_the_iterator_may_pause_and_continue() -> None:
    sink = ResultSink[int]()
    writer = await writer_of(sink)
    await _write(writer, 1, 2, 3)
    await _complete(writer)
    results = aiter(sink)

    async for result in results:
        if result == 2:
            break

    assert await _all(results) == [3]
    assert sink.dropped == 0


@pytest.mark.asyncio
async def test_aclose_ends_the_iteration_for_good() -> None:
    sink = ResultSink[int]()
    writer = await writer_of(sink)
    await _write(writer, 1)
    results = aiter(sink)

    await results.aclose()
    await results.aclose()

    assert await _all(results) == []
    assert sink.dropped == 1


@pytest.mark.asyncio
async def test_aclose_ends_a_wait_for_the_next_result() -> None:
    sink = ResultSink[int]()
    results = aiter(sink)
    async with running(_all(results)) as consuming:
        await results.aclose()
        await settle()

        assert consuming.done()


@pytest.mark.asyncio
async def test_a_cancelled_wait_for_the_next_result_loses_nothing() -> None:
    sink = ResultSink[int]()
    writer = await writer_of(sink)
    results = aiter(sink)
    async with running(_all(results)) as waiting:
        await _write(writer, 1)  # wakes the consumer, which is cancelled before it runs
        waiting.cancel()

    assert await anext(results) == 1


@pytest.mark.asyncio
async def test_a_second_consumer_is_refused() -> None:
    sink = ResultSink[int]()
    results = aiter(sink)

    with pytest.raises(SinkError, match="has a consumer"):
        aiter(sink)

    await results.aclose()
    with pytest.raises(SinkError, match="was left by its consumer"):
        aiter(sink)


@pytest.mark.asyncio
async def test_two_tasks_cannot_wait_for_the_same_result() -> None:
    sink = ResultSink[int]()
    results = aiter(sink)
    async with running(_all(results)):
        with pytest.raises(SinkError, match="two tasks"):
            await anext(results)

        await results.aclose()


@pytest.mark.asyncio
async def test_a_second_step_is_refused() -> None:
    sink = ResultSink[int]()
    await writer_of(sink)

    with pytest.raises(SinkError, match="written by step 'out' and cannot serve 'other'"):
        await sink.writer(WriterContext("other"))


@pytest.mark.asyncio
@pytest.mark.parametrize("ended", [False, True], ids=["running", "complete"])
async def test_a_second_job_is_refused(ended: bool) -> None:
    sink = ResultSink[int]()
    writer = await writer_of(sink)
    if ended:
        await _complete(writer)

    with pytest.raises(SinkError, match="already serves another job"):
        await writer_of(sink)


def test_the_consumer_may_be_dropped_after_its_loop_was_closed() -> None:
    sink = ResultSink[int](capacity=1)

    async def write_into_the_full_sink() -> asyncio.Future[None]:
        waiting = (await writer_of(sink)).write(Batch([1]))
        assert waiting is not None
        future = asyncio.ensure_future(waiting)
        future.add_done_callback(lambda _: None)
        return future

    results = aiter(sink)
    waiting = asyncio.run(write_into_the_full_sink())
    del results

    assert not waiting.done()
    assert sink.dropped == 1


def test_a_capacity_that_holds_nothing_is_refused() -> None:
    with pytest.raises(FlowDefinitionError, match="capacity of ResultSink"):
        ResultSink[int](capacity=0)


@pytest.mark.asyncio
async def test_a_released_sink_lets_the_pipeline_end_and_keeps_the_results_for_its_consumer() -> (
    None
):
    sink = ResultSink[int](capacity=1)
    results = aiter(sink)
    writer = await writer_of(sink)
    async with running(_write(writer, 1, 2)) as writing:
        waited = not writing.done()

        sink.release()
        await settle()

        assert waited
        assert writing.done()
    await _write(writer, 3)
    await _complete(writer)

    assert await _all(results) == [1, 2, 3]
    assert sink.dropped == 0


@pytest.mark.asyncio
async def test_a_consumer_ends_with_its_async_with_block() -> None:
    sink = ResultSink[int](capacity=1)
    writer = await writer_of(sink)
    results = aiter(sink)
    async with running(_write(writer, 1, 2)) as writing:
        async with results:
            first = await anext(results)
        await settle()

        assert writing.done()
    assert (first, sink.dropped) == (1, 1)


@pytest.mark.asyncio
async def test_the_results_of_a_cancelled_job_say_so() -> None:
    sink = ResultSink[int]()
    results = aiter(sink)
    writer = await writer_of(sink)

    sink.fail(asyncio.CancelledError())
    await writer.close()

    with pytest.raises(JobStopped, match=r"those up to here are valid: the job was cancelled$"):
        await anext(results)
