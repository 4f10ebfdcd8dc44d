"""Invalid files in the folder of a checkpoint: they are refused at once, and nothing outside is accessed."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aflow.backfill.contents import rows_of, stored_parts
from aflow.errors import CheckpointError, RestoreError
from aflow.runtime.checkpoints.directory.reader import read_checkpoint
from aflow.runtime.checkpoints.directory.storage import DirectoryStorage
from aflow.state.manifest import Manifest, checksum, manifest_bytes
from tests.runtime.checkpoints.sample_checkpoints import TASK, complete, manifest
from tests.stable_ids import stable

pytestmark = pytest.mark.asyncio

Damage = Callable[[Path], object]


async def taken(folder: Path, numbers: tuple[int, ...] = (1, 2)) -> Manifest:
    """Write checkpoints into ``folder``, each with a part of its own. Return the newest."""
    storage = DirectoryStorage(folder)
    await storage.open("flow")
    newest = manifest(0, {})
    for number in numbers:
        part = await storage.write_part(number, TASK, 0, {"sums": complete({0: [("a", "1")]})})
        newest = manifest(number, {"sums": [[part]]})
        await storage.complete(newest)
    await storage.close()
    return newest


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def link_outside(path: Path) -> None:
    outside = path.parent.parent / "outside"
    path.rename(outside)
    path.symlink_to(outside)


def link_to_zero(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def folder_instead(path: Path) -> None:
    path.unlink()
    path.mkdir()


def terabyte(path: Path) -> None:
    os.truncate(path, 1 << 40)


DAMAGES = {
    pipe: "named pipe",
    link_outside: "symbolic link",
    link_to_zero: "symbolic link",
    folder_instead: "folder",
    terabyte: r"too long: 1099511627776 bytes|1,099,511,627,776 bytes",
}


@pytest.mark.parametrize(("damage", "said"), DAMAGES.items(), ids=stable)
@pytest.mark.parametrize("what", ["parts/000002*.part", "checkpoint-000002.json"])
async def test_a_file_that_is_no_checkpoint_is_skipped_and_named(
    tmp_path: Path, what: str, damage: Damage, said: str
) -> None:
    await taken(tmp_path / "state")
    (path,) = (tmp_path / "state").glob(what)
    damage(path)

    restored = await read_checkpoint(tmp_path / "state")

    assert restored.manifest.id == 1
    (passed_over,) = restored.passed_over
    assert path.name in passed_over
    assert re.search(said, passed_over)


async def test_a_folder_of_parts_that_is_a_link_is_refused_by_readers_and_writers(
    tmp_path: Path,
) -> None:
    await taken(tmp_path / "state")
    (tmp_path / "state" / "parts").rename(tmp_path / "elsewhere")
    (tmp_path / "state" / "parts").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(RestoreError, match="parts is a symbolic link"):
        await read_checkpoint(tmp_path / "state")
    with pytest.raises(CheckpointError, match="parts is a symbolic link"):
        await DirectoryStorage(tmp_path / "state").open("flow")


async def test_the_folder_itself_may_be_a_link(tmp_path: Path) -> None:
    await taken(tmp_path / "disk")
    (tmp_path / "state").symlink_to(tmp_path / "disk")

    restored = await read_checkpoint(tmp_path / "state")
    await taken(tmp_path / "state", (3,))

    assert restored.manifest.id == 2
    assert (tmp_path / "disk" / "checkpoint-000003.json").exists()


@pytest.mark.parametrize("name", ["lock", "checkpoint-000001.json.tmp"])
async def test_a_file_outside_is_never_written_through_a_link(tmp_path: Path, name: str) -> None:
    precious = tmp_path / "precious"
    precious.write_text("keep")
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / name).symlink_to(precious)

    with pytest.raises(CheckpointError, match="symbolic link"):
        await taken(tmp_path / "state")

    assert precious.read_text() == "keep"


@pytest.mark.parametrize("name", ["flow.json", "lock", "checkpoint-000001.json.tmp"])
async def test_a_pipe_under_a_name_of_ours_is_refused_and_not_waited_for(
    tmp_path: Path, name: str
) -> None:
    (tmp_path / "state").mkdir()
    os.mkfifo(tmp_path / "state" / name)

    with pytest.raises(CheckpointError, match="named pipe"):
        await taken(tmp_path / "state")


def rows_in(folder: Path) -> list[object]:
    """Return the checkpoint as readers without the pipeline see it."""
    return [row for part in stored_parts(str(folder)) for row in rows_of(part)]


def as_written_by(change: Callable[[Manifest], Manifest], newest: Manifest) -> bytes:
    """Return a manifest that this version would not write, with a valid checksum."""
    text = manifest_bytes(newest).decode()
    envelope = json.loads(text)
    changed = change(newest)
    envelope["checkpoint"]["key_groups"] = changed.key_groups
    envelope["checkpoint"]["created_at"] = changed.created_at
    step, wanted = envelope["checkpoint"]["steps"][0], changed.steps[0]
    step["parallelism"] = wanted.parallelism
    step["subtasks"][0]["subtask"] = wanted.subtasks[0].subtask
    link, wished = step["subtasks"][0]["chain"][0], wanted.subtasks[0].chain[0]
    link["first"], link["stop"] = wished.first, wished.stop
    link["file"]["size"], link["file"]["path"] = wished.file.size, wished.file.path
    body = json.dumps(envelope["checkpoint"])
    head = f"{envelope['format']} {envelope['aflow']} "
    said = checksum(f"{head}{body}".encode())
    return (
        f'{{"format": {envelope["format"]}, "aflow": {json.dumps(envelope["aflow"])}, '
        f'"checksum": "{said}", "checkpoint": {body}}}'
    ).encode()


def linked(newest: Manifest, **changes: Any) -> Manifest:
    step = newest.steps[0]
    (one,) = step.subtasks
    (link,) = one.chain
    subtasks = (replace(one, chain=(replace(link, **changes),)),)
    return replace(newest, steps=(replace(step, subtasks=subtasks),))


def filed(newest: Manifest, **changes: Any) -> Manifest:
    link = newest.steps[0].subtasks[0].chain[0]
    file = replace(link.file, **changes)
    return linked(newest, file=file)


CHANGES: list[tuple[Callable[[Manifest], Manifest], str]] = [
    (lambda one: replace(one, key_groups=10**15), "key groups"),
    (lambda one: replace(one, key_groups=0), "key groups"),
    (lambda one: replace(one, key_groups=-4), "key groups"),
    (lambda one: replace(one, created_at=10**30), "out of range|no manifest"),
    (lambda one: linked(one, stop=10**15), "key groups"),
    (lambda one: linked(one, first=-1), "key groups"),
    (lambda one: linked(one, first=3, stop=2), "key groups"),
    (lambda one: filed(one, size=-1), "-1 bytes"),
    (lambda one: filed(one, size=1 << 62), "truncated"),
    (lambda one: filed(one, path="/etc/passwd"), "points out of its folder"),
    (lambda one: filed(one, path="parts/../../x"), "points out of its folder"),
    (lambda one: filed(one, path="parts/a\0b"), "points out of its folder"),
    (lambda one: filed(one, path=""), "points out of its folder"),
    (lambda one: replace(one, steps=(replace(one.steps[0], parallelism=10**15),)), "subtasks"),
]


@pytest.mark.parametrize(("change", "said"), CHANGES, ids=map(str, range(len(CHANGES))))
async def test_numbers_of_a_manifest_are_checked_before_anything_is_read(
    tmp_path: Path, change: Callable[[Manifest], Manifest], said: str
) -> None:
    newest = await taken(tmp_path / "state", (1,))
    path = tmp_path / "state" / "checkpoint-000001.json"
    path.write_bytes(as_written_by(change, newest))

    with pytest.raises(RestoreError, match=said):
        await read_checkpoint(tmp_path / "state")
    with pytest.raises(RestoreError, match=said):
        rows_in(tmp_path / "state")


@pytest.mark.parametrize(
    "body",
    [b'{"format": ' + b"[" * 100_000, b'{"format": 1' + b"0" * 9_000, b"\xff\xfe", b"", b"null"],
    ids=["deep", "long number", "no text", "empty", "null"],
)
async def test_json_that_is_no_manifest_is_an_error_of_the_restore(
    tmp_path: Path, body: bytes
) -> None:
    await taken(tmp_path / "state", (1,))
    (tmp_path / "state" / "checkpoint-000001.json").write_bytes(body)

    with pytest.raises(RestoreError, match="no manifest"):
        await read_checkpoint(tmp_path / "state")
