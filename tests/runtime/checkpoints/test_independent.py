"""Independent checkpoints: parts are copied to new files while the job runs, and damaged ones are found by that."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import aflow as af
from aflow.checkpoints import CheckpointInfo

pytestmark = pytest.mark.asyncio


class Counting:
    """A job that counts the records of each key, with checkpoints on request."""

    def __init__(self, folder: Path, *, incremental: bool = True) -> None:
        self.pushed = af.PushSource[str]()
        self.counts = af.CollectSink[tuple[str, int]]()
        flow = af.Flow("counts")
        keyed = flow.source(self.pushed, name="pushed").key_by(lambda key: key)
        keyed.fold(_nothing, _counted, name="count").to(self.counts, name="counts")
        self.job = flow.start(
            checkpointing=af.Checkpointing(
                storage=folder, every=None, independent_every=2, incremental=incremental
            )
        )

    async def checkpoint(self, *keys: str) -> CheckpointInfo:
        """Process ``keys``, and take a checkpoint; again if it builds on parts that were found damaged."""
        wanted = len(self.counts.values) + len(keys)
        await self.pushed.send_many(keys)
        while len(self.counts.values) < wanted:  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0)
        for _ in range(5):
            try:
                return await self.job.checkpoint()
            except af.CheckpointError:
                await asyncio.sleep(0)
        raise AssertionError("no checkpoint can be taken")


def _nothing() -> tuple[str, int]:
    return "", 0


def _counted(so_far: tuple[str, int], key: str) -> tuple[str, int]:
    return key, so_far[1] + 1


def parts(folder: Path) -> set[str]:
    return {part.name for part in (folder / "parts").iterdir()}


def files_of(folder: Path, checkpoint: int) -> set[str]:
    named = (folder / f"checkpoint-{checkpoint:06}.json").read_text()
    return {part for part in parts(folder) if part in named}


async def test_an_older_checkpoint_that_shares_no_file_with_the_newest_is_kept(
    tmp_path: Path,
) -> None:
    counting = Counting(tmp_path)
    async with counting.job as job:
        infos = [await counting.checkpoint(f"key {number % 3}") for number in range(12)]
        await job.cancel()
    kept = sorted(int(one.stem[-6:]) for one in tmp_path.glob("checkpoint-*.json"))

    shared = [files_of(tmp_path, one) & files_of(tmp_path, kept[-1]) for one in kept]

    assert kept[-1] == infos[-1].id
    assert set() in shared
    assert len(kept) < len(infos) / 2


async def test_a_damaged_part_is_found_by_the_copy_and_all_state_stored_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    counting = Counting(tmp_path)
    async with counting.job as job:
        first = await counting.checkpoint("a", "b")
        for part in (tmp_path / "parts").iterdir():
            part.write_bytes(part.read_bytes()[:-1] + b"?")
        for _ in range(50):  # the storage copies while checkpoints are taken
            if (await counting.checkpoint("a")).subtasks[0].complete:
                break
        counted = len(counting.counts.values) - 1
        await job.cancel()

    again = Counting(tmp_path)
    async with again.job as job:
        await again.checkpoint("a", "b")
        await job.cancel()

    assert first.id == 1
    assert any("could not be compacted" in one.message for one in caplog.records)
    assert sorted(again.counts.values) == [("a", counted + 1), ("b", 2)]


async def test_nothing_is_copied_if_each_checkpoint_is_complete_anyway(tmp_path: Path) -> None:
    counting = Counting(tmp_path, incremental=False)
    async with counting.job as job:
        infos = [await counting.checkpoint("a", "b") for _ in range(6)]
        await job.cancel()

    assert len(files_of(tmp_path, infos[-1].id)) == len(infos[-1].subtasks)
