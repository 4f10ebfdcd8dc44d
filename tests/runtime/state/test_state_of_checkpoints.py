"""The host reads the state of the last completed checkpoint."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import aflow as af
from aflow import Checkpointing, CollectSink, Flow, PushSource
from aflow.errors import CheckpointError, FlowDefinitionError, JobStopped, RestoreError
from aflow.model.key_groups import KeyGroupRange, key_group
from aflow.runtime.checkpoints import stored_state
from aflow.runtime.checkpoints.directory.storage import DirectoryStorage
from aflow.runtime.checkpoints.storage import Restored, StepReader
from aflow.runtime.job import Job
from aflow.state.manifest import FileRef, Link, Manifest
from aflow.state.snapshot import OperatorSnapshot
from aflow.testing.virtual_time import settle, virtual_time
from tests.runtime.state.test_state_listing import Pair, sums

pytestmark = pytest.mark.usefixtures("inline_threads")


def settings(storage: Any, **options: Any) -> Checkpointing:
    return Checkpointing(storage=storage, every=None, **options)


async def stored(job: Job, **arguments: Any) -> list[Pair]:
    return [item async for item in job.state("sum").items(as_of="checkpoint", **arguments)]


async def send(source: PushSource[Pair], *pairs: Pair) -> None:
    await source.send_many(pairs)
    await settle()


@virtual_time
async def test_a_checkpoint_keeps_its_state_until_the_next_one(tmp_path: Path) -> None:
    source = PushSource[Pair]()
    async with sums(source).start(checkpointing=settings(tmp_path), parallelism=2) as job:
        reader = job.state("sum")
        await send(source, ("a", 1), ("b", 2))
        first = await job.checkpoint()
        await send(source, ("a", 10), ("c", 3))

        assert await reader.get("a") == 11
        assert await reader.get("a", as_of="checkpoint") == 1
        assert await reader.get("c", as_of="checkpoint") is None
        assert (await reader.entry("a", as_of="checkpoint")).checkpoint == first.id
        assert await stored(job) == [("a", 1), ("b", 2)]

        second = await job.checkpoint()
        page = await reader.page(as_of="checkpoint", limit=2)

        assert await reader.get("a", as_of="checkpoint") == 11
        assert page.items == [("a", 11), ("b", 2)]
        assert (page.more, page.checkpoint) == (True, second.id)
        assert await stored(job, after="b", prefix="c") == [("c", 3)]


@virtual_time
async def test_there_is_an_error_before_the_first_checkpoint_and_without_checkpoints(
    tmp_path: Path,
) -> None:
    async with sums(PushSource[Pair]()).start(checkpointing=settings(tmp_path)) as job:
        with pytest.raises(CheckpointError, match="no checkpoint has been completed yet"):
            await job.state("sum").get("a", as_of="checkpoint")
        with pytest.raises(
            FlowDefinitionError, match=r"step 'pairs' \(source\) has no state that can be read"
        ):
            await job.state("pairs").get("a", as_of="checkpoint")
    async with sums(PushSource[Pair]()).start() as job:
        with pytest.raises(FlowDefinitionError, match="needs a job with checkpointing"):
            await job.state("sum").get("a", as_of="checkpoint")


@virtual_time
async def test_a_checkpoint_is_read_while_the_job_restarts_and_not_after_its_end(
    tmp_path: Path,
) -> None:
    source = PushSource[Pair]()
    restart = af.restart.FixedDelay(3, timedelta(seconds=1))
    job = sums(source).start(checkpointing=settings(tmp_path), restart=restart)
    with pytest.raises(JobStopped, match="job 'sums' is created"):
        await job.state("sum").get("a", as_of="checkpoint")
    async with job:
        await send(source, ("a", 1))
        await job.checkpoint()
        await send(source, ("wrong", "number"))  # type: ignore[arg-type]

        assert job.status is af.metrics.JobStatus.RESTARTING
        assert await job.state("sum").get("a", as_of="checkpoint") == 1
        assert await stored(job) == [("a", 1)]
        with pytest.raises(JobStopped, match="is restarting"):
            await job.state("sum").get("a")
        await job.ready()
        assert await job.state("sum").get("a") == 1
    with pytest.raises(JobStopped, match="job 'sums' is finished"):
        await job.state("sum").get("a", as_of="checkpoint")


@virtual_time
async def test_a_listing_reads_one_checkpoint_although_newer_ones_replace_it(
    tmp_path: Path,
) -> None:
    source = PushSource[Pair]()
    async with sums(source).start(checkpointing=settings(tmp_path, keep=1)) as job:
        await send(source, *((f"{n:04}", 1) for n in range(300)))
        await job.checkpoint()
        found: list[Pair] = []
        async for item in job.state("sum").items(as_of="checkpoint"):
            found.append(item)
            if len(found) % 100 == 1:
                await send(source, *((f"{n:04}", 1) for n in range(300)))
                await job.checkpoint()

        assert found == [(f"{n:04}", 1) for n in range(300)]


@virtual_time
async def test_a_damaged_checkpoint_is_skipped_as_at_a_restore_and_all_damaged_are_an_error(
    tmp_path: Path,
) -> None:
    source = PushSource[Pair]()
    checkpointing = settings(tmp_path, incremental=False)
    async with sums(source).start(checkpointing=checkpointing, parallelism=2) as job:
        await send(source, ("a", 1))
        first = await job.checkpoint()
        before = set((tmp_path / "parts").iterdir())
        await send(source, ("a", 1))
        await job.checkpoint()
        for part in set((tmp_path / "parts").iterdir()) - before:
            part.write_bytes(part.read_bytes()[:-1] + b"x")

        entry = await job.state("sum").entry("a", as_of="checkpoint")
        assert (entry.value, entry.checkpoint) == (1, first.id)

        for part in (tmp_path / "parts").iterdir():
            part.write_bytes(b"")
        stale = await job.state("sum").entry("a", as_of="checkpoint")
        assert stale.value == 1  # what was read before, and checked then
        with pytest.raises(RestoreError, match=r"none of the checkpoints .* is truncated"):
            await job.state("sum").page(as_of="checkpoint")


@virtual_time
async def test_small_state_is_read_once_for_each_checkpoint_and_large_state_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = Counting(tmp_path)
    source = PushSource[Pair]()
    async with sums(source).start(checkpointing=settings(storage)) as job:
        await send(source, ("a", 1), ("b", 2))
        await job.checkpoint()
        reader = job.state("sum")
        for _ in range(3):
            await asyncio.gather(*(reader.get(key, as_of="checkpoint") for key in "abc"))
        assert storage.reads == ["sum"]

        await job.checkpoint()
        assert await reader.get("b", as_of="checkpoint") == 2
        assert storage.reads == ["sum"] * 2

        monkeypatch.setattr(stored_state, "_CACHED", 10)
        await job.checkpoint()
        await reader.get("b", as_of="checkpoint")
        await reader.get("b", as_of="checkpoint")
        assert storage.reads == ["sum"] * 4


class Counting(DirectoryStorage):
    """Counts reads of single steps."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.reads: list[str] = []

    async def latest_of(self, step: str, groups: KeyGroupRange) -> Restored | None:
        self.reads.append(step)
        return await super().latest_of(step, groups)


