"""Staged rows that are read from their files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from aflow_connectors.files.optional import pyarrow_parquet
from aflow_connectors.spark.arrow import pa
from aflow_connectors.spark.staged_files import Piece, files_of, payloads, pieces

PARQUET = pyarrow_parquet("tests")


def written(folder: Path, *files: Sequence[Piece]) -> Path:
    """A fragment's folder, as Spark leaves it, with these rows of exit -1."""
    exit_folder = folder / "exit=-1"
    exit_folder.mkdir()
    for number, rows in enumerate(files):
        columns = {
            "part": pa.array([part for part, _, _ in rows], pa.int32()),
            "ts": pa.array([at for _, at, _ in rows], pa.int64()),
            "payload": pa.array([payload for _, _, payload in rows], pa.binary()),
        }
        PARQUET.write_table(pa.table(columns), exit_folder / f"part-{number}.snappy.parquet")
    (folder / "_SUCCESS").touch()
    return folder


def test_pieces_come_by_part_and_number_whatever_the_names_of_their_files(tmp_path: Path) -> None:
    later = [(1, number, b"b%d" % number) for number in range(20)]
    earlier = [(0, 0, b"a0"), (0, 1, b"a1")]
    files = files_of(written(tmp_path, later, [], earlier), -1)

    assert files is not None
    found = pieces(files)
    assert found is not None
    assert list(found) == [*earlier, *later]
    assert set(payloads(files)) == {data for _, _, data in (*earlier, *later)}


def test_one_part_in_two_files_is_put_together(tmp_path: Path) -> None:
    files = files_of(written(tmp_path, [(0, 2, b"c")], [(0, 0, b"a"), (0, 1, b"b")]), -1)

    found = pieces(files or [])

    assert found is not None
    assert [data for _, _, data in found] == [b"a", b"b", b"c"]


def test_rows_that_would_have_to_be_sorted_are_left_to_spark(tmp_path: Path) -> None:
    files = files_of(written(tmp_path, [(0, 1, b"b"), (0, 0, b"a")]), -1)

    assert pieces(files or []) is None


def test_files_that_interleave_are_left_to_spark(tmp_path: Path) -> None:
    files = files_of(written(tmp_path, [(0, 0, b"a"), (0, 2, b"c")], [(0, 1, b"b")]), -1)

    assert pieces(files or []) is None


def test_what_spark_does_not_call_complete_is_not_read(tmp_path: Path) -> None:
    (written(tmp_path, [(0, 0, b"a")]) / "_SUCCESS").unlink()

    assert files_of(tmp_path, -1) is None
    assert files_of(tmp_path / "nowhere", -1) is None
    assert files_of(None, -1) is None


def test_what_spark_does_not_read_is_not_read_and_what_cannot_be_opened_is_left_to_it(
    tmp_path: Path,
) -> None:
    folder = written(tmp_path, [(0, 0, b"a")]) / "exit=-1"
    for name in (".hidden.parquet", "_temporary.parquet", "more.crc"):
        (folder / name).write_bytes(b"?")
    files = files_of(tmp_path, -1)
    assert files is not None
    assert list(payloads(files)) == [b"a"]

    (folder / "broken.parquet").write_bytes(b"?")
    assert files_of(tmp_path, -1) is None


def test_an_exit_without_rows_has_no_files(tmp_path: Path) -> None:
    assert files_of(written(tmp_path, []), 7) == []
