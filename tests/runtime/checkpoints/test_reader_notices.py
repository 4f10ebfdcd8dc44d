"""Readers are told which positions completed checkpoints cover, and which ones no kept checkpoint needs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from aflow import Checkpointing, CollectSink, Flow, Source
from aflow.connect import Chunk, Position, Reader, Split
from aflow.errors import SourceError
from aflow.restart import FixedDelay
from aflow.testing.virtual_time import settle, virtual_time

pytestmark = pytest.mark.usefixtures("inline_threads")


class Queue(Source[int]):
    """A source of numbers that are acknowledged; ``events`` are the calls to its reader."""

    bounded = False

    def __init__(self, *, ends_at: int | None = None, fails: bool = False) -> None:
        self.ends_at = ends_at
        self.fails = fails
        self.events: list[tuple[str, object]] = []
        self.available = asyncio.Semaphore(0)
        #: Cleared while the handling of a notice takes long.
        self.quick = asyncio.Event()
        self.quick.set()

    def offer(self, count: int) -> None:
        for _ in range(count):
            self.available.release()

    async def splits(self) -> Sequence[Split]:
        return (Split("queue"),)

    async def reader(self, split: Split, position: Position | None) -> Reader[int]:
        return QueueReader(self, position if isinstance(position, int) else 0)

    async def on_job_end(self) -> None:
        self.events.append(("job ended", None))


class QueueReader(Reader[int]):
    def __init__(self, queue: Queue, position: int) -> None:
        self.queue = queue
        self.position = position

    async def read(self, limit: int) -> Chunk[int] | None:
        if self.position == self.queue.ends_at:
            return None
        await self.queue.available.acquire()
        self.position += 1
        return Chunk([self.position], self.position)

    async def on_checkpoint_completed(self, position: Position) -> None:
        if self.queue.fails:
            raise ConnectionError("the broker is gone")
        await self.queue.quick.wait()
        self.queue.events.append(("completed", position))

    async def on_checkpoints_removed(self, position: Position) -> None:
        self.queue.events.append(("removed", position))

    async def close(self) -> None:
        self.queue.events.append(("closed", None))


def flow_of(queue: Queue) -> Flow:
    flow = Flow("queue")
    flow.source(queue, name="numbers").to(CollectSink[int](), name="out")
    return flow


def settings(folder: Path, keep: int = 2) -> Checkpointing:
    return Checkpointing(storage=folder, every=None, keep=keep)


@virtual_time
async def test_a_position_is_released_when_the_checkpoints_before_it_are_removed(
    tmp_path: Path,
) -> None:
    queue = Queue()
    async with flow_of(queue).start(checkpointing=settings(tmp_path)) as job:
        for _ in range(4):
            queue.offer(10)
            await settle()
            await job.checkpoint()
            await settle()
        events = list(queue.events)

    assert events == [
        *[("completed", 10), ("removed", 10)],  # the only one that is kept
        *[("completed", 20), ("removed", 10)],
        *[("completed", 30), ("removed", 20)],
        *[("completed", 40), ("removed", 30)],
    ]


@virtual_time
async def test_the_last_checkpoint_is_noticed_before_the_reader_is_closed(tmp_path: Path) -> None:
    queue = Queue()
    async with flow_of(queue).start(checkpointing=settings(tmp_path)):
        queue.offer(7)
        await settle()

    assert queue.events == [
        *[("completed", 7), ("removed", 7), ("closed", None), ("job ended", None)]
    ]


@virtual_time
async def test_a_split_that_has_ended_is_covered_by_the_last_checkpoint(tmp_path: Path) -> None:
    queue = Queue(ends_at=5)
    async with flow_of(queue).start(checkpointing=settings(tmp_path)) as job:
        queue.offer(5)
        await job.wait()

    assert ("completed", 5) in queue.events
    assert queue.events[-2:] == [("closed", None), ("job ended", None)]


@virtual_time
async def test_a_savepoint_is_no_notice(tmp_path: Path) -> None:
    queue = Queue()
    async with flow_of(queue).start(checkpointing=settings(tmp_path / "state")) as job:
        queue.offer(3)
        await settle()
        await job.savepoint(tmp_path / "savepoint")
        await settle()

        assert queue.events == []
        await job.cancel()

    assert queue.events == [("closed", None), ("job ended", None)]


@virtual_time
async def test_positions_before_a_restored_checkpoint_are_kept_until_older_ones_are_removed(
    tmp_path: Path,
) -> None:
    first = Queue()
    async with flow_of(first).start(checkpointing=settings(tmp_path, keep=3)) as job:
        for _ in range(3):
            first.offer(10)
            await settle()
            await job.checkpoint()
        await job.cancel()

    second = Queue()
    async with flow_of(second).start(checkpointing=settings(tmp_path, keep=3)) as job:
        for _ in range(3):
            second.offer(10)
            await settle()
            await job.checkpoint()
            await settle()
        await job.cancel()

    assert [event for event in second.events if event[0] == "removed"] == [
        ("removed", 30),  # positions of the two older checkpoints are unknown in this process
        ("removed", 40),
    ]


@virtual_time
async def test_a_slow_reader_skips_notices_that_a_later_one_covers(tmp_path: Path) -> None:
    queue = Queue()
    async with flow_of(queue).start(checkpointing=settings(tmp_path)) as job:
        queue.quick.clear()
        for _ in range(3):
            queue.offer(10)
            await settle()
            await job.checkpoint()
        queue.quick.set()
        await settle()
        completed = [position for name, position in queue.events if name == "completed"]

    assert completed == [10, 30]


@virtual_time
async def test_a_reader_that_cannot_handle_a_notice_fails_the_job(tmp_path: Path) -> None:
    queue = Queue(fails=True)

    async def run() -> None:
        async with flow_of(queue).start(checkpointing=settings(tmp_path)) as job:
            queue.offer(1)
            await settle()
            await job.checkpoint()
            await job.wait()

    with pytest.raises(SourceError, match=r"source 'numbers' could not handle a checkpoint .*gone"):
        await run()
    assert queue.events == [("closed", None), ("job ended", None)]


@virtual_time
async def test_a_restart_closes_the_reader_and_ends_no_job(tmp_path: Path) -> None:
    queue = Queue(fails=True)
    restart = FixedDelay(1, timedelta(seconds=1))
    async with flow_of(queue).start(checkpointing=settings(tmp_path), restart=restart) as job:
        queue.offer(1)
        await settle()
        await job.checkpoint()
        await settle()
        queue.fails = False
        await job.ready()
        queue.offer(1)
        await settle()
        await job.checkpoint()
        await settle()
        events = list(queue.events)

    assert events == [("closed", None), ("completed", 2), ("removed", 1)]
