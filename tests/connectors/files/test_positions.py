"""Reading continues exactly after the records that were read, or detects that the file is another one."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from aflow.connect import BadRecord, Position, Source, SourceError, Tag
from aflow_connectors.files import CsvSource, JsonLinesSource, ParquetSource, TextSource
from tests.connectors.files.arrow import pa, pq
from tests.connectors.files.reading import chunks, rejected, values

BAD = Tag[BadRecord]("bad")

LIMITS = st.lists(st.integers(1, 5), min_size=1, max_size=4)

#: Good lines, bad ones and blank ones, with both line ends.
LINE = st.sampled_from(
    ['{"a": "' + "x" * 700 + '"}', '{"a": 1}', '{"a": "ë"}', '{"a": 1}\r', "", " ", "nope", "[1]"]
)
LINES = st.lists(LINE, max_size=12)

#: Fields as they may stand in a file; with a quote that is wrong, and one that is never closed.
FIELD = st.sampled_from(
    ["1", "", '"quoted"', '"two\nlines"', '"a ""quote"""', '"\n\n"', '5" pipe', '"wrong"x', '"open']
)
ROWS = st.lists(st.lists(FIELD, min_size=1, max_size=3), max_size=8)

quick = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


async def assert_reopened_reads_the_same(source: Source[Any], limits: list[int]) -> None:
    """Assert that one reader and a new reader after each chunk return the same records."""
    straight = await chunks(source)
    pieces = await chunks(source, limits=limits)
    reopened = await chunks(source, limits=limits, reopen=True)

    assert values(reopened) == values(pieces) == values(straight)
    assert rejected(reopened) == rejected(pieces) == rejected(straight)


@pytest.mark.asyncio
@quick
@given(lines=LINES, end=st.sampled_from(["", "\n"]), mark=st.booleans(), limits=LIMITS)
async def test_json_lines_continue_after_each_chunk(
    tmp_path: Path, lines: list[str], end: str, mark: bool, limits: list[int]
) -> None:
    content = ("\ufeff" if mark else "") + "\n".join(lines) + end
    plain, packed = tmp_path / "a.jsonl", tmp_path / "a.jsonl.gz"
    plain.write_bytes(content.encode())
    packed.write_bytes(gzip.compress(content.encode()))

    for file in (plain, packed):
        # Blocks of 1,024 bytes, so that lines go over the ends of blocks.
        source = JsonLinesSource(file, dead_letters=BAD, max_line_bytes=1024)
        await assert_reopened_reads_the_same(source, limits)


@pytest.mark.asyncio
@quick
@given(rows=ROWS, end=st.sampled_from(["", "\n"]), limits=LIMITS)
async def test_csv_continues_after_each_chunk(
    tmp_path: Path, rows: list[list[str]], end: str, limits: list[int]
) -> None:
    file = tmp_path / "a.csv"
    file.write_text("\n".join(["a,b", *(",".join(row) for row in rows)]) + end)

    source = CsvSource(file, dead_letters=BAD)
    try:
        await chunks(source)
    except SourceError:
        reject()  # the file ends inside quotes

    await assert_reopened_reads_the_same(source, limits)


@pytest.mark.asyncio
@quick
@given(rows=st.integers(0, 20), group=st.integers(1, 7), limits=LIMITS)
async def test_parquet_continues_after_each_chunk(
    tmp_path: Path, rows: int, group: int, limits: list[int]
) -> None:
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"n": list(range(rows))}), file, row_group_size=group)
    source = ParquetSource(file)

    assert values(await chunks(source)) == [{"n": n} for n in range(rows)]
    await assert_reopened_reads_the_same(source, limits)


@pytest.mark.asyncio
async def test_reading_continues_within_a_large_row_group(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"n": list(range(20_000))}), file)

    found = await chunks(ParquetSource(file), limits=[5000], reopen=True)

    assert values(found) == [{"n": n} for n in range(20_000)]


@pytest.mark.asyncio
async def test_a_position_survives_being_stored_as_json(tmp_path: Path) -> None:
    text, table = tmp_path / "a.csv", tmp_path / "a.parquet"
    text.write_text("n\n0\n1\n")
    pq.write_table(pa.table({"n": ["0", "1"]}), table)
    sources: list[Source[dict[str, str]]] = [CsvSource(text), ParquetSource(table)]

    for source in sources:
        (split,) = await source.splits()
        first, _ = await chunks(source, limits=[1])
        reader = await source.reader(split, json.loads(json.dumps(first.position)))
        second = await reader.read(1)
        await reader.close()

        assert second is not None
        assert second.values == [{"n": "1"}]


async def go_on(source: Source[Any], position: Position) -> None:
    (split,) = await source.splits()
    reader = await source.reader(split, position)
    try:
        await reader.read(1)
    finally:
        await reader.close()


async def error_after(source: Source[Any], position: Position) -> str:
    with pytest.raises(SourceError) as caught:
        await go_on(source, position)
    return str(caught.value)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("now", "says"),
    [
        ("a\n", "it is shorter than the 4 bytes that were read before: it was cut or replaced"),
        ("", "it is shorter than the 4 bytes"),
        ("a\nx\nc\nd\n", "line 2 is another than when it was read before: the file was replaced"),
        ("abcdef\n", "line 2 is another"),
    ],
    ids=["cut", "emptied", "changed", "rotated"],
)
async def test_continuing_in_another_file_is_an_error(tmp_path: Path, now: str, says: str) -> None:
    file = tmp_path / "a.txt"
    file.write_text("a\nb\nc\nd\n")
    first, *_ = await chunks(TextSource(file), limits=[2])

    file.write_text(now)

    message = await error_after(TextSource(file), first.position)
    assert message.startswith(f"cannot read {file}, after line 2: {says}")


@pytest.mark.asyncio
async def test_continuing_in_a_parquet_file_with_another_number_of_rows_is_an_error(
    tmp_path: Path,
) -> None:
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"n": [1, 2, 3]}), file)
    first, *_ = await chunks(ParquetSource(file), limits=[1])

    pq.write_table(pa.table({"n": [1, 2]}), file)

    message = await error_after(ParquetSource(file), first.position)
    assert "it had 3 rows when it was read before and now has 2: it was replaced" in message


@pytest.mark.asyncio
@pytest.mark.parametrize("position", ["4", (1, 2), (1, 2, 3, "4"), [0, 0, 0, 0, 7]])
async def test_a_position_of_something_else_is_refused(tmp_path: Path, position: object) -> None:
    for name, kind in (("a.txt", TextSource), ("a.csv", CsvSource), ("a.parquet", ParquetSource)):
        (tmp_path / name).touch()

        message = await error_after(kind(tmp_path / name), position)

        assert f"{tmp_path / name}: {position!r} is not a position in a" in message
