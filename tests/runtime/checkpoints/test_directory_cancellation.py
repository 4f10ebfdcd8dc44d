"""A cancelled call completes its work, without blocking the event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import pytest

from aflow.errors import CheckpointError
from aflow.runtime.checkpoints.directory.files import WritableFile
from aflow.runtime.checkpoints.directory.reader import read_checkpoint
from aflow.runtime.checkpoints.directory.storage import DirectoryStorage
from aflow.state.manifest import Link
from aflow.state.snapshot import OperatorSnapshot
from tests.runtime.checkpoints.faulty_files import FaultyFiles
from tests.runtime.checkpoints.sample_checkpoints import GROUPS, TASK, complete, manifest

ONE = {"sums": complete({0: [("a", "1")]})}


async def use(storage: DirectoryStorage, to: Path) -> None:
    """Call all methods of a storage, as a job does."""
    await storage.open("flow")
    file = await storage.write_part(1, TASK, 0, ONE)
    one = manifest(1, {"sums": [[file]]})
    await storage.complete(one)
    await storage.export(one, str(to))
    chain = one.steps[0].subtasks[0].chain
    compacted = await storage.compact(2, TASK, 0, "sums", chain)
    await storage.complete(manifest(2, {"sums": [[compacted]]}))
    await storage.discard(1)
    await storage.sweep([])
    await storage.latest()


def void(_: object) -> None:
    """Do nothing, for a lambda that returns nothing."""


async def cancelled_as_a_task(files: FaultyFiles, storage: DirectoryStorage, to: Path) -> None:
    task = asyncio.create_task(use(storage, to))
    loop = asyncio.get_running_loop()
    files.instead = lambda: void(loop.call_soon_threadsafe(task.cancel))
    with suppress(asyncio.CancelledError):
        await task


async def cancelled_by_a_scope(files: FaultyFiles, storage: DirectoryStorage, to: Path) -> None:
    loop = asyncio.get_running_loop()
    with anyio.CancelScope() as scope:
        files.instead = lambda: void(loop.call_soon_threadsafe(scope.cancel))
        await use(storage, to)


@pytest.mark.asyncio
@pytest.mark.parametrize("cancelled", [cancelled_as_a_task, cancelled_by_a_scope])
async def test_a_cancellation_at_any_moment_leaves_the_folder_complete_and_unlocked(
    cancelled: Callable[[FaultyFiles, DirectoryStorage, Path], Awaitable[None]],
) -> None:
    for moment in range(1, 500):
        with TemporaryDirectory() as name:
            folder = Path(name)
            files = FaultyFiles(fails_at=moment)
            storage = DirectoryStorage(folder / "state", files=files)
            await cancelled(files, storage, folder / "saved")
            await storage.close()
            done = len(files.calls)

            after = DirectoryStorage(folder / "state")
            await after.open("flow")
            restored = await after.latest()
            await after.close()

            if restored is None:
                assert not any("checkpoint-" in call for call in files.calls)
            else:
                assert restored.passed_over == ()
                assert restored.states == ONE
            assert not list(folder.rglob("*.tmp"))
            assert {path.name for path in folder.iterdir()} <= {"state", "saved"}
            if (folder / "saved").exists():
                assert (await read_checkpoint(folder / "saved")).states == ONE
            if done < moment:
                return
    raise AssertionError("it never came to an end")


@pytest.mark.asyncio
async def test_closing_waits_for_writes_and_then_releases_the_folder(
    tmp_path: Path,
) -> None:
    reached, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        reached.set()
        go_on.wait()

    storage = DirectoryStorage(tmp_path, files=(files := FaultyFiles()))
    await storage.open("flow")
    files.instead, files.fails_at = wait, len(files.calls) + 2
    writing = asyncio.create_task(storage.write_part(1, TASK, 0, ONE))
    await asyncio.to_thread(reached.wait)

    closing = asyncio.create_task(storage.close())
    with pytest.raises(CheckpointError, match="in use by another live job"):
        await DirectoryStorage(tmp_path).open("flow")
    assert not closing.done()
    go_on.set()
    await closing
    await writing

    next_one = DirectoryStorage(tmp_path)
    await next_one.open("flow")
    await next_one.close()


@pytest.mark.asyncio
async def test_a_sweep_keeps_a_part_that_was_being_written_when_it_began(tmp_path: Path) -> None:
    begun, may_end, ended = threading.Event(), threading.Event(), threading.Event()

    class SlowFiles(FaultyFiles):
        def create(self, path: Path) -> WritableFile:
            if path.name.endswith(".part.tmp"):
                begun.set()
                may_end.wait()
            return super().create(path)

        def names(self, folder: Path) -> list[str]:
            if begun.is_set():  # the sweep: the part is complete before it looks
                may_end.set()
                ended.wait()
            return super().names(folder)

    storage = DirectoryStorage(tmp_path, files=SlowFiles())
    await storage.open("flow")
    writing = asyncio.create_task(storage.write_part(1, TASK, 0, ONE))
    writing.add_done_callback(lambda _: ended.set())
    await asyncio.to_thread(begun.wait)
    # The checkpoint is aborted, but later ones may need the part.
    await storage.discard(1)

    await storage.sweep([])

    assert (tmp_path / (await writing).path).exists()
    await storage.close()


@pytest.mark.asyncio
async def test_many_subtasks_may_write_at_once(tmp_path: Path) -> None:
    storage = DirectoryStorage(tmp_path)
    await storage.open("flow")

    files = await asyncio.gather(
        *(
            storage.write_part(1, TASK, subtask, {"sums": complete({}, str(subtask))})
            for subtask in range(40)
        )
    )
    await storage.complete(manifest(1, {"sums": [[Link(file, 0, 0)] for file in files]}))

    restored = await storage.latest()
    await storage.close()
    assert restored is not None
    assert restored.states["sums"].operator["@at"] == tuple(str(n).encode() for n in range(40))


@pytest.mark.slow
@pytest.mark.asyncio
async def test_the_event_loop_runs_while_a_large_state_is_written_and_read(
    tmp_path: Path,
) -> None:
    rows = tuple((b"key %d" % number, b"value %d" % number) for number in range(300_000))
    large = OperatorSnapshot({group: {"last": rows[group::GROUPS]} for group in range(GROUPS)})
    storage = DirectoryStorage(tmp_path)
    await storage.open("flow")
    turns = 0

    async def turn() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0.001)
            turns += 1

    turning = asyncio.create_task(turn())
    file = await storage.write_part(1, TASK, 0, {"sums": large})
    while_writing, turns = turns, 0
    await storage.complete(manifest(1, {"sums": [[Link(file, 0, GROUPS)]]}))
    restored = await storage.latest()
    while_reading = turns

    turning.cancel()
    await storage.close()
    assert restored is not None
    assert restored.states == {"sums": large}
    # Encoding takes some 50 ms and reading 100: one call into C for each would leave a turn or two.
    assert while_writing >= 4
    assert while_reading >= 6
