"""One job in a process of its own, as the commands start it."""

from __future__ import annotations

import asyncio

import pytest

from aflow.api.flow import Flow
from aflow.cli.running import Run
from aflow.cli.usage import DONE
from aflow.runtime.builtin_connectors import CallbackSink, PushSource
from aflow.runtime.job import Job
from aflow.runtime.metrics import JobMetrics


def test_who_follows_a_job_sees_it_run_and_is_cancelled_at_its_end() -> None:
    flow, pushed, seen = Flow("followed"), PushSource[int](), list[str]()
    flow.source(pushed).to(CallbackSink(lambda value: seen.append(f"got {value}")))

    async def follow(job: Job) -> None:
        seen.append(f"running {job.running}")
        await pushed.send(1)
        pushed.close()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            seen.append(f"cancelled, running {job.running}")
            raise

    def report(metrics: JobMetrics) -> None:
        seen.append(f"in all {metrics.steps['to #1'].records_in}")

    run = Run(flow=flow, parallelism=1, uvloop=True, say=seen.append, report=report, follow=follow)

    assert run.to_the_end() == DONE
    assert seen == ["running True", "got 1", "cancelled, running False", "in all 1"]


def test_a_failure_of_who_follows_ends_the_job_and_is_raised_with_its_cause() -> None:
    flow, said = Flow("followed"), list[str]()
    flow.source(PushSource[int]()).to(CallbackSink(print))

    async def follow(job: Job) -> None:
        raise OSError("no terminal") from KeyError("TERM")

    run = Run(
        flow=flow, parallelism=1, uvloop=True, say=said.append, report=lambda _: None, follow=follow
    )

    with pytest.raises(OSError, match="no terminal") as caught:
        run.to_the_end()
    assert isinstance(caught.value.__cause__, KeyError)
    assert said == []
