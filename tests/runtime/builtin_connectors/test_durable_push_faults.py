"""A durable push source on a disk that is full or damaged: senders get errors, and nothing is lost or repeated."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

import aflow as af
from aflow import Ack, Checkpointing, DurablePushSource, Flow, Job
from aflow.errors import SourceError
from aflow.model.questions import Question
from tests.runtime.builtin_connectors.helpers import eventually
from tests.runtime.checkpoints.faulty_files import FaultyFiles


@dataclass
class FullDisk(FaultyFiles):
    """A disk that has no room for writes while ``is_full``; ``keeps_half`` if it cannot shorten files either."""

    is_full: bool = False
    keeps_half: bool = False

    def count(self, call: str) -> None:
        super().count(call)
        fails = call.startswith("write") or (self.keeps_half and call.startswith("truncate"))
        if self.is_full and fails:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def source_on(folder: Path, files: FaultyFiles) -> DurablePushSource[int]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("aflow.runtime.builtin_connectors.durable_push.source.DISK", files)
        return DurablePushSource[int](folder / "log", of=int)


def questions_in_memory() -> list[Question]:
    """Return the questions that something refers to, also those of earlier tests in this process."""
    gc.collect()
    return [one for one in gc.get_objects() if isinstance(one, Question)]


def open_questions(earlier: list[Question]) -> int:
    """Return the number of other questions. The fetcher refers to the last one, or the last error does."""
    return len(questions_in_memory()) - len(earlier)


def flow_of(source: DurablePushSource[int], seen: list[int]) -> Flow:
    flow = Flow("numbers")
    numbers = flow.source(source, name="numbers")
    numbers.to(af.CallbackSink(seen.append), name="seen")
    numbers.to(af.ReplySink[int](), name="reply")
    return flow


@pytest.mark.asyncio
async def test_a_full_disk_refuses_records_until_it_has_room(tmp_path: Path) -> None:
    disk, seen = FullDisk(), list[int]()
    source = source_on(tmp_path, disk)
    checkpointing = Checkpointing(storage=tmp_path / "state")
    async with flow_of(source, seen).start(checkpointing=checkpointing):
        await source.send(1, id="one")
        disk.is_full = True
        with pytest.raises(SourceError, match=r"No space left on device.*it was not accepted"):
            await source.send(2, id="two")
        disk.is_full = False
        repeated = await source.send(2, id="two")
        await source.send(3)
        await eventually(lambda: seen == [1, 2, 3])

    assert repeated


@pytest.mark.asyncio
async def test_each_sender_of_a_group_is_told_that_the_disk_is_full(tmp_path: Path) -> None:
    disk = FullDisk(is_full=True)
    async with source_on(tmp_path, disk) as source:
        failures = await asyncio.gather(
            *(source.send(number) for number in range(100)),
            source.send_many([100, 101]),
            return_exceptions=True,
        )
        disk.is_full = False
        await source.send(102)

    assert len(failures) == 101
    assert all(isinstance(failure, SourceError) for failure in failures)
    assert len(set(map(id, failures))) == 101
    assert await processed(tmp_path, 1) == [102]


@pytest.mark.asyncio
async def test_a_record_of_unknown_fate_is_accepted_once_if_it_is_sent_again(
    tmp_path: Path,
) -> None:
    disk = FullDisk(keeps_half=True)
    async with source_on(tmp_path, disk) as source:
        await source.send(1, id="one")
        disk.is_full = True
        with pytest.raises(SourceError, match="send it again with the same id"):
            await source.send(2, id="two")
        disk.is_full = False
        await source.send(2, id="two")

    async with source_on(tmp_path, FaultyFiles()) as source:
        assert not await source.send(2, id="two")
    assert await processed(tmp_path, 2) == [1, 2]


@pytest.mark.asyncio
async def test_a_question_on_a_full_disk_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    earlier = questions_in_memory()
    disk, seen = FullDisk(), list[int]()
    source = source_on(tmp_path, disk)
    checkpointing = Checkpointing(storage=tmp_path / "state")
    async with flow_of(source, seen).start(checkpointing=checkpointing) as job:
        disk.is_full = True
        for number in range(10):
            with pytest.raises(SourceError, match="No space left on device"):
                await job.ask(source, number)
        assert open_questions(earlier) <= 1
        disk.is_full = False
        assert await job.ask(source, 10) == 10

    assert seen == [10]


async def ask_and_disconnect(job: Job, source: DurablePushSource[int], passes: int) -> None:
    """Ask the number of passes, and stop to wait after so many passes of the loop.

    No variable refers to the task afterwards: its error would refer to the question.
    """
    asking = asyncio.create_task(job.ask(source, passes))
    for _ in range(passes):
        await asyncio.sleep(0)
    asking.cancel()
    await asyncio.wait([asking])


@pytest.mark.asyncio
async def test_a_client_that_disconnects_in_a_question_leaves_nothing_behind(
    tmp_path: Path,
) -> None:
    earlier = questions_in_memory()
    seen: list[int] = []
    source = source_on(tmp_path, FullDisk())
    checkpointing = Checkpointing(storage=tmp_path / "state")
    async with flow_of(source, seen).start(checkpointing=checkpointing) as job:
        assert await job.ask(source, 0) == 0
        for passes in range(1, 8):  # before and after the record is in the log
            await ask_and_disconnect(job, source, passes)
        assert await job.ask(source, 8) == 8
        await eventually(lambda: open_questions(earlier) <= 1)  # one may be in the pipeline still

    # Their records are processed nevertheless, once. The first ones were cancelled before they were sent.
    assert sorted(set(seen)) == seen
    assert len(seen) > 2


@pytest.mark.asyncio
async def test_a_lost_record_in_memory_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with source_on(tmp_path, FullDisk(is_full=True)) as source:
        await source.send(1, ack=Ack.MEMORY)
        source.send_nowait(2)

    assert "2 records were not logged: No space left on device" in caplog.text


@pytest.mark.asyncio
async def test_a_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("a file")

    with pytest.raises(SourceError, match=r"the log in .*log cannot be opened"):
        await DurablePushSource[int](tmp_path / "log", of=int).send(1)


@pytest.mark.asyncio
async def test_a_log_of_another_version_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    async with source_on(tmp_path, FaultyFiles()) as source:
        await source.send(1)
    (segment,) = (tmp_path / "log").glob("*.log")
    data = bytearray(segment.read_bytes())
    data[8] = 2
    segment.write_bytes(data)

    newer = DurablePushSource[int](tmp_path / "log", of=int)
    with pytest.raises(SourceError, match="has version 2 of the format of logs in byte 8"):
        await newer.send(2)

    assert segment.read_bytes() == data
    with pytest.raises(SourceError, match="has version 2"):
        await newer.send(2)  # the lock was released, so it is no SourceInUse


async def processed(folder: Path, count: int) -> list[int]:
    """Run a job over the log until it has ``count`` records."""
    seen: list[int] = []
    source = source_on(folder, FaultyFiles())
    flow = flow_of(source, seen)
    async with flow.start(checkpointing=Checkpointing(storage=folder / "state")) as job:
        await eventually(lambda: len(seen) >= count)
        await job.stop()
    return seen
