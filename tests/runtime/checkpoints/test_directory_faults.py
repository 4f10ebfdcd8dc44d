"""After a failure of any operation, the old checkpoint or the new one is there, complete."""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from aflow.errors import AflowError, CheckpointError, RestoreError
from aflow.runtime.checkpoints.directory.reader import read_checkpoint
from aflow.runtime.checkpoints.directory.storage import DirectoryStorage
from aflow.runtime.checkpoints.storage import Restored
from aflow.state.manifest import FileRef, Link, Manifest
from tests.runtime.checkpoints.faulty_files import FaultyFiles, Killed
from tests.runtime.checkpoints.sample_checkpoints import TASK, changes, complete, manifest

OLD = {"sums": complete({0: [("a", "1"), ("b", "1")]})}
NEW = {"sums": complete({0: [("a", "2"), ("b", "1")]})}

Work = Callable[[DirectoryStorage], Awaitable[None]]


async def begin(folder: Path) -> FileRef:
    """Complete checkpoint 1."""
    storage = DirectoryStorage(folder / "state", files=FaultyFiles())
    await storage.open("flow")
    file = await storage.write_part(1, TASK, 0, OLD)
    await storage.complete(manifest(1, {"sums": [[file]]}))
    await storage.close()
    return file


def next_checkpoint(base: FileRef) -> Work:
    """Complete checkpoint 2, and remove checkpoint 1."""

    async def work(storage: DirectoryStorage) -> None:
        await storage.open("flow")
        assert await storage.next_id() == 2
        newer = await storage.write_part(2, TASK, 0, {"sums": changes({0: [("a", "2")]})})
        await storage.complete(manifest(2, {"sums": [[base, newer]]}))
        await storage.discard(1)
        await storage.sweep([newer])
        chain = [Link(base, 0, 4), Link(newer, 0, 4)]
        one = await storage.compact(3, TASK, 0, "sums", chain)
        await storage.complete(manifest(3, {"sums": [[one]]}))
        await storage.discard(2)
        await storage.sweep([])

    return work


async def after(folder: Path) -> Restored:
    """Return the checkpoint that the next job finds."""
    storage = DirectoryStorage(folder / "state", files=FaultyFiles())
    await storage.open("flow")
    try:
        restored = await storage.latest()
        assert restored is not None
        # Numbers are never used twice, and a checkpoint can be taken after a failure.
        number = await storage.next_id()
        assert number > restored.manifest.id
        file = await storage.write_part(number, TASK, 0, {"sums": complete({}, "next")})
        await storage.complete(manifest(number, {"sums": [[file]]}))
        await storage.sweep([])
        later = await storage.latest()
        assert later is not None
        assert later.manifest.id == number
    finally:
        await storage.close()
    return restored


async def every_moment(
    work: Work | None = None, **fault: object
) -> list[tuple[str, AflowError | Killed, Restored]]:
    """Do ``work`` with each of its operations failing in turn. Yield the operation, the error and the files."""
    outcomes: list[tuple[str, AflowError | Killed, Restored]] = []
    for moment in moments():
        with TemporaryDirectory() as name:
            folder = Path(name)
            base = await begin(folder)
            files = FaultyFiles(fails_at=moment, **fault)  # type: ignore[arg-type] # fields of its own
            storage = DirectoryStorage(folder / "state", files=files)
            raised: AflowError | Killed | None = None
            try:
                await (work or next_checkpoint(base))(storage)
            except (AflowError, Killed) as exc:
                raised = exc
            if files.killed:
                files.die()
            else:
                await storage.close()
            if not files.fell():
                assert raised is None
                return outcomes
            restored = await after(folder)
            if raised is not None:
                outcomes.append((files.calls[moment - 1], raised, restored))
    raise AssertionError("it never came to an end")


def moments() -> Iterator[int]:
    return iter(range(1, 500))


def assert_whole(restored: Restored) -> None:
    assert restored.states == (OLD if restored.manifest.id == 1 else NEW)
    assert restored.passed_over == ()


@pytest.mark.asyncio
@pytest.mark.parametrize("for_good", [False, True], ids=["once", "for good"])
async def test_after_any_failure_there_is_the_old_checkpoint_or_the_new_one(
    for_good: bool,
) -> None:
    outcomes = await every_moment(error=errno.ENOSPC, for_good=for_good)

    assert len(outcomes) > 20
    for _, raised, restored in outcomes:
        assert isinstance(raised, CheckpointError)
        assert_whole(restored)


