"""Output folders that are damaged between two runs, and disks that are full while a sink writes."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from aflow.connect import Committable, SinkError, Writer, WriterContext
from aflow.errors import RestoreError
from aflow_connectors.files import JsonLinesSink
from aflow_connectors.files.output.names import Parts
from tests.connectors.files.reading import prepared

LOCK = ".part-00000.jsonl.inprogress"


async def recovered(folder: Path, *checkpoint: Committable) -> Writer[Any]:
    sink = JsonLinesSink[Any](folder)
    await sink.recover("out", checkpoint)
    return await sink.writer(WriterContext("out", checkpoints=True))


def fill_disk(monkeypatch: pytest.MonkeyPatch, *, after: int) -> None:
    """Let the next ``os.write`` write ``after`` bytes only, as a disk does that is full then."""
    write = os.write

    def short(descriptor: int, data: bytes) -> int:
        monkeypatch.setattr(os, "write", write)
        return write(descriptor, data[:after])

    monkeypatch.setattr(os, "write", short)


@pytest.mark.asyncio
async def test_a_piece_that_a_full_disk_does_not_record_fails_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = await recovered(tmp_path)
    first = await prepared(writer, 1, {"n": 1})
    await writer.commit(first)
    fill_disk(monkeypatch, after=30)

    with pytest.raises(SinkError, match="No space left on device"):
        await prepared(writer, 2, {"n": 2})

    await writer.close()
    await (await recovered(tmp_path, first)).close()
    assert [one.name for one in tmp_path.glob("part-*")] == ["part-00000-000001.jsonl"]


@pytest.mark.asyncio
async def test_a_commit_that_a_full_disk_does_not_record_shows_nothing_and_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = await recovered(tmp_path)
    first = await prepared(writer, 1, {"n": 1})
    fill_disk(monkeypatch, after=10)

    with pytest.raises(SinkError, match="No space left on device"):
        await writer.commit(first)

    await writer.close()
    assert not list(tmp_path.glob("part-*"))
    await (await recovered(tmp_path, first)).close()
    assert (tmp_path / "part-00000-000001.jsonl").read_text() == '{"n":1}\n'


@pytest.mark.asyncio
async def test_a_manifest_whose_first_line_was_cut_off_proves_later_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = await recovered(tmp_path)
    empty = await writer.prepare(1)
    fill_disk(monkeypatch, after=20)
    with pytest.raises(SinkError):
        await prepared(writer, 2, {"n": 1})
    await writer.close()

    writer = await recovered(tmp_path, empty)
    third = await prepared(writer, 3, {"n": 1})
    await writer.commit(third)
    await writer.close()

    await (await recovered(tmp_path, third)).close()
    assert (tmp_path / "part-00000-000003.jsonl").read_text() == '{"n":1}\n'


def truncated(piece: Path) -> None:
    os.truncate(piece, 3)


def edited(piece: Path) -> None:
    piece.write_text('{"n":7}\n')


def fifo(piece: Path) -> None:
    piece.unlink()
    os.mkfifo(piece)


def link(piece: Path) -> None:
    piece.rename(piece.with_name("elsewhere"))
    piece.symlink_to(piece.with_name("elsewhere"))


@pytest.mark.asyncio
@pytest.mark.parametrize("damage", [truncated, edited, fifo, link])
async def test_a_piece_that_was_changed_before_its_commit_is_refused(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    writer = await recovered(tmp_path / "a")
    first = await prepared(writer, 1, {"n": 1})
    await writer.close()
    (piece,) = (tmp_path / "a").glob(".*.pending")
    damage(piece)

    for folder in ("a", "b"):
        with pytest.raises(RestoreError, match="is not the file that the job wrote"):
            await JsonLinesSink(tmp_path / folder).recover("out", [first])

    assert not list((tmp_path / "a").glob("part-*"))


@pytest.mark.asyncio
async def test_a_piece_is_committed_from_a_copy_with_other_times(tmp_path: Path) -> None:
    writer = await recovered(tmp_path / "a")
    first = await prepared(writer, 1, {"n": 1})
    await writer.close()
    shutil.copytree(tmp_path / "a", tmp_path / "b", copy_function=shutil.copyfile)

    await (await recovered(tmp_path / "b", first)).close()

    assert (tmp_path / "b" / "part-00000-000001.jsonl").read_text() == '{"n":1}\n'


@pytest.mark.asyncio
async def test_a_fifo_in_place_of_the_lock_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / LOCK)

    with pytest.raises(SinkError, match="is no lock file of this version of aflow"):
        await recovered(tmp_path)


@pytest.mark.asyncio
async def test_a_lock_of_deeply_nested_json_is_refused(tmp_path: Path) -> None:
    (tmp_path / LOCK).write_text("[" * 4096)

    with pytest.raises(SinkError, match="is no lock file of this version of aflow"):
        await recovered(tmp_path)


@pytest.mark.asyncio
async def test_a_manifest_is_not_written_through_a_link(tmp_path: Path) -> None:
    writer = await recovered(tmp_path / "a")
    empty = await writer.prepare(1)
    await writer.close()
    owner = cast("dict[str, str]", empty)["owner"]
    (tmp_path / "precious").write_text("precious")
    Parts.of(tmp_path / "a", suffix=".jsonl").manifest(owner).symlink_to(tmp_path / "precious")

    writer = await recovered(tmp_path / "a", empty)
    with pytest.raises(SinkError, match="cannot write"):
        await prepared(writer, 2, {"n": 1})

    await writer.close()
    assert (tmp_path / "precious").read_text() == "precious"


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "crafted",
    [{"folder": "a\0b"}, {"folder": "\ud800"}, {"piece": f"part-00000-{'1' * 5000}.jsonl"}],
    ids=["NUL", "no text", "too long"],
)
async def test_a_crafted_name_is_an_error_of_the_restore(
    tmp_path: Path, crafted: dict[str, str]
) -> None:
    writer = await recovered(tmp_path / "a")
    first = cast("dict[str, object]", await prepared(writer, 1, {"n": 1}))
    await writer.close()

    with pytest.raises(RestoreError, match="cannot commit"):
        await JsonLinesSink(tmp_path / "b").recover("out", [{**first, **crafted}])
