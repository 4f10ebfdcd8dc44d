"""A source for pushed records."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from weakref import ref

import pytest

from aflow import CollectSink, Flow
from aflow.connect import Chunk, Reader, Writer, WriterContext
from aflow.errors import (
    AflowError,
    FlowDefinitionError,
    JobStopped,
    SinkError,
    SourceError,
    SourceFull,
)
from aflow.runtime.builtin_connectors import PushSource
from tests.runtime.builtin_connectors.helpers import chunks, opened, running, settle, values


async def _record(source: PushSource[int], value: int, log: list[str]) -> None:
    await source.send(value)
    log.append(f"sent {value}")


@asynccontextmanager
async def _full(source: PushSource[int]) -> AsyncGenerator[Reader[int], None]:
    """Return a reader of ``source``, which is filled with zeros."""
    while True:
        try:
            source.send_nowait(0)
        except SourceFull:
            break
    async with opened(source) as reader:
        yield reader


@pytest.mark.asyncio
async def test_all_that_waits_is_read_at_once_up_to_the_limit() -> None:
    source = PushSource[str]()
    await source.send_many(["a", "b", "c"])
    source.close()

    assert await chunks(source, limit=2) == [Chunk(["a", "b"], 2), Chunk(["c"], 3)]


@pytest.mark.asyncio
async def test_a_read_waits_for_a_record_and_then_returns_at_once() -> None:
    source = PushSource[int]()
    async with opened(source) as reader, running(reader.read(10)) as reading:
        waited = not reading.done()

        await source.send(1)
        await settle()

        assert waited
        assert reading.done()
        assert reading.result() == Chunk([1], 1)


@pytest.mark.asyncio
async def test_timestamps_become_epoch_milliseconds() -> None:
    source = PushSource[str]()
    await source.send("a", 5)
    source.send_nowait("b", datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC))
    source.close()

    assert await chunks(source) == [Chunk(["a", "b"], 2, [5, 1000])]


@pytest.mark.asyncio
async def test_records_with_and_without_timestamps_do_not_mix() -> None:
    dated, undated = PushSource[str](), PushSource[str]()
    await dated.send("a", 5)
    await undated.send("a")

    with pytest.raises(FlowDefinitionError, match="without a timestamp after records with one"):
        await dated.send("b")
    with pytest.raises(FlowDefinitionError, match="with a timestamp after records without one"):
        await undated.send("b", 5)

    assert (dated.waiting, undated.waiting) == (1, 1)


@pytest.mark.asyncio
async def test_a_refused_timestamp_does_not_decide_whether_records_carry_one() -> None:
    source = PushSource[str]()
    with pytest.raises(FlowDefinitionError, match="time zone"):
        await source.send("a", datetime(2013, 1, 1))  # noqa: DTZ001

    await source.send("a")

    assert source.waiting == 1


@pytest.mark.asyncio
async def test_records_that_were_sent_before_the_job_runs_wait_for_it() -> None:
    source = PushSource[int](capacity=2)
    async with running(source.send_many([1, 2, 3])) as sending:
        assert (source.waiting, sending.done()) == (2, False)

        async with opened(source) as reader:
            found = [await reader.read(10), await reader.read(10)]
            await sending

    assert found == [Chunk([1, 2], 2), Chunk([3], 3)]


@pytest.mark.asyncio
async def test_senders_wait_while_the_source_is_full_and_continue_in_order_of_arrival() -> None:
    source, log = PushSource[int](capacity=2), list[str]()
    async with (
        _full(source) as reader,
        running(_record(source, 1, log)),
        running(_record(source, 2, log)),
        running(_record(source, 3, log)),
    ):
        while_full = list(log)

        await reader.read(1)
        await settle()
        after_one = list(log)
        found = [await reader.read(10), await reader.read(10)]

    assert while_full == []
    assert after_one == ["sent 1"]
    assert log == ["sent 1", "sent 2", "sent 3"]
    assert found == [Chunk([0, 1], 3), Chunk([2, 3], 5)]


@pytest.mark.asyncio
async def test_no_sender_overtakes_a_waiting_one() -> None:
    source, log = PushSource[int](capacity=1), list[str]()
    async with _full(source) as reader, running(_record(source, 1, log)):
        await reader.read(1)  # room for one, which the waiting sender gets

        with pytest.raises(SourceFull):
            source.send_nowait(2)

        assert await reader.read(1) == Chunk([1], 2)


@pytest.mark.asyncio
async def test_the_records_of_send_many_stay_together() -> None:
    source, log = PushSource[int](capacity=1), list[str]()
    async with (
        _full(source) as reader,
        running(source.send_many([1, 2, 3])),
        running(_record(source, 9, log)),
    ):
        found = [await reader.read(10) for _ in range(5)]

    assert [chunk.values for chunk in found if chunk] == [[0], [1], [2], [3], [9]]


@pytest.mark.asyncio
async def test_a_cancelled_send_has_sent_nothing_and_lets_the_next_one_pass() -> None:
    source, log = PushSource[int](capacity=1), list[str]()
    async with (
        _full(source) as reader,
        running(_record(source, 1, log)) as first,
        running(_record(source, 2, log)),
    ):
        first.cancel()
        found = [await reader.read(10), await reader.read(10)]

    assert found == [Chunk([0], 1), Chunk([2], 2)]
    assert log == ["sent 2"]


@pytest.mark.asyncio
async def test_a_cancelled_send_does_not_keep_its_record_in_memory() -> None:
    source = PushSource[object](capacity=1)
    source.send_nowait(None)
    value = _Value()
    alive = ref(value)
    async with running(source.send(value)) as sending:
        del value
        alive_while_waiting = alive() is not None

        sending.cancel()
        await settle()

    del sending
    assert alive_while_waiting
    assert alive() is None


class _Value:
    """An object with weak references."""


@pytest.mark.asyncio
async def test_a_cancelled_send_many_keeps_accepted_records_and_drops_the_others() -> None:
    source = PushSource[int](capacity=2)
    async with opened(source) as reader, running(source.send_many([1, 2, 3, 4])) as sending:
        first = await reader.read(1)

        sending.cancel()
        await settle()
        source.close()

        assert first == Chunk([1], 1)
        assert await reader.read(10) == Chunk([2, 3], 3)
        assert await reader.read(10) is None


@pytest.mark.asyncio
async def test_send_nowait_says_how_full_the_source_is() -> None:
    source = PushSource[int](capacity=1)
    source.send_nowait(1)

    with pytest.raises(SourceFull, match="holds 1 records of a capacity of 1") as error:
        source.send_nowait(2)

    assert isinstance(error.value, AflowError)
    assert isinstance(error.value, asyncio.QueueFull)


@pytest.mark.asyncio
async def test_the_input_ends_when_the_source_is_closed_and_all_is_read() -> None:
    source, log = PushSource[int](capacity=1), list[str]()
    bounded_before = source.bounded
    async with _full(source) as reader, running(_record(source, 1, log)):
        source.close()

        found = [await reader.read(10), await reader.read(10), await reader.read(10)]

    assert found == [Chunk([0], 1), Chunk([1], 2), None]
    assert log == ["sent 1"]
    assert (bounded_before, source.bounded) == (False, True)


@pytest.mark.asyncio
async def test_closing_ends_a_read_that_waits() -> None:
    source = PushSource[int]()
    async with opened(source) as reader, running(reader.read(10)) as reading:
        source.close()
        await settle()

        assert reading.done()
        assert reading.result() is None


@pytest.mark.asyncio
async def test_nothing_can_be_sent_after_closing() -> None:
    source = PushSource[int]()
    source.close()

    with pytest.raises(JobStopped, match="is closed"):
        await source.send(1)
    with pytest.raises(JobStopped, match="is closed"):
        source.send_nowait(1)
    with pytest.raises(JobStopped, match="is closed"):
        await source.send_many([1])

    assert source.closed


@pytest.mark.asyncio
async def test_the_end_of_the_job_is_raised_to_waiting_and_later_senders() -> None:
    source = PushSource[int](capacity=1)
    async with asyncio.TaskGroup() as group:
        async with _full(source):
            waiting = group.create_task(_fails_with_job_stopped(source))
            await settle()
            waited = not waiting.done()

        assert "has ended" in await waiting

    assert waited
    with pytest.raises(JobStopped, match="has ended"):
        source.send_nowait(2)


async def _fails_with_job_stopped(source: PushSource[int]) -> str:
    with pytest.raises(JobStopped) as error:
        await source.send(1)
    return str(error.value)


class _Unopened(CollectSink[int]):
    """A sink that cannot be opened."""

    async def writer(self, context: WriterContext) -> Writer[int]:
        raise ConnectionError("no answer")


@pytest.mark.asyncio
async def test_a_job_that_ends_before_it_reads_refuses_senders_until_the_next_one() -> None:
    source = PushSource[int](capacity=1)
    sending = [asyncio.create_task(source.send(number)) for number in range(2)]
    await settle()
    flow = Flow("unopened")
    flow.source(source, name="numbers").to(_Unopened(), name="out")
    with pytest.raises(SinkError, match="could not be opened"):
        await flow.run()

    with pytest.raises(JobStopped, match="the job that read this PushSource has ended"):
        await sending[1]
    with pytest.raises(JobStopped):
        source.send_nowait(2)

    opened_sink = CollectSink[int]()
    flow = Flow("opened")
    flow.source(source, name="numbers").to(opened_sink, name="out")
    async with flow.start():
        await source.send(3)
    assert opened_sink.values == [0, 3]


@pytest.mark.asyncio
async def test_a_send_many_that_the_end_of_the_job_cuts_off_says_how_many_were_taken() -> None:
    source, said = PushSource[int](capacity=2), list[str]()

    async def send() -> None:
        with pytest.raises(JobStopped) as error:
            await source.send_many([1, 2, 3, 4, 5])
        said.append(str(error.value))

    async with opened(source) as reader, running(send()) as sending:
        read = await reader.read(1)
        await settle()
        leftover = reader.leftover()
        await sending

    assert read == Chunk([1], 1)
    assert leftover == Chunk([2, 3], 3)
    assert said[0].startswith("of the 5 records of send_many() the first 3 were taken, and the ")


@pytest.mark.asyncio
async def test_records_that_a_failed_job_had_accepted_are_read_by_the_next_one() -> None:
    source = PushSource[int]()
    await source.send_many([1, 2, 3])
    async with opened(source) as reader:
        await reader.read(1)

    async with opened(source, position=1) as reader:
        await source.send(4)

        assert await reader.read(10) == Chunk([2, 3, 4], 4)


@pytest.mark.asyncio
async def test_a_stopped_job_takes_accepted_records_and_no_others() -> None:
    source = PushSource[int]()
    async with opened(source) as reader:
        await source.send_many([1, 2])

        leftover = reader.leftover()

        with pytest.raises(JobStopped):
            await source.send(3)
    assert leftover == Chunk([1, 2], 2)
    assert source.waiting == 0


@pytest.mark.asyncio
async def test_nothing_is_left_over_without_accepted_records() -> None:
    async with opened(PushSource[int]()) as reader:
        assert reader.leftover() is None


@pytest.mark.asyncio
async def test_a_cancelled_read_loses_nothing() -> None:
    source = PushSource[int]()
    async with opened(source) as reader:
        async with running(reader.read(10)) as reading:
            await source.send(1)  # wakes the reader, which is cancelled before it runs
            reading.cancel()

        assert await reader.read(10) == Chunk([1], 1)


@pytest.mark.asyncio
async def test_a_second_job_at_the_same_time_is_refused() -> None:
    source = PushSource[int]()
    async with opened(source):
        with pytest.raises(SourceError, match="being read by a running job"):
            await values(source)


@pytest.mark.parametrize("capacity", [0, -1, True])
def test_a_capacity_that_holds_nothing_is_refused(capacity: int) -> None:
    with pytest.raises(FlowDefinitionError, match="above zero"):
        PushSource[int](capacity=capacity)


def test_it_belongs_to_no_event_loop_until_it_is_used() -> None:
    source = PushSource[int](capacity=1)
    source.send_nowait(1)
    source.close()

    assert asyncio.run(values(source)) == [1]


@pytest.mark.asyncio
async def test_another_thread_sends_through_the_loop() -> None:
    source = PushSource[int]()
    loop = asyncio.get_running_loop()

    def in_thread() -> None:
        asyncio.run_coroutine_threadsafe(source.send(1), loop).result()

    await asyncio.to_thread(in_thread)

    assert source.waiting == 1
