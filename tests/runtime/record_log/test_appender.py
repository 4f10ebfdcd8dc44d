"""Records that are added in one pass of the loop, or during a write, are written together and in order."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from aflow.runtime.clock import SystemClock
from aflow.runtime.record_log.appender import GroupWritten, LogAppender
from tests.runtime.checkpoints.faulty_files import FaultyFiles
from tests.runtime.record_log.logs import content, opened, record


@dataclass
class SlowDisk(FaultyFiles):
    """A disk whose syncs wait while ``goes_on`` is not set."""

    goes_on: threading.Event = field(default_factory=threading.Event)

    def count(self, call: str) -> None:
        if call.startswith("sync "):
            assert self.goes_on.wait(60)
        super().count(call)


class Appended:
    """An appender, and the groups that it has written."""

    def __init__(self, folder: Path) -> None:
        self.disk = SlowDisk()
        self.log = opened(folder, self.disk, segment_bytes=100_000)
        self.groups: list[list[int]] = []
        self._written = asyncio.Event()
        self.appender = LogAppender[int](
            self.log, SystemClock(), asyncio.get_running_loop(), self._on_written
        )

    def add(self, number: int, size: int = 10) -> None:
        group = self.appender.group
        group.senders.append(None)
        group.records.append(record(number))
        group.values.append(number)
        group.size += size
        self.appender.added()

    def _on_written(self, written: GroupWritten[int]) -> None:
        assert written.error is None
        assert written.first == sum(map(len, self.groups))
        self.groups.append(written.group.values)
        self._written.set()

    async def until(self, groups: int) -> None:
        while len(self.groups) < groups:
            self._written.clear()
            await self._written.wait()


@asynccontextmanager
async def appended(folder: Path) -> AsyncGenerator[Appended]:
    one = Appended(folder)
    yield one
    one.disk.goes_on.set()
    await one.appender.close()
    log = opened(folder)
    assert content(log) == [record(number) for group in one.groups for number in group]
    log.close()


@pytest.mark.asyncio
async def test_records_of_one_pass_share_a_sync(tmp_path: Path) -> None:
    async with appended(tmp_path) as log:
        log.disk.goes_on.set()
        for number in range(1000):
            log.add(number)
        await log.until(1)

        assert log.groups == [list(range(1000))]


@pytest.mark.asyncio
async def test_records_that_are_added_during_a_write_share_the_next_one(tmp_path: Path) -> None:
    async with appended(tmp_path) as log:
        log.add(0)
        await asyncio.sleep(0)
        for number in (1, 2):
            log.add(number)
            await asyncio.sleep(0)
        log.disk.goes_on.set()
        await log.until(2)

        assert log.groups == [[0], [1, 2]]


@pytest.mark.asyncio
async def test_a_group_is_as_large_as_a_block(tmp_path: Path) -> None:
    async with appended(tmp_path) as log:
        log.disk.goes_on.set()
        for number in range(4):
            log.add(number, size=3 << 20)
        await log.until(2)

        assert log.groups == [[0, 1], [2, 3]]


@pytest.mark.asyncio
async def test_work_on_the_log_follows_the_records_that_were_added_before(tmp_path: Path) -> None:
    async with appended(tmp_path) as log:
        log.disk.goes_on.set()
        log.add(0)
        working = asyncio.ensure_future(log.appender.run(lambda: log.log.end))
        await asyncio.sleep(0)
        log.add(1)

        assert await working == 1
        await log.until(2)


@pytest.mark.asyncio
async def test_closing_writes_what_was_added_in_the_same_pass(tmp_path: Path) -> None:
    async with appended(tmp_path) as log:
        log.disk.goes_on.set()
        log.add(0)

    assert log.groups == [[0]]


def test_what_was_added_is_written_though_the_loop_has_ended(tmp_path: Path) -> None:
    async def add() -> LogAppender[int]:
        log = Appended(tmp_path)
        log.disk.goes_on.set()
        log.add(0)
        return log.appender

    asyncio.run(add()).close_now()

    log = opened(tmp_path)
    assert content(log) == [record(0)]
    log.close()
