"""Arguments of a backfill are checked before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from aflow.errors import FlowDefinitionError
from aflow_connectors.spark import Results, SparkSink
from aflow_connectors.spark.backfill.folders import path_of
from aflow_connectors.spark.backfill.preparation import check_apart

if TYPE_CHECKING:
    from aflow_connectors.spark.backfill.results import ResultTarget


@pytest.mark.parametrize(
    "same", ["text", "uri", "results", "sink", "inside", "around", "another way"]
)
def test_two_sinks_do_not_write_to_one_folder(tmp_path: Path, same: str) -> None:
    folder = tmp_path / "totals"
    places: dict[str, ResultTarget] = {
        "text": str(folder),
        "uri": f"file://{folder}",
        "results": Results(folder, overwrite=True),
        "sink": SparkSink(folder),
        "inside": folder / "of" / "b",
        "around": tmp_path,
        "another way": tmp_path / "other" / ".." / "totals",
    }

    with pytest.raises(
        FlowDefinitionError, match=r"sink 'b' writes to /.*, and sink 'a' to /.*totals: give each"
    ):
        check_apart({"a": folder, "c": None, "b": places[same]})


@pytest.mark.parametrize("place", ["savepoint", "savepoint/sums", ""])
def test_no_sink_writes_into_the_savepoint_or_around_it(tmp_path: Path, place: str) -> None:
    with pytest.raises(FlowDefinitionError, match=r"sink 'a' writes to .*, and the savepoint to"):
        check_apart({"a": tmp_path / place}, tmp_path / "savepoint")


def test_a_folder_without_a_name_is_refused() -> None:
    with pytest.raises(
        FlowDefinitionError, match="the folder for the results of a sink has no name"
    ):
        Results("", overwrite=True)


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("file:/a/b", "/a/b"),
        ("file:///a/b", "/a/b"),
        ("/a/b", "/a/b"),
        ("file://host/a", None),
        ("file:a", None),
        ("file://", None),
        ("s3a://bucket/a", None),
    ],
)
def test_only_uris_of_this_machine_are_paths_of_it(uri: str, path: str | None) -> None:
    assert path_of(uri) == (None if path is None else Path(path))


def test_sinks_have_folders_of_their_own(tmp_path: Path) -> None:
    check_apart({"a": tmp_path / "a", "b": tmp_path / "b", "c": print, "d": print, "e": None})
    check_apart({"a": tmp_path / "ab", "b": tmp_path / "a"}, tmp_path / "abc")