@pytest.mark.asyncio
async def test_after_a_kill_at_any_moment_there_is_the_old_checkpoint_or_the_new_one() -> None:
    outcomes = await every_moment(killed=True)

    assert len(outcomes) > 40
    for _, raised, restored in outcomes:
        assert isinstance(raised, Killed)
        assert_whole(restored)


@pytest.mark.asyncio
async def test_an_error_names_the_path_and_the_reason() -> None:
    outcomes = await every_moment(error=errno.ENOSPC)

    for call, raised, _ in outcomes:
        operation, _, name = call.partition(" ")
        assert "No space left on device" in str(raised)
        # For a folder that cannot be synced, the error names the file that was written into it.
        if operation not in {"make_folder", "sync_folder"}:
            assert name.removesuffix(".tmp") in str(raised)


@pytest.mark.asyncio
async def test_a_part_that_could_not_be_written_leaves_no_file(tmp_path: Path) -> None:
    await begin(tmp_path)
    storage = DirectoryStorage(tmp_path / "state", files=(files := FaultyFiles()))
    await storage.open("flow")
    before = everything_in(tmp_path)
    for moment in moments():
        files.calls, files.fails_at = [], moment
        try:
            await storage.write_part(2, TASK, 0, NEW)
        except CheckpointError:
            assert everything_in(tmp_path) == before, files.calls[-2:]
        else:
            break

    await storage.close()
    assert files.calls[-1].startswith("sync_folder")


def everything_in(folder: Path) -> set[Path]:
    return set(folder.rglob("*"))


@pytest.mark.asyncio
@pytest.mark.parametrize("killed", [False, True], ids=["failing", "killed"])
async def test_a_savepoint_is_there_as_a_whole_or_not_at_all(killed: bool) -> None:
    for moment in moments():
        with TemporaryDirectory() as name:
            folder = Path(name)
            base = await begin(folder)
            files = FaultyFiles(fails_at=moment, error=errno.ENOSPC, killed=killed)
            storage = DirectoryStorage(folder / "state", files=files)
            raised = await export(storage, manifest(1, {"sums": [[base]]}), folder / "savepoint")
            if killed:
                files.die()
            else:
                await storage.close()

            if (folder / "savepoint").exists():
                assert (await read_checkpoint(folder / "savepoint")).states == OLD
            else:
                assert raised is not None
                with pytest.raises(RestoreError, match="nothing of that name exists"):
                    await read_checkpoint(folder / "savepoint")
            if not killed and raised is not None and "remove_folder" not in files.calls[moment - 1]:
                assert {path.name for path in folder.iterdir()} <= {"state", "savepoint"}
            assert (await after(folder)).states == OLD
            if not files.fell():
                assert raised is None
                return
    raise AssertionError("it never came to an end")


async def export(
    storage: DirectoryStorage, one: Manifest, path: Path
) -> CheckpointError | Killed | None:
    try:
        await storage.open("flow")
        await storage.export(one, str(path))
    except (CheckpointError, Killed) as exc:
        return exc
    return None


@pytest.mark.asyncio
async def test_a_checkpoint_that_could_not_be_stored_does_not_hold_its_parts_for_ever(
    tmp_path: Path,
) -> None:
    base = await begin(tmp_path)
    files = FaultyFiles()
    storage = DirectoryStorage(tmp_path / "state", files=files)
    await storage.open("flow")
    lost = await storage.write_part(2, TASK, 0, NEW)
    files.fails_at = len(files.calls) + 2
    with pytest.raises(CheckpointError, match="cannot write"):
        await storage.complete(manifest(2, {"sums": [[lost]]}))

    newer = await storage.write_part(3, TASK, 0, NEW)
    await storage.complete(manifest(3, {"sums": [[newer]]}))
    await storage.sweep([])
    kept = await storage.kept()
    await storage.close()

    assert kept == [1, 3]
    parts = {f"parts/{path.name}" for path in (tmp_path / "state" / "parts").iterdir()}
    assert parts == {base.path, newer.path}


@pytest.mark.asyncio
async def test_a_failed_removal_does_no_harm(tmp_path: Path) -> None:
    await begin(tmp_path)
    files = FaultyFiles()
    storage = DirectoryStorage(tmp_path / "state", files=files)
    await storage.open("flow")
    left = await storage.write_part(2, TASK, 0, NEW)
    await storage.discard(2)
    files.fails_at, files.for_good = len(files.calls) + 2, True

    await storage.sweep([])

    assert (tmp_path / "state" / left.path).exists()
    files.fails_at = None
    await storage.sweep([])
    await storage.close()
    assert not (tmp_path / "state" / left.path).exists()
