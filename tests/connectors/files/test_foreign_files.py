"""A sink removes and renames only files that its manifest proves to be its own."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from shutil import copytree
from typing import Any, cast

import pytest

from aflow.connect import Committable, Sink, SinkError, Writer, WriterContext
from aflow.errors import RestoreError
from aflow_connectors.files import CsvSink, JsonLinesSink, ParquetSink
from tests.connectors.files.reading import files_in, prepared, write

FOREIGN = "of somebody else\n"


@dataclass
class FinishedJob:
    """A job that wrote a record for each of checkpoints 1 to 3, committed the first two, and was stopped."""

    sink: Sink[Any]
    checkpoints: list[Committable] = field(default_factory=list[Committable])


async def opened(sink: Sink[Any]) -> Writer[Any]:
    return await sink.writer(WriterContext("out", checkpoints=True))


async def finished(sink: Sink[Any], *, committed: int = 3) -> FinishedJob:
    job = FinishedJob(sink)
    await sink.recover("out", [])
    writer = await opened(sink)
    for number in (1, 2, 3):
        job.checkpoints.append(await prepared(writer, number, {"n": number}))
        if number <= committed:
            await writer.commit(job.checkpoints[-1])
    await writer.close()
    return job


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "kind", [JsonLinesSink, CsvSink, ParquetSink], ids=lambda kind: kind.__name__
)
async def test_files_of_the_user_with_names_like_pieces_survive_a_restart(
    tmp_path: Path, kind: Any
) -> None:
    path = tmp_path / f"events{kind.suffix}"
    job = await finished(kind(path), committed=1)
    names = ["events-20240115-120000", "events-00007-20240115", "events-00000-000099"]
    hidden = [".events-00001-999999{}.pending", ".events-20240115{}.inprogress"]
    foreign = [f"{name}{kind.suffix}" for name in names]
    foreign += [name.format(kind.suffix) for name in hidden]
    for name in foreign:
        (tmp_path / name).write_text(FOREIGN)

    await kind(path).recover("out", job.checkpoints[:2])

    assert [(tmp_path / name).read_text() for name in foreign] == [FOREIGN] * 5
    assert f"events-00000-000002{kind.suffix}" in files_in(tmp_path)


@pytest.mark.asyncio
async def test_a_job_does_not_continue_in_the_folder_of_another_one(tmp_path: Path) -> None:
    await finished(JsonLinesSink(tmp_path / "a"))
    before = files_in(tmp_path / "a")
    other = await finished(JsonLinesSink(tmp_path / "b"))

    with pytest.raises(SinkError, match="is output of another run than that of the checkpoint"):
        await JsonLinesSink(tmp_path / "a", overwrite=True).recover("out", other.checkpoints[:1])

    assert files_in(tmp_path / "a") == before


@pytest.mark.asyncio
@pytest.mark.parametrize("checkpoints", [True, False], ids=["with checkpoints", "without"])
async def test_overwriting_keeps_files_that_are_not_proven_to_be_output(
    tmp_path: Path, checkpoints: bool
) -> None:
    foreign = tmp_path / "part-00000-000001.jsonl"
    foreign.write_text(FOREIGN)
    sink = JsonLinesSink[int](tmp_path, overwrite=True)

    begin = sink.recover("out", []) if checkpoints else write(sink, [1])
    with pytest.raises(SinkError, match=r"no manifest .* overwrite=True does not remove it: move"):
        await begin

    assert foreign.read_text() == FOREIGN


@pytest.mark.asyncio
async def test_overwriting_keeps_edited_output(tmp_path: Path) -> None:
    await finished(JsonLinesSink(tmp_path))
    edited = tmp_path / "part-00000-000002.jsonl"
    edited.write_text("edited\n")

    with pytest.raises(SinkError, match=r"part-00000-000002\.jsonl already exists: it has"):
        await JsonLinesSink(tmp_path, overwrite=True).recover("out", [])

    assert edited.read_text() == "edited\n"
    assert len(files_in(tmp_path)) == 3


@pytest.mark.asyncio
async def test_restoring_an_older_checkpoint_keeps_an_edited_piece(tmp_path: Path) -> None:
    job = await finished(JsonLinesSink(tmp_path))
    edited = tmp_path / "part-00000-000003.jsonl"
    edited.write_text("edited\n")

    with pytest.raises(SinkError, match="was changed since: move it elsewhere"):
        await JsonLinesSink(tmp_path).recover("out", job.checkpoints[:1])

    assert edited.read_text() == "edited\n"
    assert len(files_in(tmp_path)) == 3


@pytest.mark.asyncio
async def test_a_copied_folder_belongs_to_the_job_and_the_original_is_kept(tmp_path: Path) -> None:
    job = await finished(JsonLinesSink(tmp_path / "a"))
    copytree(
        tmp_path / "a",
        tmp_path / "b",
        copy_function=lambda a, b: Path(b).write_bytes(Path(a).read_bytes()),
    )

    await JsonLinesSink(tmp_path / "b").recover("out", job.checkpoints[:1])

    assert files_in(tmp_path / "b") == ["part-00000-000001.jsonl"]
    assert len(files_in(tmp_path / "a")) == 3


@pytest.mark.asyncio
async def test_output_that_waits_for_its_commit_survives_a_job_that_starts_fresh(
    tmp_path: Path,
) -> None:
    job = await finished(JsonLinesSink(tmp_path), committed=0)

    other = JsonLinesSink[int](tmp_path)
    await other.recover("out", [])
    writer = await opened(other)
    await prepared(writer, 1, 7)
    await writer.close()
    await JsonLinesSink(tmp_path).recover("out", job.checkpoints)

    shown = sorted(path.read_text() for path in tmp_path.glob("part-*"))
    assert shown == ['{"n":1}\n', '{"n":2}\n', '{"n":3}\n']


@pytest.mark.asyncio
async def test_output_of_the_checkpoint_that_was_lost_is_an_error(tmp_path: Path) -> None:
    job = await finished(JsonLinesSink(tmp_path), committed=2)
    (waiting,) = tmp_path.glob("*.pending")
    waiting.unlink()

    with pytest.raises(RestoreError, match=r"part-00000-000003\.jsonl is not in .* any more"):
        await JsonLinesSink(tmp_path).recover("out", job.checkpoints)


@pytest.mark.asyncio
async def test_a_checkpoint_with_withdrawn_output_is_refused(tmp_path: Path) -> None:
    job = await finished(JsonLinesSink(tmp_path))
    await JsonLinesSink(tmp_path).recover("out", job.checkpoints[:1])

    with pytest.raises(RestoreError, match="the output of checkpoints 2 to 3 was removed"):
        await JsonLinesSink(tmp_path).recover("out", job.checkpoints[:2])


@pytest.mark.asyncio
@pytest.mark.parametrize("owner", ["0123456789abcdef", None], ids=["with an owner", "without"])
async def test_a_checkpoint_renames_nothing_outside_of_the_folder_of_its_sink(
    tmp_path: Path, owner: str | None
) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    waiting = elsewhere / ".part-00000-000001.jsonl.pending"
    waiting.write_text(FOREIGN)
    (elsewhere / f".part-00000-000001.jsonl.{owner}.pending").write_text(FOREIGN)
    crafted: dict[str, object] = {
        "checkpoint": 1,
        "piece": "part-00000-000001.jsonl",
        "folder": str(elsewhere),
    }
    if owner is not None:
        crafted["owner"] = owner
    before = files_in(elsewhere)

    with pytest.raises(RestoreError, match=r"cannot commit .*part-00000-000001\.jsonl"):
        await JsonLinesSink(tmp_path / "out").recover("out", [crafted])

    assert files_in(elsewhere) == before


@pytest.mark.asyncio
@pytest.mark.parametrize("piece", ["../part-00000-000001.jsonl", ".hidden", "a\0b"], ids=repr)
async def test_a_piece_that_is_no_name_in_a_folder_is_refused(tmp_path: Path, piece: str) -> None:
    crafted = {"checkpoint": 1, "piece": piece, "folder": str(tmp_path), "owner": "0" * 16}

    with pytest.raises(RestoreError, match="another kind of sink"):
        await JsonLinesSink(tmp_path).recover("out", [crafted])


@pytest.mark.asyncio
async def test_a_file_in_place_of_the_lock_is_neither_changed_nor_removed(tmp_path: Path) -> None:
    foreign = tmp_path / ".out.jsonl.inprogress"
    foreign.write_text(FOREIGN)

    with pytest.raises(SinkError, match="is no lock file of this version of aflow"):
        await write(JsonLinesSink(tmp_path / "out.jsonl"), [1])

    assert foreign.read_text() == FOREIGN


@pytest.mark.asyncio
async def test_a_link_to_nothing_in_place_of_the_lock_is_an_error(tmp_path: Path) -> None:
    (tmp_path / ".out.jsonl.inprogress").symlink_to(tmp_path / "nothing")

    with pytest.raises(SinkError, match="No such file"):
        await write(JsonLinesSink(tmp_path / "out.jsonl"), [1])

    assert not (tmp_path / "nothing").exists()


@pytest.mark.asyncio
async def test_a_manifest_of_another_owner_proves_nothing(tmp_path: Path) -> None:
    job = await finished(JsonLinesSink(tmp_path))
    (manifest,) = tmp_path.glob("*.manifest")
    manifest.rename(tmp_path / ".part.jsonl.0123456789abcdef.manifest")
    crafted = {**cast("dict[str, object]", job.checkpoints[0]), "owner": "0123456789abcdef"}

    with pytest.raises(SinkError, match="the sink did not write to"):
        await JsonLinesSink(tmp_path).recover("out", [crafted])

    assert len(files_in(tmp_path)) == 3


# Output of versions that kept no manifest.


async def former(folder: Path, *, committed: int) -> list[Committable]:
    """Leave checkpoints 1 and 2 as such a version did."""
    folder.mkdir()
    for number in (1, 2):
        name = f"part-00000-00000{number}.jsonl"
        shown = name if number <= committed else f".{name}.pending"
        (folder / shown).write_text(f"{number}\n")
    return [
        {"checkpoint": n, "piece": f"part-00000-00000{n}.jsonl", "folder": str(folder)}
        for n in (1, 2)
    ]


@pytest.mark.asyncio
@pytest.mark.parametrize("committed", [0, 1, 2])
async def test_a_job_is_restored_from_a_checkpoint_without_manifest(
    tmp_path: Path, committed: int
) -> None:
    folder = tmp_path / "out"
    committables = await former(folder, committed=committed)

    await JsonLinesSink(folder).recover("out", committables)
    sink = JsonLinesSink[int](folder)
    await sink.recover("out", committables)
    writer = await opened(sink)
    later = await prepared(writer, 3, 3)
    await writer.commit(later)
    await writer.close()
    await JsonLinesSink(folder).recover("out", [later])

    assert files_in(folder) == [f"part-00000-00000{n}.jsonl" for n in (1, 2, 3)]


@pytest.mark.asyncio
async def test_later_output_without_manifest_is_not_removed_but_refused(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    committables = await former(folder, committed=2)

    with pytest.raises(SinkError, match="may be output of a later one: if so remove it"):
        await JsonLinesSink(folder).recover("out", committables[:1])

    assert len(files_in(folder)) == 2


@pytest.mark.asyncio
async def test_a_piece_without_manifest_is_not_committed_in_another_folder(tmp_path: Path) -> None:
    committables = await former(tmp_path / "old", committed=1)

    with pytest.raises(RestoreError, match="Start the job once with the former path"):
        await JsonLinesSink(tmp_path / "new").recover("out", committables)

    assert len(files_in(tmp_path / "old")) == 2
