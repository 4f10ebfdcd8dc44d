"""JSON lines read as records."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypedDict, assert_type

import msgspec
import pytest

from aflow.connect import SourceError
from aflow.errors import FlowDefinitionError
from aflow_connectors.files import JsonLinesSource, TextSource
from tests.connectors.files.reading import chunks, records, values


@dataclass
class Payment:
    card: str
    amount: float = 1.0


class PaymentStruct(msgspec.Struct):
    card: str


class PaymentTuple(NamedTuple):
    card: str
    amount: float = 1.0
    parts: tuple[PaymentTuple, ...] = ()


class TwoArrays(msgspec.Struct):
    """A union in which an array is ambiguous."""

    either: list[int] | set[int]


class PaymentDict(TypedDict):
    card: str


@pytest.mark.asyncio
async def test_each_line_is_a_record(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(b'{"card": "4711"}\n{"card": "4712", "amount": 2}\n')

    assert await records(JsonLinesSource(file)) == [{"card": "4711"}, {"card": "4712", "amount": 2}]


@pytest.mark.asyncio
async def test_a_last_line_without_line_feed_is_a_record(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(b'{"a": 1}\n{"a": 2}')

    assert await records(JsonLinesSource(file)) == [{"a": 1}, {"a": 2}]


@pytest.mark.asyncio
async def test_blank_lines_and_the_line_ends_of_windows_are_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(b'\n{"a": 1}\r\n\r\n   \n{"a": 2}\r\n\n')

    assert await records(JsonLinesSource(file)) == [{"a": 1}, {"a": 2}]


@pytest.mark.asyncio
async def test_a_line_that_is_nested_too_deeply_is_bad(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(b"[1]\n" + b"[" * 100_000 + b"]" * 100_000 + b"\n")

    with pytest.raises(SourceError, match="line 2: "):
        await records(JsonLinesSource(file, of=list[Any]))


@pytest.mark.asyncio
async def test_an_empty_file_has_no_records(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").touch()

    assert await records(JsonLinesSource(tmp_path / "a.jsonl")) == []


@pytest.mark.asyncio
async def test_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(b'\xef\xbb\xbf{"a": 1}\n{"a": 2}\n')

    found = await chunks(JsonLinesSource(file), limits=[1], reopen=True)

    assert values(found) == [{"a": 1}, {"a": 2}]


@pytest.mark.asyncio
async def test_a_chunk_has_at_most_limit_records(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(b"{}\n" * 7)

    found = await chunks(JsonLinesSource(file), limits=[3])

    assert [len(chunk.values) for chunk in found] == [3, 3, 1]


@pytest.mark.asyncio
async def test_lines_over_the_end_of_a_block_are_whole(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    lines = [str(length % 10) * length for length in range(400)]
    file.write_text("\n".join(lines))

    # A file is read in blocks of the longest line that is allowed, if that is less than a mebibyte.
    assert await records(TextSource(file, max_line_bytes=1024)) == lines


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("of", "expected"),
    [
        (Payment, Payment("4711")),
        (PaymentStruct, PaymentStruct("4711")),
        (PaymentDict, {"card": "4711"}),
    ],
    ids=["dataclass", "struct", "typed dict"],
)
async def test_records_are_of_the_declared_type(
    tmp_path: Path, of: type[object], expected: object
) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(b'{"card": "4711", "not declared": 1}\n')

    assert await records(JsonLinesSource(file, of=of)) == [expected]


@pytest.mark.asyncio
async def test_a_line_may_be_anything_that_is_declared(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(b"[1, 2]\n[]\n")

    assert await records(JsonLinesSource(file, of=list[int])) == [[1, 2], []]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "line",
    [
        '["a", 2.0, [["b", 1.0]]]',
        '{"parts": [{"card": "b"}], "card": "a", "amount": 2.0, "not declared": 1}',
        '["a", 2.0, [{"card": "b", "amount": 1.0}]]',
    ],
    ids=["arrays", "objects", "both"],
)
async def test_a_named_tuple_is_read_from_an_array_or_an_object(tmp_path: Path, line: str) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(line + "\n")

    found = await records(JsonLinesSource(file, of=PaymentTuple))

    assert found == [PaymentTuple("a", 2.0, (PaymentTuple("b"),))]


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('{"amount": 2.0}', "missing required field `card`"),
        ('{"card": 4711}', r"Expected `str`, got `int` - at `\$\[0\]`"),
        ("[]", "Expected `array` of length 1 to 3"),
        ("7", "Expected `array`, got `int`"),
    ],
    ids=["field missing", "field of another type", "array too short", "neither"],
)
async def test_a_line_that_is_no_declared_named_tuple_is_bad(
    tmp_path: Path, line: str, reason: str
) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(line + "\n")

    with pytest.raises(SourceError, match=reason):
        await records(JsonLinesSource(file, of=PaymentTuple))


@pytest.mark.asyncio
@pytest.mark.parametrize("of", [None, dict[str, str]], ids=["untyped", "typed"])
async def test_another_encoding_than_utf_8_can_be_given(
    tmp_path: Path, of: type[dict[str, str]] | None
) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"name": "Zoë"}\n', encoding="latin-1")
    source: JsonLinesSource[Any] = (
        JsonLinesSource(file, encoding="latin-1")
        if of is None
        else JsonLinesSource(file, of=of, encoding="latin-1")
    )

    assert await records(source) == [{"name": "Zoë"}]


def test_arguments_are_checked_when_the_source_is_described() -> None:
    with pytest.raises(FlowDefinitionError, match="cannot decode into"):
        JsonLinesSource("a.jsonl", of=TwoArrays)
    with pytest.raises(FlowDefinitionError, match=r"max_line_bytes must be at least 1,024, not 10"):
        JsonLinesSource("a.jsonl", max_line_bytes=10)
    with pytest.raises(FlowDefinitionError, match="no encoding that Python knows"):
        JsonLinesSource("a.jsonl", encoding="utf-9")
    with pytest.raises(FlowDefinitionError, match=r"iconv -f utf-16 -t UTF-8"):
        JsonLinesSource("a.jsonl", encoding="utf-16")
    with pytest.raises(FlowDefinitionError, match="the path is empty"):
        JsonLinesSource("")


def test_the_type_of_the_records_is_inferred() -> None:
    assert_type(JsonLinesSource("a.jsonl"), JsonLinesSource[dict[str, Any]])
    assert_type(JsonLinesSource("a.jsonl", of=Payment), JsonLinesSource[Payment])
