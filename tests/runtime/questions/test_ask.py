"""A host asks a running job, and gets the result that the pipeline made of its own record."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest

import aflow as af
from aflow.errors import FlowDefinitionError, JobStopped, NoResult
from aflow.model.questions import Correlation
from aflow.restart import FixedDelay
from aflow.testing.virtual_time import settle, virtual_time

pytestmark = pytest.mark.usefixtures("inline_threads")

SECOND = timedelta(seconds=1)


async def half(number: int) -> float:
    """A call that takes as many ms as the number."""
    await asyncio.sleep(number / 1000)
    return number / 2


class Squares(af.KeyedProcess[int, int, int]):
    """Emits the square of each number."""

    def process(self, value: int, ctx: af.ProcessContext) -> list[int]:
        return [value * value]


def question_flow(
    source: af.PushSource[int] | af.DurablePushSource[int],
    *,
    ordered: bool = False,
) -> af.Flow:
    """Even numbers have the half as result, after a call; others have none."""
    flow = af.Flow("halves")
    numbers = flow.source(source, name="numbers")
    even = numbers.filter(lambda number: number % 2 == 0, name="even")
    calls = even.rebalance().map_async(half, ordered=ordered, capacity=1_000, name="half")
    calls.key_by(lambda number: number, name="key").reduce(lambda before, now: now, name="last").to(
        af.ReplySink[float](), name="reply"
    )
    return flow


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("parallelism", [1, 3])
@virtual_time
async def test_each_host_gets_the_result_of_its_own_record(ordered: bool, parallelism: int) -> None:
    source = af.PushSource[int](capacity=50)
    async with question_flow(source, ordered=ordered).start(parallelism=parallelism) as job:
        asked = [job.ask(source, number) for number in range(500)]
        answers = await asyncio.gather(*asked, return_exceptions=True)

    for number, answer in enumerate(answers):
        if number % 2:
            assert isinstance(answer, NoResult)
        else:
            assert answer == number / 2


@virtual_time
async def test_a_record_between_questions_answers_none_of_them() -> None:
    source = af.PushSource[int]()
    async with question_flow(source).start() as job:
        await source.send_many(range(0, 40, 2))
        asking = asyncio.create_task(job.ask(source, 100))
        await settle()
        await source.send_many(range(0, 40, 2))
        assert await asking == 50


@virtual_time
async def test_no_result_is_told_at_once_and_not_after_the_timeout() -> None:
    source = af.PushSource[int]()
    async with question_flow(source).start() as job:
        began = asyncio.get_running_loop().time()
        with pytest.raises(NoResult):
            await job.ask(source, 7, timeout=timedelta(hours=1))
        assert asyncio.get_running_loop().time() - began < 1


@virtual_time
async def test_a_record_in_an_open_window_has_no_result() -> None:
    source = af.PushSource[int]()
    flow = af.Flow("windows")
    timed = flow.source(source, name="numbers").event_time(lambda number: number)
    windows = timed.key_by(lambda number: 0).window(af.Tumbling(SECOND))
    windows.fold(int, lambda total, number: total + number, name="sum").to(af.ReplySink())
    async with flow.start() as job:
        with pytest.raises(NoResult):
            await job.ask(source, 5)
        # This record fires the window of the first one, whose result is not the one of this record.
        with pytest.raises(NoResult):
            await job.ask(source, 5_000)


@virtual_time
async def test_a_keyed_function_and_a_flat_map_answer_with_their_first_result() -> None:
    source = af.PushSource[int]()
    flow = af.Flow("squares")
    keyed = flow.source(source, name="numbers").key_by(lambda number: number % 3)
    squares = keyed.process(Squares(), name="squares")
    squares.flat_map(lambda square: [square, -square]).to(af.ReplySink())
    async with flow.start(parallelism=2) as job:
        assert await job.ask(source, 5) == 25


@virtual_time
async def test_a_busy_writer_delays_a_reply_and_does_not_lose_it(tmp_path: Path) -> None:
    source = af.PushSource[int]()
    settings = af.Checkpointing(storage=tmp_path, every=timedelta(milliseconds=3))
    async with question_flow(source).start(checkpointing=settings) as job:
        asked = [job.ask(source, number) for number in range(0, 200, 2)]
        assert await asyncio.gather(*asked) == [number / 2 for number in range(0, 200, 2)]


@virtual_time
async def test_a_timeout_and_a_cancellation_leave_the_job_as_it_was() -> None:
    source = af.PushSource[int](capacity=2)
    async with question_flow(source).start() as job:
        with pytest.raises(TimeoutError):
            await job.ask(source, 10_000, timeout=SECOND)
        asking = asyncio.create_task(job.ask(source, 10_000))
        await settle()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        assert await job.ask(source, 20) == 10


@virtual_time
async def test_questions_leave_nothing_behind() -> None:
    source = af.PushSource[int](capacity=100)
    async with question_flow(source).start() as job:
        for start in range(0, 3_000, 100):
            asked = [job.ask(source, number % 50) for number in range(start, start + 100)]
            await asyncio.gather(*asked, return_exceptions=True)
        await settle()
        gc.collect()
        # The fetcher refers to the last chunk.
        assert len([one for one in gc.get_objects() if isinstance(one, Correlation)]) <= 1


@virtual_time
async def test_the_end_of_the_job_is_an_error() -> None:
    source = af.PushSource[int]()
    async with question_flow(source).start() as job:
        asking = asyncio.create_task(job.ask(source, 100_000))
        await settle()
        await job.cancel()
        with pytest.raises(JobStopped, match="ended before it replied"):
            await asking
        with pytest.raises(JobStopped):
            await job.ask(source, 2)


@virtual_time
async def test_a_job_that_was_not_started_answers_nothing() -> None:
    source = af.PushSource[int]()
    job = question_flow(source).start()

    with pytest.raises(JobStopped, match="was not started"):
        await job.ask(source, 2)


@virtual_time
async def test_a_question_from_another_event_loop_is_refused_with_the_remedy() -> None:
    source = af.PushSource[int]()
    async with question_flow(source).start() as job:
        elsewhere = partial(asyncio.run, job.ask(source, 2))
        with ThreadPoolExecutor(1) as thread:
            asking = thread.submit(elsewhere)
            with pytest.raises(FlowDefinitionError, match="run_coroutine_threadsafe"):
                asking.result(timeout=10)


class FailingOnce:
    """A call that fails the job the first time that it gets ``number``."""

    def __init__(self, number: int) -> None:
        self.number: int | None = number

    async def __call__(self, number: int) -> float:
        await asyncio.sleep(0.5)
        if number == self.number:
            self.number = None
            raise ConnectionError("gone")
        return number / 2


def failing_flow(source: af.PushSource[int] | af.DurablePushSource[int]) -> af.Flow:
    flow = af.Flow("halves")
    called = flow.source(source, name="numbers").map_async(FailingOnce(13), name="half")
    called.to(af.ReplySink[float](), name="reply")
    return flow


@virtual_time
async def test_a_restart_is_an_error_for_a_source_in_memory(tmp_path: Path) -> None:
    source = af.PushSource[int]()
    settings = af.Checkpointing(storage=tmp_path, every=None)
    restart = FixedDelay(5, SECOND)
    async with failing_flow(source).start(checkpointing=settings, restart=restart) as job:
        asked = [asyncio.create_task(job.ask(source, number)) for number in (13, 14)]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert [str(answer) for answer in answers] == 2 * [
            "the job was restarted before it replied to the record, which is lost unless a checkpoint covers it"
        ]
        await job.ready()
        assert await job.ask(source, 4) == 2


def refused() -> list[tuple[str, Callable[[af.PushSource[int]], af.Flow], str]]:
    def without_reply(source: af.PushSource[int]) -> af.Flow:
        flow = af.Flow("silent")
        flow.source(source).to(af.CollectSink())
        return flow

    def of_another(source: af.PushSource[int]) -> af.Flow:
        return question_flow(af.PushSource[int]())

    return [
        ("without a reply", without_reply, "never replies"),
        ("source of another job", of_another, "does not read this source"),
    ]


@pytest.mark.parametrize(("name", "build", "message"), refused(), ids=[one[0] for one in refused()])
@virtual_time
async def test_a_question_that_has_no_answer_is_refused(
    name: str, build: Callable[[af.PushSource[int]], af.Flow], message: str
) -> None:
    source = af.PushSource[int]()
    async with build(source).start() as job:
        with pytest.raises(FlowDefinitionError, match=message):
            await job.ask(source, 1)
        await job.cancel()


@virtual_time
async def test_other_sources_take_no_questions() -> None:
    source = af.PushSource[int]()
    async with question_flow(source).start() as job:
        with pytest.raises(FlowDefinitionError, match="takes a PushSource or a DurablePushSource"):
            await job.ask(af.IterableSource([1]), 1)
