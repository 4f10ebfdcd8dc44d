"""The close of a reader at the end of its split is completed although its job is cancelled meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

import pytest

import aflow as af
from aflow.connect import Chunk, Position, Reader, Source, Split
from aflow.testing import VirtualClock
from aflow.testing.virtual_time import virtual_time


class _ClosingForAMinute(Source[int]):
    def __init__(self) -> None:
        self.events: list[str] = []
        self.tasks: set[asyncio.Task[object] | None] = set()

    async def splits(self) -> Sequence[Split]:
        return [Split("one"), Split("two")]

    async def reader(self, split: Split, position: Position | None) -> Reader[int]:
        self.tasks.add(asyncio.current_task())
        return _Reader(self)


class _Reader(Reader[int]):
    def __init__(self, source: _ClosingForAMinute) -> None:
        self._source = source
        self._is_read = False

    async def read(self, limit: int) -> Chunk[int] | None:
        self._source.tasks.add(asyncio.current_task())
        ended, self._is_read = self._is_read, True
        return None if ended else Chunk([1], 1)

    async def close(self) -> None:
        self._source.tasks.add(asyncio.current_task())
        self._source.events.append("begun")
        async with asyncio.timeout(3600):  # its own timeouts hold
            await asyncio.sleep(60)
        self._source.events.append("closed")


def started(source: _ClosingForAMinute) -> af.Job:
    flow = af.Flow("closing")
    flow.source(source).to(af.CollectSink())
    return flow.start(options=af.Options(clock=VirtualClock()))


@pytest.mark.parametrize("second", [0, 30, 60, 61])
@virtual_time
async def test_it_is_completed_in_the_task_that_has_read(second: int) -> None:
    source = _ClosingForAMinute()

    async with started(source) as job:
        await asyncio.sleep(second)
        await job.cancel()

    closes = 1 if second < 60 else 2
    assert source.events == ["begun", "closed"] * closes
    assert len(source.tasks) == closes


@virtual_time
async def test_it_is_cancelled_at_the_limit_of_the_job() -> None:
    loop, source = asyncio.get_running_loop(), _ClosingForAMinute()

    async with started(source) as job:
        await asyncio.sleep(1)
        await job.cancel(close_within=timedelta(seconds=5))

    assert source.events == ["begun"]
    assert loop.time() == 6


@virtual_time
async def test_a_failure_elsewhere_waits_for_it() -> None:
    source, flow = _ClosingForAMinute(), af.Flow("closing")

    def fail(value: int) -> int:
        raise ValueError("at the first record")

    flow.source(source).map(fail).to(af.CollectSink())

    with pytest.raises(af.OperatorError):
        await flow.run(options=af.Options(clock=VirtualClock()))

    assert source.events == ["begun", "closed"]
