"""Staged rows and state read from their files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from aflow.errors import ConnectorError
from aflow_connectors.files.optional import pyarrow_parquet
from aflow_connectors.spark.backfill.executor_files import (
    files_of,
    payloads,
    read_state,
    write_state,
)
from aflow_connectors.spark.dataframe.arrow import pa

PARQUET = pyarrow_parquet("tests")


def written(folder: Path, *files: Sequence[bytes]) -> Path:
    """Folder of a fragment as Spark writes it, with rows of exit -1 that have these payloads."""
    exit_folder = folder / "exit=-1"
    exit_folder.mkdir()
    for number, rows in enumerate(files):
        columns = {"payload": pa.array(rows, pa.binary())}
        PARQUET.write_table(pa.table(columns), exit_folder / f"part-{number}.snappy.parquet")
    (folder / "_SUCCESS").touch()
    return folder


def test_the_payloads_of_all_files_are_read(tmp_path: Path) -> None:
    some = [b"a%d" % number for number in range(20)]
    files = files_of(written(tmp_path, some, [], [b"b"]), -1)

    assert files is not None
    assert list(payloads(files)) == [*some, b"b"]


def test_files_without_the_mark_of_completion_are_not_read(tmp_path: Path) -> None:
    (written(tmp_path, [b"a"]) / "_SUCCESS").unlink()

    assert files_of(tmp_path, -1) is None
    assert files_of(tmp_path / "dropped", -1) is None
    assert files_of(None, -1) is None


def test_hidden_files_are_ignored_and_unreadable_ones_left_to_spark(
    tmp_path: Path,
) -> None:
    folder = written(tmp_path, [b"a"]) / "exit=-1"
    for name in (".hidden.parquet", "_temporary.parquet", "more.crc"):
        (folder / name).write_bytes(b"?")
    files = files_of(tmp_path, -1)
    assert files is not None
    assert list(payloads(files)) == [b"a"]

    (folder / "broken.parquet").write_bytes(b"?")
    assert files_of(tmp_path, -1) is None


def test_an_exit_without_rows_has_no_files(tmp_path: Path) -> None:
    assert files_of(written(tmp_path, []), 7) == []


def test_the_state_of_a_partition_is_read_as_it_was_written(tmp_path: Path) -> None:
    chunks = [b"a" * 3_000_000, b"", b"b" * 3_000_000]
    first, again = (write_state(tmp_path, 7, iter(chunks)) for _ in range(2))

    assert first != again
    assert b"".join(read_state(tmp_path, first)) == b"".join(chunks)
    assert max(map(len, read_state(tmp_path, first))) <= 4 * 2**20


def test_a_missing_staging_folder_is_reported_with_the_cure(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    with pytest.raises(ConnectorError, match=r"executor \S+ cannot write state to .*see alike"):
        write_state(gone, 0, [b"a"])
    with pytest.raises(ConnectorError, match=r"cannot read state from .*gone/0.*see alike"):
        list(read_state(gone, "0"))
    assert not gone.exists()
