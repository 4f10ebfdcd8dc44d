"""The status of a job through its life, and the deadline of a stop."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta
from pathlib import Path

import pytest

import aflow as af
from aflow import Checkpointing, CollectSink, Flow, Job, PushSource
from aflow.errors import FlowDefinitionError, JobStopped, OperatorError, StopTimeout
from aflow.metrics import JobStatus
from aflow.runtime.job_status import StatusRecord
from aflow.testing.virtual_time import settle, virtual_time

SECOND = timedelta(seconds=1)


def failing(source: af.Source[int], failures: int) -> Flow:
    """A flow that fails on the first records, so many times."""
    flow = Flow("status")
    left = [failures]

    def check(number: int) -> int:
        if left[0]:
            left[0] -= 1
            raise ValueError("as planned")
        return number

    flow.source(source, name="numbers").map(check, name="check").to(CollectSink[int](), name="out")
    return flow


@virtual_time
async def test_a_job_is_created_then_running_then_finished() -> None:
    source = PushSource[int]()
    job = failing(source, 0).start()
    seen = [job.status]
    async with job:
        seen.append(job.status)
        await job.ready()
    seen.append(job.status)

    assert seen == [JobStatus.CREATED, JobStatus.RUNNING, JobStatus.FINISHED]
    assert job.failure is None


@virtual_time
async def test_a_failed_job_has_its_failure_also_after_it_was_raised() -> None:
    source = PushSource[int]()
    job = failing(source, 1).start()

    async def run() -> None:
        async with job:
            await source.send(1)
            await job.wait()

    with pytest.raises(OperatorError):
        await run()

    assert job.status is JobStatus.FAILED
    assert isinstance(job.failure, OperatorError)
    with pytest.raises(JobStopped, match="job 'status' is failed"):
        await job.ready()


@virtual_time
async def test_a_job_between_a_failure_and_its_restart_is_restarting_and_ready_waits() -> None:
    source = PushSource[int]()
    restart = af.restart.FixedDelay(3, SECOND)
    async with failing(source, 1).start(restart=restart) as job:
        await source.send(1)
        await settle()
        assert (job.status, job.running) == (JobStatus.RESTARTING, True)
        waiting = asyncio.create_task(job.ready())
        await settle()
        assert not waiting.done()

        await asyncio.sleep(1)
        await waiting

        assert job.status is JobStatus.RUNNING
        assert job.failure is None


@virtual_time
async def test_ready_waits_for_the_restart_of_a_job_that_fails_as_soon_as_it_runs() -> None:
    record = StatusRecord("status", lambda status: None)
    waiting = asyncio.create_task(record.settled())
    await settle()
    record.change(JobStatus.RUNNING)
    record.change(JobStatus.RESTARTING)
    await settle()
    assert not waiting.done()

    record.change(JobStatus.RUNNING)

    assert await waiting is JobStatus.RUNNING


@virtual_time
async def test_a_cancelled_job_is_cancelled() -> None:
    async with failing(PushSource[int](), 0).start() as job:
        await job.cancel()

    assert job.status is JobStatus.CANCELLED
    with pytest.raises(JobStopped, match="is cancelled"):
        await job.ready()


@virtual_time
async def test_a_job_that_continues_from_a_checkpoint_is_restoring_first(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "aflow.job")
    for _ in range(2):
        flow = Flow("status")
        flow.source(PushSource[int](), name="numbers").to(CollectSink[int](), name="out")
        async with flow.start(checkpointing=Checkpointing(storage=tmp_path)):
            pass

    changes = [vars(record)["status"] for record in caplog.records if "status" in vars(record)]
    first = ["starting", "running", "draining", "finished"]
    assert changes == [*first, "starting", "restoring", "running", "draining", "finished"]


async def slow(number: int) -> int:
    await asyncio.sleep(3600)
    return number


def calling(source: PushSource[int]) -> Flow:
    flow = Flow("calls")
    flow.source(source, name="numbers").map_async(slow, name="asked").to(
        CollectSink[int](), name="out"
    )
    return flow


@virtual_time
async def test_a_stop_that_misses_its_deadline_cancels_and_says_what_was_left() -> None:
    source = PushSource[int]()
    async with calling(source).start() as job:
        await source.send_many([1, 2, 3])
        await settle()
        stopping = asyncio.create_task(job.stop(deadline=5 * SECOND))
        await asyncio.sleep(4)
        assert (stopping.done(), job.status) == (False, JobStatus.DRAINING)
        await asyncio.sleep(2)

        with pytest.raises(StopTimeout, match=r"within 5 s; left: 3 calls of 'asked'$"):
            await stopping
        assert job.status is JobStatus.CANCELLED


@virtual_time
async def test_a_stop_within_its_deadline_is_a_normal_one() -> None:
    source = PushSource[int]()
    job: Job
    async with failing(source, 0).start() as job:
        await source.send(1)
        await job.stop(deadline=5 * SECOND)

        assert job.status is JobStatus.FINISHED


@virtual_time
async def test_the_deadline_of_a_stop_must_be_positive() -> None:
    async with failing(PushSource[int](), 0).start() as job:
        with pytest.raises(FlowDefinitionError, match=r"deadline of stop\(\)"):
            await job.stop(deadline=timedelta(0))
        assert job.status is JobStatus.RUNNING