class Own(DirectoryStorage):
    """Reads checkpoints in its own way."""

    reads = 0

    async def latest(self) -> Restored | None:
        self.reads += 1
        return await super().latest()


@virtual_time
async def test_a_storage_that_overrides_latest_only_is_read_by_it(tmp_path: Path) -> None:
    storage = Own(tmp_path)
    source = PushSource[Pair]()
    async with sums(source).start(checkpointing=settings(storage)) as job:
        await send(source, ("a", 1))
        await job.checkpoint()
        before = storage.reads

        assert await job.state("sum").get("a", as_of="checkpoint") == 1
        assert storage.reads == before + 1


@virtual_time
async def test_only_the_files_with_the_key_are_read(tmp_path: Path) -> None:
    source = PushSource[Pair]()
    checkpointing = settings(tmp_path, incremental=False)
    async with sums(source).start(checkpointing=checkpointing, parallelism=2) as job:
        keys = [f"{n}" for n in range(20)]
        await send(source, *((key, 1) for key in keys))
        await job.checkpoint()
        (damaged,) = _parts_of(tmp_path, subtask=1)
        damaged.write_bytes(b"")

        for key in keys:
            if key_group(key) < 64:
                assert await job.state("sum").get(key, as_of="checkpoint") == 1
            else:
                with pytest.raises(RestoreError, match="truncated"):
                    await job.state("sum").get(key, as_of="checkpoint")


