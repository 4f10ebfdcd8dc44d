"""The folders into which executors write rows: what killed drivers leave is removed."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from aflow_connectors.files.output.lock_file import claim
from aflow_connectors.spark import SparkSink
from aflow_connectors.spark.backfill.folders import remove_folder
from aflow_connectors.spark.backfill.prepared_folder import CLAIM
from aflow_connectors.spark.stream.destinations import EpochFolder


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def remove_nothing(path: Path, **options: bool) -> None:
    """Stands for ``shutil.rmtree`` in a driver that is killed before."""


def left_by_a_killed_driver(folder: Path) -> None:
    folder.mkdir(parents=True)
    held: Any = claim(folder / CLAIM)  # whose release would remove the file
    held._file.close()
    (folder / "rows.parquet").touch()


def test_a_driver_removes_the_folders_of_killed_ones_and_no_others(tmp_path: Path) -> None:
    out = tmp_path / "out"
    left_by_a_killed_driver(out / ".stream-0")
    left_by_a_killed_driver(out / ".stream-1-gone")
    # Killed before the lock file was made, and before it was written.
    (out / ".stream-2").mkdir()
    (out / ".stream-3").mkdir()
    (out / ".stream-3" / CLAIM).touch()
    (out / ".stream-of-others").mkdir()
    (out / ".stream-of-others" / "notes").touch()

    schema: Any = pa  # which has no types
    sink = SparkSink[Any](out, schema=schema.schema([("n", schema.int64())]))

    with closing(EpochFolder(sink, "out")) as folder:
        folder.recover([])
        found = {one for one in names(out) if one.startswith(".stream-")}

    assert found == {".stream-of-others", Path(folder.target.folder).name}


def test_a_removal_that_is_interrupted_leaves_the_proof_that_it_may_be_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left_by_a_killed_driver(tmp_path / "folder")
    with monkeypatch.context() as killed:
        killed.setattr(shutil, "rmtree", remove_nothing)
        remove_folder(tmp_path / "folder", last=CLAIM)

    assert names(tmp_path / "folder-gone") == {CLAIM}
