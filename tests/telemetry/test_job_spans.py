"""Spans of checkpoints, restarts and restores."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

import aflow as af
from aflow.errors import CheckpointError
from aflow.restart import FixedDelay
from aflow.testing.virtual_time import settle, virtual_time
from tests.inline_threads import inline_threads
from tests.telemetry.tracing import TracedProgram, attributes, is_below

__all__ = ["inline_threads"]

pytestmark = pytest.mark.usefixtures("inline_threads")

SECOND = timedelta(seconds=1)


def failing(source: af.Source[int]) -> af.Flow:
    """A flow with state that fails on 0, once."""
    failures = [1]

    def check(number: int) -> int:
        if number == 0 and failures[0]:
            failures[0] -= 1
            raise ValueError("as planned")
        return number

    flow = af.Flow("sums")
    keyed = (
        flow.source(source, name="numbers").map(check, name="check").key_by(lambda n: n, name="key")
    )
    keyed.reduce(lambda a, b: a + b, name="sum").to(af.CollectSink[int](), name="out")
    return flow


@virtual_time
async def test_checkpoints_are_spans_with_their_costs(tmp_path: Path) -> None:
    program = TracedProgram()
    source = af.PushSource[int]()
    settings = af.Checkpointing(storage=tmp_path / "state", every=None)
    async with failing(source).start(
        parallelism=2, checkpointing=settings, options=program.options
    ) as job:
        await source.send(1)
        info = await job.checkpoint()
        await job.savepoint(tmp_path / "savepoint")

    span = program.only("savepoint")
    assert attributes(span)["aflow.checkpoint.path"] == str(tmp_path / "savepoint")
    span, last = program.named("checkpoint")
    found = attributes(span)
    assert found["aflow.job"] == "sums"
    assert found["aflow.checkpoint.id"] == info.id
    assert found["aflow.checkpoint.kind"] == "checkpoint"
    assert found["aflow.checkpoint.outcome"] == "completed"
    assert found["aflow.checkpoint.size"] == info.bytes > 0
    assert found["aflow.checkpoint.subtasks"] == 3
    assert (
        found["aflow.checkpoint.alignment"] == max(one.alignment_ms for one in info.subtasks) / 1000
    )
    assert span.start_time == info.triggered_at * 1_000_000
    assert span.end_time == (info.triggered_at + round(info.duration_ms or 0)) * 1_000_000
    assert span.status.is_unset
    assert span.parent is None
    assert attributes(last)["aflow.checkpoint.kind"] == "final checkpoint"


@virtual_time
async def test_an_aborted_checkpoint_has_its_reason(tmp_path: Path) -> None:
    program = TracedProgram()
    source = af.PushSource[int]()
    gate = asyncio.Event()
    settings = af.Checkpointing(storage=tmp_path / "state", every=None, timeout=SECOND)

    async def wait(_: int) -> None:
        await gate.wait()

    flow = af.Flow("stuck")
    flow.source(source, name="numbers").to(af.CallbackSink(wait), name="out")
    async with flow.start(checkpointing=settings, options=program.options) as job:
        await source.send(1)
        await settle()
        with pytest.raises(CheckpointError):
            await job.checkpoint()
        gate.set()

    span = program.named("checkpoint")[0]
    assert attributes(span)["aflow.checkpoint.outcome"] == "failed"
    assert attributes(span)["aflow.checkpoint.reason"] == span.status.description != ""
    assert (span.end_time or 0) - (span.start_time or 0) == 1_000_000_000


@virtual_time
async def test_a_restart_lasts_until_the_job_runs_again_and_contains_the_restore(
    tmp_path: Path,
) -> None:
    program = TracedProgram()
    source = af.PushSource[int]()
    settings = af.Checkpointing(storage=tmp_path / "state", every=None)
    async with failing(source).start(
        checkpointing=settings, restart=FixedDelay(3, 2 * SECOND), options=program.options
    ) as job:
        await source.send(1)
        info = await job.checkpoint()
        await source.send(0)
        await asyncio.sleep(3)
        assert job.status is af.metrics.JobStatus.RUNNING

    restart, restore = program.only("restart"), program.only("restore")
    assert is_below(restore, restart)
    assert attributes(restart)["aflow.restart.attempt"] == 1
    assert attributes(restart)["aflow.restart.delay"] == 2.0
    assert attributes(restart)["error.type"] == "OperatorError"
    assert [one.name for one in restart.events] == ["exception"]
    assert attributes(restore)["aflow.checkpoint.id"] == info.id
    assert (restart.end_time or 0) - (restart.start_time or 0) >= 2_000_000_000
    assert restart.status.is_unset


@virtual_time
async def test_a_restart_that_fails_is_an_error(tmp_path: Path) -> None:
    program = TracedProgram()
    source = af.PushSource[int]()

    async def run() -> None:
        async with failing(source).start(
            restart=FixedDelay(1, SECOND), options=program.options
        ) as job:
            await source.send(0)
            await settle()
            await job.cancel()

    await run()

    assert program.only("restart").status.description == "the job is cancelled"
