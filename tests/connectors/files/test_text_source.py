"""Lines of text become records."""

from __future__ import annotations

from pathlib import Path

import pytest

from aflow.connect import BadRecord, SourceError, Tag
from aflow_connectors.files import TextSource
from tests.connectors.files.reading import chunks, records, rejected, values


@pytest.mark.asyncio
async def test_each_line_is_a_record_without_its_end_and_blank_lines_too(tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    file.write_bytes("Zoë\r\n\nb \n".encode())

    assert await records(TextSource(file)) == ["Zoë", "", "b "]


@pytest.mark.asyncio
async def test_a_line_in_another_encoding_is_an_error_with_line_and_column(tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    file.write_bytes("fine\nZoë".encode("latin-1"))

    with pytest.raises(SourceError) as caught:
        await records(TextSource(file))

    assert str(caught.value) == (
        f"{file}, line 2: byte 0xeb at column 3 is not utf-8; encoding= sets the encoding of the "
        "file: 'Zo\\\\xeb' (dead_letters=Tag(…) sends bad records to a stream of their own)"
    )


@pytest.mark.asyncio
async def test_lines_in_another_encoding_are_dead_letters(tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    file.write_bytes(b"a\n\xeb\n\nb\n")

    found = await chunks(TextSource(file, dead_letters=Tag[BadRecord]("bad")))

    assert values(found) == ["a", "", "b"]
    assert [place for place, _, _ in rejected(found)] == [f"{file}, line 2"]
