"""Questions through a log on disk: they survive a restart of the job."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

import aflow as af
from aflow.errors import JobStopped, NoResult
from aflow.restart import FixedDelay


def flow_of(source: af.DurablePushSource[int], fails: set[int]) -> af.Flow:
    async def half(number: int) -> float:
        await asyncio.sleep(0.02)
        if number in fails:
            fails.discard(number)
            raise ConnectionError("gone")
        return number / 2

    flow = af.Flow("halves")
    even = flow.source(source, name="numbers").filter(lambda number: number % 2 == 0, name="even")
    even.map_async(half, name="half").to(af.ReplySink[float](), name="reply")
    return flow


@pytest.mark.asyncio
async def test_questions_are_answered_through_a_log(tmp_path: Path) -> None:
    source = af.DurablePushSource(tmp_path / "log", of=int)
    settings = af.Checkpointing(storage=tmp_path / "state")
    async with flow_of(source, set()).start(checkpointing=settings) as job:
        await source.send_many(range(100))
        asked = [job.ask(source, number) for number in range(100)]
        answers = await asyncio.gather(*asked, return_exceptions=True)

    for number, answer in enumerate(answers):
        assert isinstance(answer, NoResult) if number % 2 else answer == number / 2


@pytest.mark.asyncio
async def test_a_record_that_is_read_again_after_a_restart_is_answered(tmp_path: Path) -> None:
    source = af.DurablePushSource(tmp_path / "log", of=int)
    settings = af.Checkpointing(storage=tmp_path / "state", every=None)
    restart = FixedDelay(5, timedelta(milliseconds=10))
    flow = flow_of(source, {20})
    async with flow.start(checkpointing=settings, restart=restart) as job:
        asked = [job.ask(source, number) for number in range(10, 40, 2)]
        answers = await asyncio.gather(*asked)
        assert job.metrics().restarts == 1

    assert answers == [number / 2 for number in range(10, 40, 2)]


@pytest.mark.asyncio
async def test_a_record_that_a_checkpoint_covers_is_not_answered_after_a_restart(
    tmp_path: Path,
) -> None:
    source = af.DurablePushSource(tmp_path / "log", of=int)
    settings = af.Checkpointing(storage=tmp_path / "state", every=None)
    restart = FixedDelay(5, timedelta(milliseconds=10))
    begun, slow = asyncio.Event(), asyncio.Event()

    async def half(number: int) -> float:
        begun.set()
        await slow.wait()
        raise ConnectionError("gone")

    flow = af.Flow("halves")
    called = flow.source(source, name="numbers").map_async(half, name="half")
    called.to(af.ReplySink[float](), name="reply")
    async with flow.start(checkpointing=settings, restart=restart) as job:
        asking = asyncio.create_task(job.ask(source, 2))
        await begun.wait()
        await job.checkpoint()
        slow.set()
        with pytest.raises(JobStopped, match="restarted before it replied to the record, which is"):
            await asyncio.wait_for(asking, 300)
        await job.cancel()


@pytest.mark.asyncio
async def test_a_log_that_is_open_after_its_job_accepts_no_question(tmp_path: Path) -> None:
    settings = af.Checkpointing(storage=tmp_path / "state")
    async with af.DurablePushSource(tmp_path / "log", of=int) as source:
        async with flow_of(source, set()).start(checkpointing=settings) as job:
            await job.stop()
        with pytest.raises(JobStopped, match="ended before it replied"):
            await asyncio.wait_for(job.ask(source, 2), 300)


@pytest.mark.asyncio
async def test_answered_and_abandoned_questions_leave_nothing_in_the_log(tmp_path: Path) -> None:
    source = af.DurablePushSource(tmp_path / "log", of=int)
    settings = af.Checkpointing(storage=tmp_path / "state", every=None)
    restart = FixedDelay(5, timedelta(milliseconds=10))
    async with flow_of(source, {20}).start(checkpointing=settings, restart=restart) as job:
        asked = [asyncio.create_task(job.ask(source, number)) for number in range(100)]
        await asyncio.sleep(0)
        for one in asked[50:]:
            one.cancel()
        answers = await asyncio.gather(*asked[:50], return_exceptions=True)
        with pytest.raises(NoResult):
            await job.ask(source, 1)
        await asyncio.sleep(0)  # the callback of the answer
        opened = source._opened  # pyright: ignore[reportPrivateUsage]
        assert opened is not None
        assert not opened.followed
        assert len(opened.unread) <= 1  # that of the last one

    for number, answer in enumerate(answers):
        assert isinstance(answer, NoResult) if number % 2 else answer == number / 2
