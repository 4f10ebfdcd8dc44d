"""Blocks that are cancelled when their job fails."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import timedelta

import pytest

import aflow as af
from aflow.testing import settle
from aflow.testing.virtual_time import virtual_time


def inverses(source: af.Source[int]) -> af.Flow:
    flow = af.Flow("inverses")
    flow.source(source, name="numbers").map(lambda n: 1 / n, name="invert").to(af.DiscardSink())
    return flow


@virtual_time
async def test_a_failure_ends_the_block_that_waits_for_something_else() -> None:
    source = af.PushSource[int]()

    async def block() -> None:
        async with inverses(source).start() as job, job.cancel_on_failure():
            await source.send(0)
            await asyncio.Event().wait()

    with pytest.raises(af.OperatorError, match="'invert' failed on record 0"):
        await block()

    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0
    await asyncio.sleep(0)


@virtual_time
async def test_a_block_without_it_continues() -> None:
    source = af.PushSource[int]()
    continued: list[bool] = []

    async def block() -> None:
        async with inverses(source).start():
            await source.send(0)
            await settle()
            continued.append(True)

    with pytest.raises(af.OperatorError):
        await block()

    assert continued == [True]


@virtual_time
async def test_a_restart_and_the_normal_end_of_the_job_cancel_nothing() -> None:
    source = af.PushSource[int]()
    strategy = af.restart.FixedDelay(1, timedelta(milliseconds=1))

    async with inverses(source).start(restart=strategy) as job, job.cancel_on_failure():
        await source.send(0)
        await asyncio.sleep(1)
        source.close()
        await asyncio.sleep(1)

    assert len(job.restarts) == 1
    assert job.failure is None


@virtual_time
async def test_a_cancellation_by_others_remains_one() -> None:
    source = af.PushSource[int]()

    async def block() -> None:
        async with inverses(source).start() as job, job.cancel_on_failure():
            await asyncio.Event().wait()

    task = asyncio.create_task(block())
    await settle()
    await source.send(0)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


@virtual_time
async def test_a_cancellation_by_others_prevails_over_the_failure() -> None:
    source = af.PushSource[int]()
    jobs: list[af.Job] = []

    async def block() -> None:
        async with inverses(source).start() as job, job.cancel_on_failure():
            jobs.append(job)
            await asyncio.Event().wait()

    task = asyncio.create_task(block())
    await settle()
    await source.send(0)
    while jobs[0].failure is None:  # noqa: ASYNC110 - in the moment of the failure
        await asyncio.sleep(0)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


@virtual_time
async def test_the_error_of_the_block_itself_is_raised_as_it_is() -> None:
    source = af.PushSource[int]()

    async def block() -> None:
        async with inverses(source).start() as job, job.cancel_on_failure():
            await source.send(0)
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await block()


@virtual_time
async def test_a_block_that_is_entered_after_the_failure_raises_it_at_once() -> None:
    source = af.PushSource[int]()
    entered: list[bool] = []

    async def block() -> None:
        async with inverses(source).start() as job:
            await source.send(0)
            await settle()
            async with job.cancel_on_failure():
                entered.append(True)

    with pytest.raises(af.OperatorError):
        await block()

    assert entered == []


@virtual_time
async def test_a_block_that_ends_in_the_moment_of_the_failure_is_not_cancelled_later() -> None:
    source = af.PushSource[int]()

    async def block() -> None:
        async with inverses(source).start() as job, job.cancel_on_failure():
            await source.send(0)
            while job.failure is None:  # noqa: ASYNC110 - in the moment of the failure
                await asyncio.sleep(0)

    with pytest.raises(af.OperatorError):
        await block()

    await asyncio.sleep(0)  # no cancellation is left


@virtual_time
async def test_another_task_is_cancelled_without_the_block_of_the_job() -> None:
    source = af.PushSource[int]()
    seen: list[str] = []

    async def handler(job: af.Job) -> None:
        try:
            async with job.cancel_on_failure():
                await asyncio.Event().wait()
        except af.OperatorError as error:
            seen.append(error.operator)

    async def block() -> None:
        async with inverses(source).start() as job:
            task = asyncio.create_task(handler(job))
            await settle()
            await source.send(0)
            await task
            seen.append("block")

    with pytest.raises(af.OperatorError):
        await block()

    assert seen == ["invert", "block"]


@virtual_time
async def test_it_cannot_be_entered_twice_nor_before_the_start() -> None:
    source = af.PushSource[int]()
    with pytest.raises(af.JobStopped, match="was not started"):
        inverses(source).start().cancel_on_failure()

    async with inverses(source).start() as job:
        block = job.cancel_on_failure()
        async with block:
            pass
        with pytest.raises(RuntimeError, match="was entered before"):
            async with block:
                pass
