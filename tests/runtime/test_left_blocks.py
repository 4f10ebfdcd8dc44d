"""Nothing of a job runs after its block, however often and by whom the host is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import anyio
import pytest

import aflow as af
from aflow.connect import Position, Reader, Source, SourceError, Split
from aflow.restart import FixedDelay
from aflow.testing import VirtualClock
from aflow.testing.virtual_time import virtual_time


class _SlowToRelease(Source[int]):
    """A source whose reader fails or waits; the close and the end of the job take a minute each."""

    bounded = False

    def __init__(self, *, fails: bool = False) -> None:
        self.fails = fails
        self.events: list[str] = []

    async def splits(self) -> Sequence[Split]:
        return [Split("one")]

    async def reader(self, split: Split, position: Position | None) -> Reader[int]:
        return _SlowReader(self)

    async def on_job_end(self) -> None:
        await asyncio.sleep(60)
        self.events.append("released")


class _SlowReader(Reader[int]):
    def __init__(self, source: _SlowToRelease) -> None:
        self._source = source

    async def read(self, limit: int) -> None:
        await asyncio.sleep(1 if self._source.fails else 3600)
        raise ConnectionError("on purpose")

    async def close(self) -> None:
        await asyncio.sleep(60)
        self._source.events.append("closed")


def started(source: _SlowToRelease, **options: object) -> af.Job:
    flow = af.Flow("left")
    flow.source(source).to(af.CollectSink())
    return flow.start(options=af.Options(clock=VirtualClock()), **options)  # type: ignore[arg-type]


@virtual_time
async def test_a_cancelled_scope_of_anyio_waits_for_the_end_of_the_job() -> None:
    source = _SlowToRelease()
    job = started(source)

    with anyio.move_on_after(5) as scope:
        async with job:
            await asyncio.sleep(3600)

    assert scope.cancelled_caught
    assert not job.running
    assert source.events == ["closed", "released"]


@pytest.mark.parametrize("leaves_first", [False, True])
@virtual_time
async def test_a_host_that_is_cancelled_again_waits_for_the_end_of_the_job(
    leaves_first: bool,
) -> None:
    source, jobs = _SlowToRelease(), list[af.Job]()

    async def host() -> None:
        async with started(source) as job:
            jobs.append(job)
            await asyncio.sleep(4 if leaves_first else 3600)

    task = asyncio.create_task(host())
    for _ in range(3):
        await asyncio.sleep(5)
        task.cancel()
    await asyncio.wait([task])

    assert task.cancelled()
    assert not jobs[0].running
    assert source.events == ["closed", "released"]


@virtual_time
async def test_the_end_of_a_job_that_waits_for_a_restart_is_not_cancelled() -> None:
    source, loop = _SlowToRelease(fails=True), asyncio.get_running_loop()

    async with started(source, restart=FixedDelay(1, timedelta(hours=1))) as job:
        await asyncio.sleep(100)  # it waits for the restart
        stopping = asyncio.create_task(job.stop())
        await asyncio.sleep(5)
        await job.cancel()
        await asyncio.wait([stopping])

    assert source.events == ["closed", "released"]
    assert loop.time() == 160
    assert isinstance(job.failure, SourceError)


@virtual_time
async def test_the_end_of_a_job_whose_start_fails_is_not_cancelled(tmp_path: Path) -> None:
    source = _SlowToRelease()
    job = started(
        source,
        checkpointing=af.Checkpointing(storage=tmp_path / "state"),
        restore=tmp_path / "missing",
    )
    starting = asyncio.create_task(job.__aenter__())
    await asyncio.sleep(5)

    starting.cancel()
    await asyncio.wait([starting])

    assert source.events == ["released"]
    assert isinstance(job.failure, af.RestoreError)
