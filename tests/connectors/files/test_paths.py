"""Files that a path matches."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest

from aflow.connect import SourceError
from aflow.errors import FlowDefinitionError
from aflow_connectors.files import CsvSource, JsonLinesSource, ParquetSource, TextSource


def make(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


async def names_of(source: JsonLinesSource[dict[str, object]], folder: Path) -> list[str]:
    return [os.path.relpath(split.id, folder) for split in await source.splits()]


@pytest.mark.asyncio
async def test_a_folder_means_the_files_in_it_of_the_right_kind_in_the_order_of_their_names(
    tmp_path: Path,
) -> None:
    make(
        tmp_path, "b.jsonl", "a.ndjson.gz", "c.json.zst", "other.csv", "README", "_temporary.jsonl"
    )
    make(tmp_path, ".out.jsonl.inprogress", ".hidden.jsonl", "deeper/d.jsonl")

    assert await names_of(JsonLinesSource(tmp_path), tmp_path) == [
        "a.ndjson.gz",
        "b.jsonl",
        "c.json.zst",
    ]


@pytest.mark.asyncio
async def test_each_kind_of_source_has_names_of_its_own(tmp_path: Path) -> None:
    make(tmp_path, "a.csv", "b.tsv.gz", "c.txt", "d.log.zst", "e.parquet", "f.jsonl")

    found = {
        type(source).__name__: [Path(split.id).name for split in await source.splits()]
        for source in (CsvSource(tmp_path), TextSource(tmp_path), ParquetSource(tmp_path))
    }

    assert found == {
        "CsvSource": ["a.csv", "b.tsv.gz"],
        "TextSource": ["c.txt", "d.log.zst"],
        "ParquetSource": ["e.parquet"],
    }


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*", ["1.jsonl", "2.data"]),
        ("?.jsonl", ["1.jsonl"]),
        ("2013-0[12]/*.jsonl", ["2013-01/a.jsonl", "2013-02/a.jsonl"]),
        ("**/a.jsonl", ["2013-01/a.jsonl", "2013-02/a.jsonl", "2013-03/deep/a.jsonl"]),
        ("2013-03/**", ["2013-03/deep/a.jsonl"]),
        (".h*", [".h.jsonl"]),
    ],
)
async def test_a_pattern_means_all_files_that_match(
    tmp_path: Path, pattern: str, expected: list[str]
) -> None:
    make(tmp_path, "1.jsonl", "2.data", ".h.jsonl", "2013-01/a.jsonl", "2013-02/a.jsonl")
    make(tmp_path, "2013-03/deep/a.jsonl")

    assert await names_of(JsonLinesSource(tmp_path / pattern), tmp_path) == expected


@pytest.mark.asyncio
async def test_a_file_that_is_named_like_a_pattern_means_itself(tmp_path: Path) -> None:
    make(tmp_path, "[1].jsonl", "1.jsonl")

    assert await names_of(JsonLinesSource(str(tmp_path / "[1].jsonl")), tmp_path) == ["[1].jsonl"]


@pytest.mark.asyncio
async def test_a_relative_path_starts_in_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path, "in/a.jsonl")
    monkeypatch.chdir(tmp_path)

    for path in ("in", "in/*", "*/a.jsonl", "in/a.jsonl", "**"):
        assert [split.id for split in await JsonLinesSource(path).splits()] == ["in/a.jsonl"]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("no.jsonl", "there is no file .*no.jsonl"),
        ("no/*.jsonl", "cannot look for input files in .*/no: No such file or directory"),
        ("*.json", r"no file matches the pattern '.*/\*\.json'"),
        ("empty", "the folder .*/empty holds no file to read: names must end in .jsonl, .jsonl.gz"),
        ("a.jsonl/*", "cannot look for input files in .*/a.jsonl: Not a directory"),
    ],
)
async def test_a_path_without_files_is_an_error_that_names_it(
    tmp_path: Path, path: str, says: str
) -> None:
    make(tmp_path, "a.jsonl", "empty/a.csv")

    with pytest.raises(SourceError, match=says):
        await JsonLinesSource(tmp_path / path).splits()


@pytest.mark.asyncio
@pytest.mark.parametrize("path", ["closed", "*/*.jsonl", "**/*.jsonl"])
async def test_a_folder_that_may_not_be_read_is_an_error_even_among_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    make(tmp_path, "open/a.jsonl", "closed/a.jsonl")
    scandir = os.scandir

    def refusing(folder: Path) -> object:
        # Permissions do not bind the administrator, as whom tests may run.
        if folder.name == "closed":
            raise PermissionError(13, "Permission denied", str(folder))
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", refusing)

    with pytest.raises(SourceError, match=r"cannot look .* in .*/closed: Permission denied"):
        await JsonLinesSource(tmp_path / path).splits()


@pytest.mark.asyncio
async def test_a_folder_that_grows_has_new_files_each_time_it_is_looked_at(tmp_path: Path) -> None:
    source = JsonLinesSource(tmp_path, discover_every=timedelta(seconds=5))

    empty = await names_of(source, tmp_path)
    make(tmp_path, "b.jsonl", ".c.jsonl")
    one = await names_of(source, tmp_path)
    (tmp_path / ".c.jsonl").rename(tmp_path / "a.jsonl")
    two = await names_of(source, tmp_path)

    assert (empty, one, two) == ([], ["b.jsonl"], ["a.jsonl", "b.jsonl"])
    assert (source.discover_every, source.bounded) == (timedelta(seconds=5), False)


def test_files_end_unless_new_ones_are_looked_for() -> None:
    assert (JsonLinesSource("in").discover_every, JsonLinesSource("in").bounded) == (None, True)


@pytest.mark.asyncio
async def test_no_further_file_is_looked_for_at_the_path_of_a_single_one(tmp_path: Path) -> None:
    make(tmp_path, "a.jsonl")

    with pytest.raises(SourceError, match=r"a\.jsonl is a single file"):
        await JsonLinesSource(tmp_path / "a.jsonl", discover_every=timedelta(seconds=1)).splits()
    with pytest.raises(
        SourceError, match=r"discover_every is given, but .*/no is a single file \(or not there\)"
    ):
        await JsonLinesSource(tmp_path / "no", discover_every=timedelta(seconds=1)).splits()
    with pytest.raises(FlowDefinitionError, match="discover_every must be positive"):
        JsonLinesSource(tmp_path, discover_every=timedelta(0))
