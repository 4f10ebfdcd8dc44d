"""A folder of checkpoints: completed ones are read back, and unreferenced parts are removed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from aflow.errors import CheckpointError
from aflow.model.elements import CheckpointKind
from aflow.runtime.checkpoints.directory.storage import DirectoryStorage
from aflow.runtime.checkpoints.storage import CheckpointStorage
from aflow.state.manifest import FileRef, Link
from aflow.state.snapshot import OperatorSnapshot
from tests.runtime.checkpoints.sample_checkpoints import TASK, changes, complete, manifest


@pytest_asyncio.fixture
async def storage(tmp_path: Path) -> AsyncIterator[CheckpointStorage]:
    storage = DirectoryStorage(tmp_path / "state")
    await storage.open("flow")
    yield storage
    await storage.close()


def parts_in(folder: Path) -> set[str]:
    return {path.name for path in (folder / "parts").iterdir()}


async def stored(storage: CheckpointStorage, number: int, snapshot: OperatorSnapshot) -> FileRef:
    """Complete checkpoint ``number`` of one step in one subtask."""
    file = await storage.write_part(number, TASK, 0, {"sums": snapshot})
    await storage.complete(manifest(number, {"sums": [[file]]}))
    return file


@pytest.mark.asyncio
async def test_a_new_folder_has_no_checkpoint_and_numbers_begin_with_one(
    storage: CheckpointStorage,
) -> None:
    assert await storage.latest() is None
    assert await storage.next_id() == 1


@pytest.mark.asyncio
async def test_the_states_of_all_subtasks_come_back_as_one(storage: CheckpointStorage) -> None:
    left, right = complete({0: [("a", "1")]}, "x"), complete({3: [("b", "2")]}, "y")

    first = await storage.write_part(1, TASK, 0, {"sums": left, "out": complete({}, "0")})
    second = await storage.write_part(1, TASK, 1, {"sums": right, "out": complete({}, "1")})
    both = [[first], [second]]
    wanted = manifest(1, {"sums": both, "out": both})
    await storage.complete(wanted)

    restored = await storage.latest()
    assert restored is not None
    assert restored.manifest == wanted
    assert restored.passed_over == ()
    assert restored.states == {
        "sums": complete({0: [("a", "1")], 3: [("b", "2")]}, "x", "y"),
        "out": complete({}, "0", "1"),
    }


@pytest.mark.asyncio
async def test_a_chain_is_replayed(storage: CheckpointStorage) -> None:
    base = await storage.write_part(
        1, TASK, 0, {"sums": complete({0: [("a", "1"), ("b", "1")], 2: [("c", "1")]})}
    )
    newer = await storage.write_part(2, TASK, 0, {"sums": changes({0: [("a", "2")]}, {2: ["c"]})})
    await storage.complete(manifest(2, {"sums": [[base, newer]]}))

    restored = await storage.latest()

    assert restored is not None
    assert restored.states["sums"] == complete({0: [("a", "2"), ("b", "1")]})


@pytest.mark.asyncio
async def test_only_the_key_groups_of_a_link_count(storage: CheckpointStorage) -> None:
    old_left = await storage.write_part(
        1, TASK, 0, {"sums": complete({0: [("a", "1")], 1: [("b", "1")]})}
    )
    old_right = await storage.write_part(
        1, TASK, 1, {"sums": complete({2: [("c", "1")], 3: [("d", "1")]})}
    )
    of_middle = await storage.write_part(2, TASK, 1, {"sums": changes({2: [("c", "2")]})})
    chains = [
        [Link(old_left, 0, 1)],
        [Link(old_left, 1, 2), Link(old_right, 2, 3), Link(of_middle, 1, 3)],
        [Link(old_right, 3, 4)],
    ]
    await storage.complete(manifest(2, {"sums": chains}))

    restored = await storage.latest()

    assert restored is not None
    assert (
        restored.states["sums"].keyed
        == complete({0: [("a", "1")], 1: [("b", "1")], 2: [("c", "2")], 3: [("d", "1")]}).keyed
    )


@pytest.mark.asyncio
async def test_checkpoints_of_another_job_are_read_and_their_numbers_continued(
    tmp_path: Path,
) -> None:
    former = DirectoryStorage(tmp_path)
    await former.open("flow")
    await stored(former, 7, complete({0: [("a", "7")]}))
    await former.write_part(9, TASK, 0, {"sums": complete({})})
    await former.close()

    storage = DirectoryStorage(tmp_path)
    await storage.open("flow")
    restored = await storage.latest()
    number = await storage.next_id()
    await storage.close()

    assert restored is not None
    assert restored.manifest.id == 7
    assert number == 10


@pytest.mark.asyncio
async def test_a_discarded_checkpoint_leaves_the_preceding_one(storage: CheckpointStorage) -> None:
    await stored(storage, 1, complete({0: [("a", "1")]}))
    await stored(storage, 2, complete({0: [("a", "2")]}))

    await storage.discard(2)

    restored = await storage.latest()
    assert restored is not None
    assert restored.manifest.id == 1


@pytest.mark.asyncio
async def test_a_sweep_removes_unreferenced_parts(
    storage: CheckpointStorage, tmp_path: Path
) -> None:
    await stored(storage, 1, complete({}))
    kept = await storage.write_part(2, "other", 0, {"sums": complete({})})
    await storage.write_part(2, TASK, 0, {"sums": complete({})})
    last = await stored(storage, 3, complete({}))
    await storage.discard(1)

    await storage.sweep([kept])

    assert parts_in(tmp_path / "state") == {Path(kept.path).name, Path(last.path).name}


@pytest.mark.asyncio
async def test_a_sweep_keeps_the_parts_of_a_pending_checkpoint(
    storage: CheckpointStorage,
) -> None:
    await stored(storage, 1, complete({}))
    file = await storage.write_part(2, TASK, 0, {"sums": complete({0: [("a", "2")]})})

    await storage.sweep([])

    await storage.complete(manifest(2, {"sums": [[file]]}))


@pytest.mark.asyncio
async def test_the_parts_of_an_aborted_checkpoint_are_removed_after_its_discard(
    storage: CheckpointStorage, tmp_path: Path
) -> None:
    await storage.write_part(1, TASK, 0, {"sums": complete({})})

    await storage.discard(1)
    await storage.sweep([])

    assert parts_in(tmp_path / "state") == set()


@pytest.mark.asyncio
async def test_a_sweep_removes_files_that_a_crash_left_incomplete(tmp_path: Path) -> None:
    for name in (
        "parts/000001-sums-0.part.tmp",
        "parts/000001-sums-1.part",
        "checkpoint-000001.json.tmp",
    ):
        (tmp_path / "parts").mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"half")
    (tmp_path / "parts" / "notes.txt").write_text("of a person")
    storage = DirectoryStorage(tmp_path)
    await storage.open("flow")

    await storage.sweep([])
    await storage.close()

    assert parts_in(tmp_path) == {"notes.txt"}
    assert not (tmp_path / "checkpoint-000001.json.tmp").exists()


@pytest.mark.asyncio
async def test_a_compacted_chain_means_the_same(storage: CheckpointStorage) -> None:
    base = await storage.write_part(
        1, TASK, 0, {"sums": complete({0: [("a", "1")]}), "out": complete({})}
    )
    newer = await storage.write_part(2, TASK, 0, {"sums": changes({1: [("b", "2")]})})
    chain = [Link(base, 0, 4), Link(newer, 0, 4)]

    one = await storage.compact(2, TASK, 0, "sums", chain)
    await storage.complete(manifest(2, {"sums": [[one]]}))

    restored = await storage.latest()
    assert restored is not None
    assert restored.states == {"sums": complete({0: [("a", "1")], 1: [("b", "2")]})}


@pytest.mark.asyncio
async def test_compacting_an_unreadable_chain_names_the_step_and_the_file(
    storage: CheckpointStorage, tmp_path: Path
) -> None:
    base = await storage.write_part(1, TASK, 0, {"sums": complete({})})
    (tmp_path / "state" / base.path).unlink()

    with pytest.raises(
        CheckpointError, match=r"step 'sums' cannot be read back: .*\.part is missing"
    ):
        await storage.compact(2, TASK, 0, "sums", [Link(base, 0, 4)])


@pytest.mark.asyncio
async def test_tasks_with_names_that_look_alike_in_files_do_not_meet(
    storage: CheckpointStorage,
) -> None:
    names = ["a/b", "a_b", "A_B", "a → b", "../a b", "ä", "日本", "", "." * 300, "x" * 300]
    files = [await storage.write_part(1, name, 0, {"sums": complete({}, name)}) for name in names]

    await storage.complete(manifest(1, {"sums": [[Link(file, 0, 0)] for file in files]}))

    restored = await storage.latest()
    assert restored is not None
    assert restored.states["sums"].operator["@at"] == tuple(name.encode() for name in names)


@pytest.mark.asyncio
async def test_a_part_that_is_written_twice_does_not_change_the_first(
    storage: CheckpointStorage,
) -> None:
    first = await stored(storage, 1, complete({}, "first"))

    second = await storage.write_part(1, TASK, 0, {"sums": complete({}, "second")})

    assert second.path != first.path
    restored = await storage.latest()
    assert restored is not None
    assert restored.states["sums"].operator["@at"] == (b"first",)


@pytest.mark.asyncio
async def test_a_checkpoint_whose_part_is_gone_is_not_completed(
    storage: CheckpointStorage, tmp_path: Path
) -> None:
    file = await storage.write_part(1, TASK, 0, {"sums": complete({})})
    (tmp_path / "state" / file.path).unlink()

    with pytest.raises(CheckpointError, match=r"000001.*No such file"):
        await storage.complete(manifest(1, {"sums": [[file]]}))


@pytest.mark.asyncio
async def test_a_savepoint_in_the_folder_is_the_newest_checkpoint_too(
    storage: CheckpointStorage,
) -> None:
    file = await storage.write_part(4, TASK, 0, {"sums": complete({}, "4")})
    await storage.complete(manifest(4, {"sums": [[file]]}, kind=CheckpointKind.SAVEPOINT))

    restored = await storage.latest()

    assert restored is not None
    assert restored.manifest.kind is CheckpointKind.SAVEPOINT


@pytest.mark.asyncio
async def test_nothing_can_be_stored_before_opening_and_after_closing(tmp_path: Path) -> None:
    storage = DirectoryStorage(tmp_path)

    with pytest.raises(CheckpointError, match="not open"):
        await storage.latest()
    await storage.open("flow")
    await storage.close()
    await storage.close()
    with pytest.raises(CheckpointError, match="not open"):
        await storage.write_part(1, TASK, 0, {})