def _parts_of(folder: Path, subtask: int) -> list[Path]:
    """Return the parts with the state of the fold in a subtask."""
    parts = [part for part in (folder / "parts").iterdir() if b"accumulator" in part.read_bytes()]
    return [part for part in parts if part.name.endswith(f"-{subtask}.part")]


class Plain:
    """A storage of a user: it has the methods of ``CheckpointStorage`` and no others."""

    def __init__(self, folder: Path) -> None:
        self._in = DirectoryStorage(folder)
        self.reads = 0

    async def open(self, flow: str) -> None:
        await self._in.open(flow)

    async def close(self) -> None:
        await self._in.close()

    async def latest(self) -> Restored | None:
        self.reads += 1
        return await self._in.latest()

    async def kept(self) -> list[int]:
        return await self._in.kept()

    async def next_id(self) -> int:
        return await self._in.next_id()

    async def write_part(
        self, checkpoint: int, task: str, subtask: int, steps: Mapping[str, OperatorSnapshot]
    ) -> FileRef:
        return await self._in.write_part(checkpoint, task, subtask, steps)

    async def complete(self, manifest: Manifest) -> None:
        await self._in.complete(manifest)

    async def discard(self, checkpoint: int) -> None:
        await self._in.discard(checkpoint)

    async def sweep(self, keep: Collection[FileRef]) -> None:
        await self._in.sweep(keep)

    async def compact(
        self, checkpoint: int, task: str, subtask: int, step: str, chain: Sequence[Link]
    ) -> FileRef:
        return await self._in.compact(checkpoint, task, subtask, step, chain)

    async def export(self, manifest: Manifest, path: str) -> Manifest:
        return await self._in.export(manifest, path)


@virtual_time
async def test_a_storage_of_a_user_is_read_too_and_once_for_each_checkpoint(tmp_path: Path) -> None:
    storage = Plain(tmp_path)
    assert not isinstance(storage, StepReader)
    source = PushSource[Pair]()
    async with sums(source).start(checkpointing=settings(storage), parallelism=2) as job:
        with pytest.raises(CheckpointError, match="no checkpoint has been completed yet"):
            await job.state("sum").get("a", as_of="checkpoint")
        await send(source, *((f"{n}", n) for n in range(10)))
        await job.checkpoint()
        before = storage.reads

        for _ in range(2):
            assert await stored(job) == [(f"{n}", n) for n in range(10)]
        assert storage.reads == before + 1
        assert await job.state("sum").get("7", as_of="checkpoint") == 7


class Torn(Plain):
    """A storage whose newest checkpoint is replaced by a newer one while it is read, a number of times."""

    job: Job | None = None
    times = 0

    async def latest(self) -> Restored | None:
        if self.job is None or not self.times:
            return await super().latest()
        self.times -= 1
        await self.job.checkpoint()
        raise RestoreError("a part is missing")


