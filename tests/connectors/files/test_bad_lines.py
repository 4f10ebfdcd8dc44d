"""Unreadable input is an error that names file, line and reason, or is emitted as dead letters."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from aflow.connect import BadRecord, SourceError, Tag
from aflow_connectors.files import JsonLinesSource
from tests.connectors.files.reading import chunks, records, rejected, values

BAD = Tag[BadRecord]("bad lines")


@dataclass
class Payment:
    card: str
    amount: float


async def error_of(source: JsonLinesSource[Any]) -> str:
    with pytest.raises(SourceError) as caught:
        await records(source)
    return str(caught.value)


@pytest.mark.asyncio
async def test_a_bad_line_is_an_error_that_names_file_line_reason_and_shows_the_line(
    tmp_path: Path,
) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(b'{"a": 1}\n\n{"a": nope}\n')

    message = await error_of(JsonLinesSource(file))

    # The reason is a message of orjson, which differs between its versions.
    assert message.startswith(f"{file}, line 3: ")
    assert message.endswith(
        " at column 7: '{\"a\": nope}' (dead_letters=Tag(…) sends bad records to a stream of their own)"
    )


@pytest.mark.asyncio
async def test_a_long_bad_line_is_shown_in_part(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(b"x" * 100_000)

    assert len(await error_of(JsonLinesSource(file))) < 400 + len(str(file))


@pytest.mark.asyncio
async def test_bad_lines_are_dead_letters_and_the_lines_around_them_are_read(
    tmp_path: Path,
) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(b'{"a": 1}\nnope\n{"a": 2}\n[3]\n"' + b"x" * 5000 + b"\n")

    found = await chunks(JsonLinesSource(file, dead_letters=BAD))

    assert values(found) == [{"a": 1}, {"a": 2}]
    bad = rejected(found)
    assert [place for place, _, _ in bad] == [f"{file}, line {line}" for line in (2, 4, 5)]
    assert bad[1][1:] == (
        "it is a JSON list, not an object; of= says what else a line may be",
        b"[3]",
    )
    assert bad[2][2] == b'"' + b"x" * 4095


@pytest.mark.asyncio
async def test_a_line_that_does_not_fit_the_type_is_bad(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(
        b'{"card": "1", "amount": 2}\n{"card": "1", "amount": "much"}\n{"card": "1"}\n'
    )

    found = await chunks(JsonLinesSource(file, of=Payment, dead_letters=BAD))

    assert values(found) == [Payment("1", 2)]
    assert [reason for _, reason, _ in rejected(found)] == [
        "Expected `float`, got `str` - at `$.amount`",
        "Object missing required field `amount`",
    ]


@pytest.mark.asyncio
@pytest.mark.parametrize("of", [None, Payment], ids=["untyped", "typed"])
async def test_a_line_in_another_encoding_is_bad(tmp_path: Path, of: type[Payment] | None) -> None:
    file = tmp_path / "a.jsonl"
    good = '{"card": "ë", "amount": 1}\n'
    file.write_bytes(good.encode() + good.encode("latin-1"))
    source: JsonLinesSource[Any] = (
        JsonLinesSource(file) if of is None else JsonLinesSource(file, of=of)
    )

    message = await error_of(source)

    assert f"{file}, line 2: byte 0xeb at column 11 is not utf-8; encoding= sets" in message


@pytest.mark.asyncio
async def test_a_file_in_utf_16_is_refused_with_the_remedy(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"a": 1}\n', encoding="utf-16")

    message = await error_of(JsonLinesSource(file))

    assert message.startswith(f"cannot read {file}: it is in UTF-16")
    assert "iconv -f UTF-16 -t UTF-8" in message


@pytest.mark.asyncio
@pytest.mark.parametrize("ended", [b"", b"\n{}\n"], ids=["last", "with another behind it"])
@pytest.mark.parametrize("dead_letters", [None, BAD], ids=["", "with dead letters"])
async def test_a_line_longer_than_the_bound_is_refused(
    tmp_path: Path, ended: bytes, dead_letters: Tag[BadRecord] | None
) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(b'{"a": 1}\n' + b"x" * 1025 + ended)

    message = await error_of(JsonLinesSource(file, max_line_bytes=1024, dead_letters=dead_letters))

    assert f"cannot read {file}" in message
    assert "line 2 is longer than max_line_bytes = 1,024 and begins with b'xxxx" in message


@pytest.mark.asyncio
async def test_a_line_as_long_as_the_bound_is_read(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    line = b'{"a": "' + b"x" * 1015 + b'"}'
    file.write_bytes(line + b"\n" + line + b"\n")

    assert len(line) == 1024
    assert len(await records(JsonLinesSource(file, max_line_bytes=1024))) == 2


@pytest.mark.asyncio
async def test_a_file_that_vanished_since_it_was_found_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.touch()
    source = JsonLinesSource(file)
    (split,) = await source.splits()
    file.unlink()

    reader = await source.reader(split, None)
    with pytest.raises(SourceError, match=rf"cannot read {file}: No such file or directory"):
        await reader.read(1)
    await reader.close()
