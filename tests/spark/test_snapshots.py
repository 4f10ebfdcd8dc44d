"""The folder of a snapshot: complete or not, own or foreign. Needs no Spark."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aflow.connect import SourceError
from aflow.errors import FlowDefinitionError
from aflow.testing import check_source
from aflow_connectors.spark.dataframe.snapshot import Snapshot, SnapshotFiles, snapshot_folder
from aflow_connectors.spark.dataframe.source import SparkSource
from tests.connectors.files.arrow import pa, pq

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COLUMNS = "struct<n:bigint>"
FILES = {"part-00000-a.parquet": [0, 1, 2], "part-00001-a.parquet": [], "part-00002-a.parquet": [3]}


def write(rows: Path) -> None:
    """Files as Spark writes them."""
    rows.mkdir()
    for name, numbers in FILES.items():
        pq.write_table(pa.table({"n": pa.array(numbers, pa.int64())}), rows / name)
        (rows / f".{name}.crc").write_bytes(b"crc")
    (rows / "_SUCCESS").touch()


def written(snapshot: Snapshot, *, count: int = 4) -> SnapshotFiles:
    """A snapshot with a count of ``count`` rows."""
    with snapshot.writing() as rows:
        write(rows)
        return snapshot.complete(rows, COLUMNS, count)


def failed(snapshot: Snapshot) -> None:
    with snapshot.writing() as rows:
        write(rows)
        raise RuntimeError("no space")


def never() -> DataFrame:
    raise AssertionError("Spark is not needed to read a snapshot that is complete")


def test_before_anything_was_written_there_is_no_snapshot(tmp_path: Path) -> None:
    assert Snapshot(tmp_path / "s").files() is None


def test_a_complete_snapshot_is_found_again(tmp_path: Path) -> None:
    files = written(Snapshot(tmp_path / "s"))

    assert Snapshot(tmp_path / "s").files() == files
    assert list(files.sizes) == list(FILES)
    assert files.columns == COLUMNS


@pytest.mark.asyncio
async def test_a_snapshot_that_is_complete_is_a_source_without_spark(tmp_path: Path) -> None:
    written(Snapshot(tmp_path / "s"))

    await check_source(
        lambda: SparkSource(never, snapshot=tmp_path / "s"), expected=[{"n": n} for n in range(4)]
    )


def test_rows_of_an_incomplete_attempt_are_ignored_and_removed_by_the_next(tmp_path: Path) -> None:
    snapshot = Snapshot(tmp_path / "s")
    dead = tmp_path / "s" / f"rows-{'0' * 32}"
    dead.parent.mkdir()
    write(dead)
    assert snapshot.files() is None

    files = written(snapshot)

    assert not dead.exists()
    assert snapshot.files() == files


def test_an_attempt_that_fails_leaves_no_rows(tmp_path: Path) -> None:
    snapshot = Snapshot(tmp_path / "s")

    with pytest.raises(RuntimeError, match="no space"):
        failed(snapshot)

    assert snapshot.files() is None
    assert list(tmp_path.glob("s/rows-*")) == []


def test_only_one_writes_at_a_time(tmp_path: Path) -> None:
    with (
        Snapshot(tmp_path / "s").writing(),
        pytest.raises(SourceError, match="is being written by another job"),
        Snapshot(tmp_path / "s").writing(),
    ):
        pass


def test_a_snapshot_completed_by_another_job_is_not_written_again(tmp_path: Path) -> None:
    files = written(Snapshot(tmp_path / "s"))

    with (
        pytest.raises(SourceError, match="has just been written by another job"),
        Snapshot(tmp_path / "s").writing(),
    ):
        pass

    assert Snapshot(tmp_path / "s").files() == files


def test_a_folder_with_something_else_is_refused(tmp_path: Path) -> None:
    for name in ("_SUCCESS", "part-0.parquet", "part-1.parquet", "readme", "z"):
        (tmp_path / name).touch()

    with pytest.raises(SourceError) as caught:
        Snapshot(tmp_path).files()

    assert str(caught.value) == (
        f"{tmp_path} is no snapshot of SparkSource, but holds _SUCCESS, part-0.parquet, part-1.parquet and 2 more: "
        "give snapshot= a folder of its own (ParquetSource reads Parquet files that are there already)"
    )


def damage_by_removing(files: SnapshotFiles) -> str:
    files.paths()[0].unlink()
    return "is not there"


def damage_by_cutting(files: SnapshotFiles) -> str:
    files.paths()[0].write_bytes(b"PAR1")
    return "has 4 bytes, not "


def damage_to_the_manifest(files: SnapshotFiles) -> str:
    (files.folder.parent / "aflow-snapshot.json").write_text("{")
    return "aflow-snapshot.json is damaged"


@pytest.mark.parametrize("damage", [damage_by_removing, damage_by_cutting, damage_to_the_manifest])
def test_damage_is_an_error_with_the_cure(
    tmp_path: Path, damage: Callable[[SnapshotFiles], str]
) -> None:
    what = damage(written(Snapshot(tmp_path / "s")))

    with pytest.raises(SourceError, match=f"{what}.*; remove the folder, and it is written again"):
        Snapshot(tmp_path / "s").files()


def test_rows_that_are_not_all_there_are_noticed(tmp_path: Path) -> None:
    snapshot = Snapshot(tmp_path / "s")

    with pytest.raises(SourceError, match=r"has written 5 rows to .*, but 4 are there: .* shares"):
        written(snapshot, count=5)

    assert snapshot.files() is None


def test_a_folder_that_this_process_does_not_share_with_spark_is_noticed(tmp_path: Path) -> None:
    snapshot = Snapshot(tmp_path / "s")

    with pytest.raises(SourceError, match="there is no _SUCCESS"), snapshot.writing() as rows:
        snapshot.complete(rows, COLUMNS, 4)


@pytest.mark.asyncio
async def test_a_snapshot_that_was_replaced_cannot_be_continued(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    written(Snapshot(folder))
    first, *_ = await SparkSource(never, snapshot=folder).splits()
    shutil.rmtree(folder)

    with pytest.raises(
        SourceError, match=f"has no file {first.id}: it is not the one that the job"
    ):
        await SparkSource(never, snapshot=folder).reader(first, (0, 1, 3))


@pytest.mark.parametrize(
    ("given", "folder"),
    [
        pytest.param("a/b", Path("a/b"), id="relative"),
        pytest.param(Path("/a"), Path("/a"), id="path"),
        pytest.param("/a b", Path("/a b"), id="space"),
        pytest.param("file:///a%20b/c", Path("/a b/c"), id="uri"),
        pytest.param("file:/a", Path("/a"), id="short uri"),
    ],
)
def test_a_folder_is_a_path_or_a_uri(given: str | Path, folder: Path) -> None:
    assert snapshot_folder(given) == folder


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        pytest.param("s3://bucket/x", "'s3://bucket/x' is not in a file system that this", id="s3"),
        pytest.param("hdfs:/x", "'hdfs:/x' is not in a file system that this", id="hdfs"),
        pytest.param("file://host/x", "'file://host/x' is not in a file system", id="host"),
        pytest.param("", "must be a folder .* not ''", id="empty"),
        pytest.param(3, "must be a folder .* not 3", id="number"),
    ],
)
def test_a_snapshot_outside_this_file_system_is_refused(given: object, problem: str) -> None:
    with pytest.raises(FlowDefinitionError, match=f"SparkSource: .*{problem}"):
        snapshot_folder(given)