@virtual_time
async def test_a_checkpoint_that_is_removed_while_it_is_read_gives_way_to_the_newer_one(
    tmp_path: Path,
) -> None:
    storage = Torn(tmp_path)
    source = PushSource[Pair]()
    async with sums(source).start(checkpointing=settings(storage, keep=1)) as job:
        await send(source, ("a", 1))
        await job.checkpoint()
        storage.job, storage.times = job, 2

        entry = await job.state("sum").entry("a", as_of="checkpoint")

        assert (entry.value, entry.checkpoint) == (1, 3)


class Swept(DirectoryStorage):
    """A folder in which a checkpoint is completed and the preceding one removed at the first read of a part."""

    job: Job | None = None

    async def latest_of(self, step: str, groups: KeyGroupRange) -> Restored | None:
        session = self._opened()
        run = session.run

        async def run_after_checkpoint(work: Any) -> Any:
            if self.job is not None:
                job, self.job = self.job, None
                await job.checkpoint()
                for part in (self.folder / "parts").glob("000001-*"):
                    part.unlink()  # as the next sweep does
            return await run(work)

        session.run = run_after_checkpoint  # type: ignore[method-assign]
        try:
            return await super().latest_of(step, groups)
        finally:
            session.run = run  # type: ignore[method-assign]


@virtual_time
async def test_a_checkpoint_whose_files_are_removed_during_a_read_is_read_in_the_newer_one(
    tmp_path: Path,
) -> None:
    storage = Swept(tmp_path)
    source = PushSource[Pair]()
    checkpointing = settings(storage, keep=1, incremental=False)
    async with sums(source).start(checkpointing=checkpointing) as job:
        await send(source, ("a", 1))
        await job.checkpoint()
        await send(source, ("a", 1))
        storage.job = job

        entry = await job.state("sum").entry("a", as_of="checkpoint")

        assert (entry.value, entry.checkpoint) == (2, 2)


@virtual_time
async def test_a_read_that_is_cancelled_leaves_nothing(tmp_path: Path) -> None:
    source = PushSource[Pair]()
    async with sums(source).start(checkpointing=settings(tmp_path)) as job:
        await send(source, *((f"{n}", n) for n in range(10)))
        await job.checkpoint()
        for passes in range(12):
            task = asyncio.create_task(job.state("sum").page(as_of="checkpoint"))
            for _ in range(passes):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])

        assert len(await stored(job)) == 10


@virtual_time
async def test_the_end_of_the_job_during_a_read_is_job_stopped(tmp_path: Path) -> None:
    source = PushSource[Pair]()
    async with sums(source).start(checkpointing=settings(tmp_path)) as job:
        await send(source, ("a", 1))
        await job.checkpoint()
        reader = job.state("sum")
        reads = [
            asyncio.create_task(reader.get("a", as_of="checkpoint")),
            asyncio.create_task(reader.page(as_of="checkpoint")),
        ]
        await job.cancel()
        results = await asyncio.gather(*reads, return_exceptions=True)

    for result in results:
        assert result == 1 or isinstance(result, JobStopped) or hasattr(result, "items")


@virtual_time
async def test_a_step_that_is_new_has_no_state_in_an_older_checkpoint(tmp_path: Path) -> None:
    source = PushSource[Pair]()
    async with sums(source).start(checkpointing=settings(tmp_path)) as job:
        await send(source, ("a", 1))
        await job.checkpoint()

    source = PushSource[Pair]()
    flow = Flow("sums")
    pairs = flow.source(source, name="pairs").key_by(lambda pair: pair[0], name="key")
    for name in ("sum", "new"):
        pairs.fold(int, lambda total, pair: total + pair[1], name=name).to(
            CollectSink[int](), name="out" if name == "sum" else "out of new"
        )
    async with flow.start(checkpointing=settings(tmp_path)) as job:
        assert await job.state("new").get("a", as_of="checkpoint") is None
        assert await job.state("sum").get("a", as_of="checkpoint") == 1
        assert (await job.state("new").page(as_of="checkpoint")).items == []
