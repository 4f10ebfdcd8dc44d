"""With checkpoints, file sinks write pieces, and each record is in exactly one of them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from aflow.connect import Committable, Sink, SinkError, Writer, WriterContext
from aflow.errors import InternalError, RestoreError
from aflow_connectors.files import (
    CsvSink,
    CsvSource,
    JsonLinesSink,
    JsonLinesSource,
    ParquetSink,
    ParquetSource,
)
from tests.connectors.files.reading import files_in, fill_disk, prepared, put, records, write


async def opened(sink: Sink[Any], *, subtask: int = 0, parallelism: int = 1) -> Writer[Any]:
    return await sink.writer(
        WriterContext("out", subtask=subtask, parallelism=parallelism, checkpoints=True)
    )


async def crashed(folder: Path, *epochs: Sequence[object]) -> list[Committable]:
    """Remains of a writer that has prepared ``epochs`` as checkpoints 1, 2, … and written 99 for none of them."""
    writer = await opened(JsonLinesSink(folder))
    committables = [await prepared(writer, n, *epoch) for n, epoch in enumerate(epochs, start=1)]
    await put(writer, "x" * (2 << 20))
    (lock,) = folder.glob(".*.inprogress")
    note, scratch = lock.read_text(), json.loads(lock.read_text())["scratch"]
    await writer.close()
    (folder / scratch).write_text("99\n")
    lock.write_text(note)
    return committables


async def left_behind(folder: Path, name: str) -> None:
    """Leave the output of a job: a part, or the piece of checkpoint 1."""
    if name == "part-00000.jsonl":
        await write(JsonLinesSink(folder), [7])
    else:
        sink = JsonLinesSink[int](folder)
        await sink.recover("out", await crashed(folder, [7]))
    assert files_in(folder) == [name]


@pytest.mark.asyncio
async def test_a_piece_is_visible_once_its_checkpoint_is_complete(tmp_path: Path) -> None:
    writer = await opened(JsonLinesSink(tmp_path))
    committable = await prepared(writer, 12, 1, 2)
    before = files_in(tmp_path)

    await writer.commit(committable)
    await writer.flush()
    await writer.close()

    assert before == [".part-00000-000012.jsonl.pending", ".part-00000.jsonl.inprogress"]
    assert files_in(tmp_path) == ["part-00000-000012.jsonl"]
    assert (tmp_path / "part-00000-000012.jsonl").read_text() == "1\n2\n"


@pytest.mark.asyncio
async def test_a_second_commit_changes_nothing_also_when_a_reader_has_taken_the_piece_away(
    tmp_path: Path,
) -> None:
    writer = await opened(JsonLinesSink(tmp_path))
    committable = await prepared(writer, 1, 1)
    await writer.commit(committable)

    await writer.commit(committable)
    once = files_in(tmp_path)
    (tmp_path / "part-00000-000001.jsonl").unlink()
    await writer.commit(committable)
    await writer.close()

    assert once == [".part-00000.jsonl.inprogress", "part-00000-000001.jsonl"]
    assert files_in(tmp_path) == []


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "sink", [JsonLinesSink, CsvSink, ParquetSink], ids=lambda kind: kind.__name__
)
async def test_a_checkpoint_without_records_makes_no_file(tmp_path: Path, sink: Any) -> None:
    writer = await opened(sink(tmp_path / "out"))
    committables = [await prepared(writer, n, *rows) for n, rows in ((1, []), (2, [{"a": 1}]))]
    committables.append(await prepared(writer, 3))
    for committable in committables:
        await writer.commit(committable)
    await writer.flush()
    await writer.close()

    assert [Path(name).stem for name in files_in(tmp_path / "out")] == ["part-00000-000002"]


@pytest.mark.asyncio
@pytest.mark.parametrize("name", ["out.jsonl", "out.jsonl.gz", "out.jsonl.zst"])
async def test_beside_a_path_with_a_suffix_there_are_whole_pieces_of_that_name(
    tmp_path: Path, name: str
) -> None:
    writer = await opened(JsonLinesSink(tmp_path / name))
    for checkpoint in (1, 2):
        await writer.commit(await prepared(writer, checkpoint, {"n": checkpoint}))
    await writer.close()

    ending = name.removeprefix("out")
    assert files_in(tmp_path) == [f"out-00000-000001{ending}", f"out-00000-000002{ending}"]
    assert await records(JsonLinesSource(tmp_path)) == [{"n": 1}, {"n": 2}]


@pytest.mark.asyncio
async def test_each_piece_of_a_table_has_a_header_and_the_same_columns(tmp_path: Path) -> None:
    writer = await opened(CsvSink(tmp_path))
    for n in (1, 2):
        await writer.commit(await prepared(writer, n, {"n": n, "t": "a"}))
    await writer.close()

    assert (tmp_path / "part-00000-000002.csv").read_text() == "n,t\n2,a\n"
    assert await records(CsvSource(tmp_path)) == [{"n": "1", "t": "a"}, {"n": "2", "t": "a"}]


@pytest.mark.asyncio
async def test_each_piece_of_parquet_is_a_whole_file_of_the_same_types(tmp_path: Path) -> None:
    writer = await opened(ParquetSink(tmp_path, row_group=2))
    rows = [{"n": 0.5}, {"n": 1.0}, {"n": None}]
    await writer.commit(await prepared(writer, 1, *rows))
    await writer.commit(await prepared(writer, 2, {"n": None}))
    await writer.close()

    assert await records(ParquetSource(tmp_path)) == [*rows, {"n": None}]


@pytest.mark.asyncio
async def test_a_checkpoint_that_bypassed_a_writer_is_resumed_after_an_earlier_restore(
    tmp_path: Path,
) -> None:
    async def attempt(
        restored: Sequence[Committable], *checkpoints: Sequence[int]
    ) -> list[list[Committable]]:
        """Restore the sink, and commit the pieces of some checkpoints of each writer; return them by writer."""
        sink = JsonLinesSink[int](tmp_path)
        await sink.recover("out", restored)
        pieces: list[list[Committable]] = []
        for subtask, numbers in enumerate(checkpoints):
            writer = await opened(sink, subtask=subtask, parallelism=2)
            pieces.append([await prepared(writer, n, 10 * n + subtask) for n in numbers])
            for piece in pieces[-1]:
                await writer.commit(piece)
            await writer.close()
        return pieces

    (one, _), (other, _) = await attempt([], [1, 2], [1, 2])
    ((later,), _) = await attempt([one, other], [3], [])  # removes the output of checkpoint 2

    # Checkpoint 3 has bypassed the second writer: its piece is that of checkpoint 1.
    await JsonLinesSink[int](tmp_path).recover("out", [later, other])

    assert files_in(tmp_path) == [
        "part-00000-000001.jsonl",
        "part-00000-000003.jsonl",
        "part-00001-000001.jsonl",
    ]


@pytest.mark.asyncio
async def test_after_a_crash_pieces_of_the_checkpoint_remain_and_others_are_removed(
    tmp_path: Path,
) -> None:
    committables = await crashed(tmp_path, [1], [2], [3])

    await JsonLinesSink(tmp_path).recover("out", committables[:2])

    assert files_in(tmp_path) == ["part-00000-000001.jsonl", "part-00000-000002.jsonl"]


@pytest.mark.asyncio
async def test_a_kill_before_the_lock_has_its_content_leaves_nothing_for_later_runs(
    tmp_path: Path,
) -> None:
    (tmp_path / ".part-00000.jsonl.inprogress").touch()

    committables = await crashed(tmp_path, [1])
    await JsonLinesSink(tmp_path).recover("out", committables)

    assert files_in(tmp_path) == ["part-00000-000001.jsonl"]


@pytest.mark.asyncio
async def test_recovering_twice_changes_nothing(tmp_path: Path) -> None:
    committables = await crashed(tmp_path, [1], [2])

    await JsonLinesSink(tmp_path).recover("out", committables[:1])
    await JsonLinesSink(tmp_path).recover("out", committables[:1])

    assert files_in(tmp_path) == ["part-00000-000001.jsonl"]


@pytest.mark.asyncio
async def test_restoring_an_older_checkpoint_removes_pieces_of_later_ones(
    tmp_path: Path,
) -> None:
    committables = await crashed(tmp_path, [1], [2], [3])
    await JsonLinesSink(tmp_path).recover("out", committables)
    whole = files_in(tmp_path)

    await JsonLinesSink(tmp_path).recover("out", committables[:1])

    assert (len(whole), files_in(tmp_path)) == (3, ["part-00000-000001.jsonl"])


@pytest.mark.asyncio
async def test_a_checkpoint_is_refused_after_a_restore_from_an_older_one_also_without_pieces(
    tmp_path: Path,
) -> None:
    """Checkpoint 3 has no piece of its own, but its records are in that of checkpoint 2, which was removed."""
    first, second, empty = await crashed(tmp_path, [1], [2], [])
    await JsonLinesSink(tmp_path).recover("out", [first, second])
    await JsonLinesSink(tmp_path).recover("out", [first])

    with pytest.raises(RestoreError, match="the job was restored from an earlier one after it"):
        await JsonLinesSink(tmp_path).recover("out", [empty])

    assert files_in(tmp_path) == ["part-00000-000001.jsonl"]


@pytest.mark.asyncio
async def test_a_checkpoint_taken_after_a_restore_is_accepted_with_any_number(
    tmp_path: Path,
) -> None:
    first, _, _ = await crashed(tmp_path, [1], [2], [3])
    sink = JsonLinesSink[int](tmp_path)
    await sink.recover("out", [first])
    writer = await opened(sink)
    again = await prepared(writer, 2, 20)
    await writer.close()

    await JsonLinesSink(tmp_path).recover("out", [again])

    pieces = [tmp_path / name for name in files_in(tmp_path)]
    assert [piece.read_text() for piece in pieces] == ["1\n", "20\n"]


@pytest.mark.asyncio
async def test_a_failed_first_attempt_leaves_no_visible_files(tmp_path: Path) -> None:
    await crashed(tmp_path, [1])

    await JsonLinesSink(tmp_path).recover("out", [])

    # Another job may have prepared it for its first checkpoint, and continue from that later.
    assert files_in(tmp_path) == [".part-00000-000001.jsonl.pending"]


@pytest.mark.asyncio
async def test_files_that_are_not_of_the_sink_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    others = ["notes.txt", "part-00000-000001.csv", ".other-00000-000001.jsonl.pending", "sub"]
    for name in others[:-1]:
        (tmp_path / name).touch()
    committables = await crashed(tmp_path, [1])

    await JsonLinesSink(tmp_path, overwrite=True).recover("out", committables)
    await JsonLinesSink(tmp_path, overwrite=True).recover("out", [])

    assert files_in(tmp_path) == sorted(others)


@pytest.mark.asyncio
@pytest.mark.parametrize("name", ["part-00000-000001.jsonl", "part-00000.jsonl"])
async def test_a_job_that_starts_fresh_refuses_output_of_another_or_overwrites_it(
    tmp_path: Path, name: str
) -> None:
    await left_behind(tmp_path, name)

    with pytest.raises(SinkError, match=rf"^sink 'out': .*{name} already exists: .*overwrite"):
        await JsonLinesSink(tmp_path).recover("out", [])
    kept = files_in(tmp_path)
    await JsonLinesSink(tmp_path, overwrite=True).recover("out", [])

    assert (kept, files_in(tmp_path)) == ([name], [])


@pytest.mark.asyncio
async def test_a_job_without_checkpoints_does_not_mix_its_parts_with_pieces(tmp_path: Path) -> None:
    await left_behind(tmp_path, "part-00000-000001.jsonl")

    with pytest.raises(SinkError, match=r"part-00000-000001\.jsonl already exists"):
        await write(JsonLinesSink(tmp_path), [1])
    await write(JsonLinesSink(tmp_path, overwrite=True), [1])

    assert files_in(tmp_path) == ["part-00000.jsonl"]


@pytest.mark.asyncio
async def test_a_second_job_on_the_same_files_is_refused_and_destroys_nothing(
    tmp_path: Path,
) -> None:
    sink = JsonLinesSink[int](tmp_path, overwrite=True)
    writer = await opened(sink)
    committable = await prepared(writer, 1, 1)

    with pytest.raises(SinkError, match="is in progress by another writer"):
        await sink.recover("second", [])
    with pytest.raises(SinkError, match="is in progress by another writer"):
        await opened(sink)
    with pytest.raises(SinkError, match="is in progress by another writer"):
        await sink.writer(WriterContext("without checkpoints"))
    await writer.commit(committable)
    await writer.close()

    assert files_in(tmp_path) == ["part-00000-000001.jsonl"]


@pytest.mark.asyncio
async def test_after_a_failure_prepared_pieces_are_kept_and_others_removed(tmp_path: Path) -> None:
    writer = await opened(JsonLinesSink(tmp_path))
    await prepared(writer, 1, 1)
    await put(writer, "x" * (2 << 20))
    during = files_in(tmp_path)

    await writer.close()

    assert ".part-00000.jsonl.writing" in during
    assert files_in(tmp_path) == [".part-00000-000001.jsonl.pending"]


@pytest.mark.asyncio
async def test_a_piece_of_the_same_number_is_never_overwritten(tmp_path: Path) -> None:
    writer = await opened(JsonLinesSink(tmp_path))
    (tmp_path / "part-00000-000001.jsonl").write_text("old\n")

    with pytest.raises(
        SinkError, match=r"already exists, and this sink has not written it .* was the storage"
    ):
        await prepared(writer, 1, 1)
    await writer.close()

    assert (tmp_path / "part-00000-000001.jsonl").read_text() == "old\n"


@pytest.mark.asyncio
async def test_a_piece_that_appeared_before_the_commit_is_never_overwritten(tmp_path: Path) -> None:
    writer = await opened(JsonLinesSink(tmp_path))
    committable = await prepared(writer, 1, 1)
    (tmp_path / "part-00000-000001.jsonl").write_text("old\n")

    with pytest.raises(SinkError, match="is not what the sink prepared for checkpoint 1"):
        await writer.commit(committable)
    await writer.close()

    assert (tmp_path / "part-00000-000001.jsonl").read_text() == "old\n"


@pytest.mark.asyncio
async def test_a_piece_prepared_in_another_folder_is_committed_there(tmp_path: Path) -> None:
    (committable,) = await crashed(tmp_path / "old", [1])

    await JsonLinesSink(tmp_path / "new").recover("out", [committable])

    assert "part-00000-000001.jsonl" in files_in(tmp_path / "old")


@pytest.mark.asyncio
async def test_a_job_that_returns_to_its_first_folder_commits_in_the_one_between(
    tmp_path: Path,
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    (committable,) = await crashed(first, [1])
    sink = JsonLinesSink[int](second)
    await sink.recover("out", [committable])
    writer = await opened(sink)
    later = await prepared(writer, 2, 2)
    await writer.close()

    again = JsonLinesSink[int](first)
    await again.recover("out", [later])
    writer = await opened(again)
    await writer.commit(await prepared(writer, 3, 3))
    await writer.close()

    assert files_in(first) == ["part-00000-000001.jsonl", "part-00000-000003.jsonl"]
    assert files_in(second) == ["part-00000-000002.jsonl"]


@pytest.mark.asyncio
async def test_a_checkpoint_of_another_folder_is_refused_after_a_withdrawal_in_this_one(
    tmp_path: Path,
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    one, two = await crashed(first, [1], [2])
    await JsonLinesSink(first).recover("out", [one, two])
    sink = JsonLinesSink[int](second)
    await sink.recover("out", [two])
    writer = await opened(sink)
    later = await prepared(writer, 3, 3)
    await writer.close()
    await JsonLinesSink(first).recover("out", [one])

    with pytest.raises(RestoreError, match="the output of checkpoints 2 to 2 was removed"):
        await JsonLinesSink(first).recover("out", [later])


@pytest.mark.asyncio
async def test_a_piece_prepared_in_a_moved_folder_is_committed_there(
    tmp_path: Path,
) -> None:
    (committable,) = await crashed(tmp_path / "old", [1])
    (tmp_path / "old").rename(tmp_path / "new")

    await JsonLinesSink(tmp_path / "new").recover("out", [committable])

    assert files_in(tmp_path / "new") == ["part-00000-000001.jsonl"]


@pytest.mark.asyncio
@pytest.mark.parametrize("committable", [7, {"checkpoint": 1}, {"piece": "x"}], ids=repr)
async def test_a_committable_of_another_sink_is_an_error_that_shows_it(
    tmp_path: Path, committable: object
) -> None:
    with pytest.raises(RestoreError, match=r"^sink 'out' cannot commit .*another kind of sink"):
        await JsonLinesSink(tmp_path).recover("out", [committable])


@pytest.mark.asyncio
async def test_the_end_without_a_checkpoint_that_covers_it_is_an_error(tmp_path: Path) -> None:
    writer = await opened(JsonLinesSink(tmp_path))
    await put(writer, 1)

    with pytest.raises(SinkError, match="no checkpoint covers the last records"):
        await writer.flush()
    await writer.close()

    assert files_in(tmp_path) == []


@pytest.mark.asyncio
async def test_a_checkpoint_that_was_not_announced_is_a_bug_of_the_caller(tmp_path: Path) -> None:
    writer = await JsonLinesSink[int](tmp_path).writer(WriterContext("out"))

    with pytest.raises(InternalError, match=r"WriterContext\.checkpoints is False"):
        await writer.prepare(1)
    await writer.close()


@pytest.mark.asyncio
async def test_a_full_disk_fails_the_checkpoint_not_the_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_disk(monkeypatch, tmp_path / "out-00000.jsonl.gz")
    writer = await opened(JsonLinesSink(tmp_path / "out.jsonl.gz"))

    with pytest.raises(SinkError, match=r"cannot write .*: No space left on device"):
        await prepared(writer, 1, 1)
    await writer.close()

    assert files_in(tmp_path) == []


@pytest.mark.asyncio
async def test_pieces_of_many_writers_are_continued_by_fewer(tmp_path: Path) -> None:
    committables: list[Committable] = []
    former = JsonLinesSink[object](tmp_path)
    for subtask in range(3):
        writer = await opened(former, subtask=subtask, parallelism=3)
        committables.append(await prepared(writer, 1, subtask))
        await writer.close()

    sink = JsonLinesSink[object](tmp_path)
    await sink.recover("out", committables)
    writer = await opened(sink)
    await writer.commit(await prepared(writer, 2, 9))
    await writer.close()

    text = {path.name: path.read_text() for path in tmp_path.glob("part-*")}
    assert text == {f"part-0000{n}-000001.jsonl": f"{n}\n" for n in range(3)} | {
        "part-00000-000002.jsonl": "9\n"
    }


@pytest.mark.asyncio
async def test_compressed_pieces_are_the_same_bytes_each_time(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        writer = await opened(JsonLinesSink(tmp_path / folder / "x.jsonl.gz"))
        await writer.commit(await prepared(writer, 1, 1))
        await writer.close()

    one, other = ((tmp_path / name / "x-00000-000001.jsonl.gz").read_bytes() for name in "ab")
    assert gzip.decompress(one) == b"1\n"
    assert one == other
