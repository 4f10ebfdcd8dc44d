"""A job that is never entered warns; one that was entered, or refused, does not."""

from __future__ import annotations

import gc
import warnings

import pytest

import aflow as af
from aflow.testing.virtual_time import virtual_time


def flow() -> af.Flow:
    made = af.Flow("forgotten")
    made.source([1]).to(af.CollectSink())
    return made


def forget() -> None:
    flow().start()
    gc.collect()


def test_a_job_that_is_collected_without_async_with_warns_with_the_remedy() -> None:
    with pytest.warns(RuntimeWarning) as caught:
        forget()

    [warning] = caught
    assert "the job of flow 'forgotten' was never started, so nothing ran" in str(warning.message)
    assert "use 'async with flow.start() as job:' or 'await flow.run()'" in str(warning.message)


@virtual_time
async def test_a_job_that_is_entered_does_not_warn() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        async with flow().start() as job:
            await job.wait()
        await flow().run()
        del job
        gc.collect()

    assert caught == []


@virtual_time
async def test_a_job_that_raised_to_its_host_does_not_warn() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        job = flow().start()
        with pytest.raises(af.JobStopped, match="was not started"):
            await job.wait()
        del job
        gc.collect()

    assert caught == []


def test_a_start_that_is_refused_does_not_warn() -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pytest.raises(af.FlowDefinitionError):
            flow().start(parallelism=0)
        with pytest.raises(af.FlowDefinitionError):
            af.Flow("empty").start()
        gc.collect()

    assert caught == []
