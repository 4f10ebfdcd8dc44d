"""Incomplete checkpoints are skipped and named; savepoints are read without their original folder."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from aflow.errors import CheckpointError, RestoreError
from aflow.model.elements import CheckpointKind
from aflow.runtime.checkpoints.directory.reader import read_checkpoint
from aflow.runtime.checkpoints.directory.storage import DirectoryStorage
from aflow.state.manifest import Link, Manifest
from tests.runtime.checkpoints.sample_checkpoints import TASK, changes, complete, manifest

Damage = Callable[[Path], object]


@pytest_asyncio.fixture
async def folder(tmp_path: Path) -> AsyncIterator[Path]:
    """Checkpoints 1 and 2, each with a part of its own for each of two subtasks."""
    storage = DirectoryStorage(tmp_path / "state")
    await storage.open("flow")
    for number in (1, 2):
        await storage.complete(await parts(storage, number))
    await storage.close()
    yield tmp_path / "state"


async def parts(storage: DirectoryStorage, number: int) -> Manifest:
    files = [
        await storage.write_part(
            number, TASK, subtask, {"sums": complete(of_subtask(number)[subtask])}
        )
        for subtask in (0, 1)
    ]
    return manifest(number, {"sums": [[file] for file in files]})


def of_subtask(number: int) -> list[dict[int, list[tuple[str, str]]]]:
    return [{0: [("a", str(number))]}, {2: [("b", str(number))]}]


def states(number: int) -> object:
    left, right = of_subtask(number)
    return {"sums": complete({**left, **right})}


def newest_part(folder: Path) -> Path:
    return next((folder / "parts").glob("000002-*-1.part"))


def newest_manifest(folder: Path) -> Path:
    return folder / "checkpoint-000002.json"


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def change(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.asyncio
@pytest.mark.parametrize("damaged", [newest_part, newest_manifest])
@pytest.mark.parametrize(
    ("damage", "named"),
    [
        pytest.param(Path.unlink, r"is missing|No such file", id="missing"),
        pytest.param(
            cut, r"is truncated: \d+ bytes|or an incomplete one|is corrupt", id="truncated"
        ),
        pytest.param(change, r"is corrupt: its checksum|is no manifest", id="corrupt"),
    ],
)
async def test_a_checkpoint_that_is_not_whole_is_passed_over_and_named(
    folder: Path, damaged: Callable[[Path], Path], damage: Damage, named: str
) -> None:
    storage = DirectoryStorage(folder)
    await storage.open("flow")
    path = damaged(folder)
    if damage is cut and damaged is newest_manifest:
        cut(path)  # the last byte is a line break
    damage(path)

    restored = await storage.latest()

    await storage.close()
    assert restored is not None
    assert restored.manifest.id == 1
    assert restored.states == states(1)
    (passed_over,) = restored.passed_over
    assert passed_over.startswith(f"checkpoint 2: {path} ")
    assert pytest.RaisesExc(RestoreError, match=named).matches(RestoreError(passed_over))


@pytest.mark.asyncio
async def test_if_no_checkpoint_is_whole_all_are_named(folder: Path) -> None:
    for path in (folder / "parts").iterdir():
        cut(path)
    storage = DirectoryStorage(folder)
    await storage.open("flow")

    with pytest.raises(RestoreError) as failed:
        await storage.latest()

    await storage.close()
    assert "checkpoint 1: " in str(failed.value)
    assert "checkpoint 2: " in str(failed.value)
    assert all(path.name in str(failed.value) for path in (folder / "parts").iterdir())


@pytest.mark.asyncio
async def test_a_manifest_that_cannot_be_read_protects_parts_that_are_not_newer(
    folder: Path,
) -> None:
    change(newest_manifest(folder))
    storage = DirectoryStorage(folder)
    await storage.open("flow")
    await storage.write_part(3, TASK, 0, {"sums": complete({})})
    await storage.discard(3)
    there = set((folder / "parts").iterdir())

    await storage.sweep([])

    assert {path for path in there if not path.exists()} == {
        path for path in there if path.name.startswith("000003")
    }
    assert await storage.kept() == [1, 2]
    await storage.discard(2)
    await storage.sweep([])
    await storage.close()
    assert {path.name[:6] for path in (folder / "parts").iterdir()} == {"000001"}


@pytest.mark.asyncio
async def test_a_chain_without_its_complete_part_is_refused(tmp_path: Path) -> None:
    storage = DirectoryStorage(tmp_path)
    await storage.open("flow")
    file = await storage.write_part(1, TASK, 0, {"sums": changes({0: [("a", "1")]})})
    await storage.complete(manifest(1, {"sums": [[file]]}))

    with pytest.raises(
        RestoreError, match="holds changes of step 'sums', and nothing says to what"
    ):
        await storage.latest()

    await storage.close()


@pytest.mark.asyncio
async def test_a_part_that_knows_nothing_of_a_step_is_refused(tmp_path: Path) -> None:
    storage = DirectoryStorage(tmp_path)
    await storage.open("flow")
    file = await storage.write_part(1, TASK, 0, {"sums": complete({})})
    await storage.complete(manifest(1, {"other": [[file]]}))

    with pytest.raises(RestoreError, match=r"000001.*holds nothing of step 'other'"):
        await storage.latest()

    await storage.close()


@pytest.mark.asyncio
async def test_a_complete_part_in_a_chain_replaces_the_preceding_ones(tmp_path: Path) -> None:
    storage = DirectoryStorage(tmp_path)
    await storage.open("flow")
    old = await storage.write_part(
        1, TASK, 0, {"sums": complete({0: [("a", "1")], 1: [("b", "1")]})}
    )
    new = await storage.write_part(2, TASK, 0, {"sums": complete({1: [("c", "2")]})})
    await storage.complete(manifest(2, {"sums": [[old, new]]}))

    restored = await storage.latest()

    await storage.close()
    assert restored is not None
    assert restored.states == {"sums": complete({1: [("c", "2")]})}


# ------------------------------------------------------------------------------------------- savepoints


async def export(folder: Path, to: Path) -> Manifest:
    storage = DirectoryStorage(folder)
    await storage.open("flow")
    restored = await storage.latest()
    assert restored is not None
    saved = await storage.export(restored.manifest, str(to))
    await storage.close()
    return saved


@pytest.mark.asyncio
async def test_a_savepoint_needs_no_other_file(folder: Path, tmp_path: Path) -> None:
    saved = await export(folder, tmp_path / "saved" / "one")
    shutil.rmtree(folder)
    moved = (tmp_path / "saved" / "one").rename(tmp_path / "moved")

    restored = await read_checkpoint(moved)

    assert restored.manifest == saved
    assert restored.manifest.kind is CheckpointKind.SAVEPOINT
    assert restored.manifest.id == 2
    assert restored.states == states(2)
    assert list(tmp_path.glob("saved/.*")) == []


@pytest.mark.asyncio
async def test_the_chains_of_a_savepoint_are_one_complete_part_each(tmp_path: Path) -> None:
    storage = DirectoryStorage(tmp_path / "state")
    await storage.open("flow")
    old = await storage.write_part(
        1, TASK, 0, {"a": complete({0: [("x", "1")]}), "b": complete({})}
    )
    new = await storage.write_part(2, TASK, 0, {"a": changes({1: [("y", "2")]}), "b": complete({})})
    one = manifest(2, {"a": [[Link(old, 0, 2), Link(new, 0, 2)]], "b": [[new]]})

    saved = await storage.export(one, str(tmp_path / "saved"))

    await storage.close()
    chains = {step.name: step.subtasks[0].chain for step in saved.steps}
    assert [(link.first, link.stop) for link in chains["a"]] == [(0, 2)]
    assert len(chains["b"]) == 1
    restored = await read_checkpoint(tmp_path / "saved")
    assert restored.states["a"] == complete({0: [("x", "1")], 1: [("y", "2")]})


@pytest.mark.asyncio
@pytest.mark.parametrize("there", ["a folder", "a file", "a link to nowhere"])
async def test_a_savepoint_does_not_replace_an_existing_folder(
    folder: Path, tmp_path: Path, there: str
) -> None:
    target = tmp_path / "saved"
    match there:
        case "a folder":
            target.mkdir()
        case "a file":
            target.write_text("notes")
        case _:
            target.symlink_to(tmp_path / "nowhere")

    with pytest.raises(CheckpointError, match=r"there is something at .*/saved already"):
        await export(folder, target)


@pytest.mark.asyncio
async def test_a_savepoint_of_a_checkpoint_that_is_not_whole_is_refused(
    folder: Path, tmp_path: Path
) -> None:
    storage = DirectoryStorage(folder)
    await storage.open("flow")
    one = manifest(9, {"sums": [[(await parts(storage, 9)).steps[0].subtasks[0].chain[0].file]]})
    cut(next((folder / "parts").glob("000009-*-0.part")))

    with pytest.raises(CheckpointError, match=r"step 'sums' cannot be read back: .*is truncated"):
        await storage.export(one, str(tmp_path / "saved"))

    await storage.close()
    assert [path.name for path in tmp_path.iterdir()] == ["state"]


@pytest.mark.asyncio
async def test_a_sweep_ignores_a_savepoint_inside_the_folder(folder: Path) -> None:
    storage = DirectoryStorage(folder)
    await storage.open("flow")
    restored = await storage.latest()
    assert restored is not None
    await storage.export(restored.manifest, str(folder / "parts" / "000001-saved.part"))
    for number in (1, 2):
        await storage.discard(number)

    await storage.sweep([])

    await storage.close()
    assert (await read_checkpoint(folder / "parts" / "000001-saved.part")).states == states(2)


@pytest.mark.asyncio
async def test_a_job_may_begin_in_a_folder_that_is_a_savepoint(
    folder: Path, tmp_path: Path
) -> None:
    await export(folder, tmp_path / "saved")
    storage = DirectoryStorage(tmp_path / "saved")
    await storage.open("flow")

    await storage.sweep([])

    restored = await storage.latest()
    assert restored is not None
    assert restored.states == states(2)
    assert await storage.kept() == []
    assert await storage.next_id() == 3
    await storage.close()


# ------------------------------------------------------------------------------- reading without claiming


@pytest.mark.asyncio
async def test_a_checkpoint_can_be_read_while_a_job_holds_its_folder(folder: Path) -> None:
    storage = DirectoryStorage(folder)
    await storage.open("flow")

    newest = await read_checkpoint(folder)
    first = await read_checkpoint(folder / "checkpoint-000001.json")

    await storage.close()
    assert (newest.manifest.id, newest.states) == (2, states(2))
    assert (first.manifest.id, first.states) == (1, states(1))


@pytest.mark.asyncio
async def test_the_newest_whole_checkpoint_of_a_folder_is_read(folder: Path) -> None:
    newest_part(folder).unlink()

    restored = await read_checkpoint(folder)

    assert restored.manifest.id == 1
    assert len(restored.passed_over) == 1


@pytest.mark.asyncio
async def test_a_single_manifest_can_be_read(folder: Path) -> None:
    newest_part(folder).unlink()

    with pytest.raises(RestoreError, match=r"000002.*\.part is missing"):
        await read_checkpoint(newest_manifest(folder))


@pytest.mark.asyncio
async def test_nothing_at_a_path_is_said_to_be_nothing(tmp_path: Path) -> None:
    with pytest.raises(
        RestoreError, match=r"there is no checkpoint at .*/nowhere: nothing of that"
    ):
        await read_checkpoint(tmp_path / "nowhere")


@pytest.mark.asyncio
async def test_a_folder_of_something_else_is_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("notes")

    with pytest.raises(RestoreError, match=r"holds no checkpoint: .* checkpoint-000001\.json"):
        await read_checkpoint(tmp_path)


@pytest.mark.asyncio
async def test_a_file_of_something_else_is_no_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("notes")

    with pytest.raises(RestoreError, match=r"notes\.txt is no manifest of a checkpoint"):
        await read_checkpoint(tmp_path / "notes.txt")


@pytest.mark.asyncio
async def test_a_folder_without_any_completed_checkpoint_says_so(tmp_path: Path) -> None:
    storage = DirectoryStorage(tmp_path)
    await storage.open("flow")

    with pytest.raises(RestoreError, match="no checkpoint has been completed in"):
        await read_checkpoint(tmp_path)

    await storage.close()


@pytest.mark.asyncio
async def test_a_checkpoint_of_a_newer_format_names_the_version_to_upgrade_to(
    folder: Path,
) -> None:
    path = newest_manifest(folder)
    path.write_bytes(path.read_bytes().replace(b'"format": 1', b'"format": 7'))

    with pytest.raises(
        RestoreError, match=r"format 7, written by aflow 1\.2\.3; .*: upgrade aflow"
    ):
        await read_checkpoint(path)
