"""CSV read as records."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import assert_type

import msgspec
import pytest

from aflow.connect import BadRecord, SourceError, Tag
from aflow.errors import FlowDefinitionError
from aflow_connectors.files import CsvSource
from tests.connectors.files.reading import chunks, records, rejected, values

BAD = Tag[BadRecord]("bad")


@dataclass
class Flight:
    carrier: str
    day: date
    delay: float | None
    cancelled: bool = False


class TwoArrays(msgspec.Struct):
    either: list[int] | set[int]


def csv(folder: Path, content: str | bytes) -> Path:
    file = folder / "a.csv"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    return file


@pytest.mark.asyncio
async def test_the_first_record_names_the_columns(tmp_path: Path) -> None:
    file = csv(tmp_path, "\ufeff\na,b\r\n1,2\r\n\r\n,x y\r\n")

    assert await records(CsvSource(file)) == [{"a": "1", "b": "2"}, {"a": "", "b": "x y"}]


@pytest.mark.asyncio
async def test_columns_may_be_given_for_files_without_header(tmp_path: Path) -> None:
    file = csv(tmp_path, "1;2\n3;4")

    source = CsvSource(file, columns=["a", "b"], delimiter=";")

    assert await records(source) == [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}]


@pytest.mark.asyncio
async def test_quoted_fields_hold_delimiters_quotes_and_line_ends(tmp_path: Path) -> None:
    file = csv(tmp_path, 'a,b\n"1,\n""2""\r\n\n",3\n4,"5\n6"\n')

    found = await chunks(CsvSource(file), limits=[1])

    assert values(found) == [{"a": '1,\n"2"\r\n\n', "b": "3"}, {"a": "4", "b": "5\n6"}]


@pytest.mark.asyncio
async def test_a_record_over_many_blocks_is_whole(tmp_path: Path) -> None:
    field = "\n".join(f"line {number}" for number in range(500))
    file = csv(tmp_path, f'a\n"{field}"\n' * 2)

    found = await records(CsvSource(file, columns=["a"], max_line_bytes=10_000))

    assert found == [{"a": "a"}, {"a": field}] * 2


@pytest.mark.asyncio
@pytest.mark.parametrize("content", ["", "\n\n", "a,b", "a,b\n\n"])
async def test_a_file_without_data_has_no_records(tmp_path: Path, content: str) -> None:
    assert await records(CsvSource(csv(tmp_path, content))) == []


@pytest.mark.asyncio
async def test_texts_are_converted_to_the_declared_types(tmp_path: Path) -> None:
    file = csv(
        tmp_path,
        "carrier,day,delay,tail,cancelled\nUA,2013-01-31,-2.5,N1,false\nB6,2013-02-01,NA,,True\n",
    )

    found = await records(CsvSource(file, of=Flight, missing=("NA",)))

    assert found == [
        Flight("UA", date(2013, 1, 31), -2.5, False),
        Flight("B6", date(2013, 2, 1), None, True),
    ]


@pytest.mark.asyncio
async def test_a_bad_record_is_an_error_that_names_its_first_line(tmp_path: Path) -> None:
    file = csv(tmp_path, 'a,b\n"1\n",2\n"3\n",4,5\n')

    with pytest.raises(SourceError) as caught:
        await records(CsvSource(file))

    assert str(caught.value).startswith(
        f"{file}, line 4: it has 3 fields, but there are 2 columns ('a', 'b'): '\"3\\n\",4,5' "
    )


@pytest.mark.asyncio
async def test_bad_records_are_dead_letters_and_the_records_around_them_are_read(
    tmp_path: Path,
) -> None:
    file = csv(tmp_path, b'a,b\n1,2\n3\n"x"y,4\n5,\xeb\n6,7\n')

    found = await chunks(CsvSource(file, dead_letters=BAD))

    assert values(found) == [{"a": "1", "b": "2"}, {"a": "6", "b": "7"}]
    assert rejected(found) == [
        (f"{file}, line 3", "it has 1 fields, but there are 2 columns ('a', 'b')", b"3"),
        (f"{file}, line 4", "',' expected after '\"'", b'"x"y,4'),
        (
            f"{file}, line 5",
            "in field 2, byte 0xeb at column 1 is not utf-8; encoding= sets the encoding of the file",
            b"5,\xeb",
        ),
    ]


@pytest.mark.asyncio
async def test_a_line_feed_that_is_written_in_letters_does_not_begin_a_record(
    tmp_path: Path,
) -> None:
    file = csv(tmp_path, "a\nx\n1+AAo-2\n")

    found = await chunks(CsvSource(file, encoding="utf-7", dead_letters=BAD))

    assert values(found) == [{"a": "x"}]
    assert [place for place, _, _ in rejected(found)] == [f"{file}, line 3"]


@pytest.mark.asyncio
async def test_a_text_that_cannot_be_converted_is_bad(tmp_path: Path) -> None:
    file = csv(tmp_path, "carrier,day,delay\nUA,31.1.2013,0\nUA,2013-01-31,late\n")

    found = await chunks(CsvSource(file, of=Flight, dead_letters=BAD))

    assert [reason for _, reason, _ in rejected(found)] == [
        "Invalid RFC3339 encoded date - at `$.day`",
        "Expected `float | null`, got `str` - at `$.delay`",
    ]


@pytest.mark.asyncio
@pytest.mark.parametrize("first", ["carrier;day;delay", "UA"], ids=["delimiter", "no header"])
async def test_a_missing_column_is_reported_with_the_existing_ones(
    tmp_path: Path, first: str
) -> None:
    file = csv(tmp_path, f"{first}\nB6\n")

    with pytest.raises(SourceError) as caught:
        await records(CsvSource(file, of=Flight))

    assert str(caught.value).startswith(
        f"{file}, line 2: Object missing required field `carrier`, the columns are ('{first}',); if these are no "
        "names of columns, delimiter= says what separates them, and columns= names them where the file does not: "
    )


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("a,b,a\n1,2,3\n", "line 1: bad header: duplicate names: 'a'"),
        ('\n"a"b\n', "line 2: bad header: ',' expected after '\"'"),
    ],
)
async def test_a_bad_header_is_an_error_even_with_dead_letters(
    tmp_path: Path, content: str, says: str
) -> None:
    with pytest.raises(SourceError, match=says):
        await records(CsvSource(csv(tmp_path, content), dead_letters=BAD))


@pytest.mark.asyncio
async def test_a_quote_that_is_never_closed_is_an_error_before_much_is_read(tmp_path: Path) -> None:
    file = csv(tmp_path, 'a\n1\n"open\n' + "2\n" * 100_000)

    with pytest.raises(
        SourceError, match=r"line 3: field larger than field limit \(131072\); a quote"
    ):
        await records(CsvSource(file, dead_letters=BAD))


@pytest.mark.asyncio
@pytest.mark.parametrize("columns", [None, ["a", "b"]], ids=["header", "no header"])
async def test_a_file_that_ends_inside_quotes_is_an_error_even_with_dead_letters(
    tmp_path: Path, columns: list[str] | None
) -> None:
    file = csv(tmp_path, 'a,b\n1,2\n8,"open\n9,10\n11,12\n')

    with pytest.raises(SourceError) as caught:
        await records(CsvSource(file, columns=columns, dead_letters=BAD))

    assert str(caught.value) == (
        f"{file}, line 3: unexpected end of data; the file ends inside quotes, "
        "so a quote of this record is never closed"
    )


@pytest.mark.asyncio
async def test_a_record_longer_than_the_bound_is_an_error(tmp_path: Path) -> None:
    file = csv(tmp_path, 'a\n"open\n' + "2\n" * 2000)

    with pytest.raises(
        SourceError, match=r"line 2: the record is longer than max_line_bytes = 1,024"
    ):
        await records(CsvSource(file, max_line_bytes=1024))


def test_arguments_are_checked_when_the_source_is_described() -> None:
    with pytest.raises(FlowDefinitionError, match="delimiter must be one character"):
        CsvSource("a.csv", delimiter=", ")
    with pytest.raises(FlowDefinitionError, match="duplicate names: 'a'"):
        CsvSource("a.csv", columns=["a", "a"])
    with pytest.raises(FlowDefinitionError, match="there are no columns"):
        CsvSource("a.csv", columns=[])
    with pytest.raises(FlowDefinitionError, match="cannot convert into"):
        CsvSource("a.csv", of=TwoArrays)
    with pytest.raises(FlowDefinitionError, match="which needs of="):
        CsvSource("a.csv", missing=("NA",))  # type: ignore[call-overload] # pyright: ignore[reportCallIssue]


def test_the_type_of_the_records_is_inferred() -> None:
    assert_type(CsvSource("a.csv"), CsvSource[dict[str, str]])
    assert_type(CsvSource("a.csv", of=Flight, missing=("",)), CsvSource[Flight])
