"""Checkpoints of a job that keeps the processor busy: their worker threads get a share of it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

import aflow as af


@pytest.mark.slow
@pytest.mark.asyncio
async def test_a_busy_job_does_not_starve_the_threads_that_store_its_checkpoints(
    tmp_path: Path,
) -> None:
    # given: work for about a second without a pause (and more keys than are encoded in one time slice)
    flow = af.Flow("busy")
    numbers = flow.source(range(2_000_000), name="numbers").key_by(lambda n: n % 5_000)
    numbers.reduce(lambda a, b: a + b, name="sums").filter(lambda n: n < 0).to(af.CollectSink())

    # when
    every = timedelta(milliseconds=50)
    settings = af.Checkpointing(every=every, storage=tmp_path)
    async with flow.start(checkpointing=settings) as job:
        await job.wait()

    # then: without help, a thread would complete only the last one
    assert job.metrics().checkpoints.completed >= 4
