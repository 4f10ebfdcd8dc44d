"""Compressed files are read like others; damage is detected and named."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from aflow.connect import ConnectorError, SourceError
from aflow_connectors.files import JsonLinesSource, TextSource
from tests.connectors.files.reading import chunks, chunks_of_split, records, values

LINES = [f"line {number} {number * 7919 % 1009}" for number in range(20_000)]
CONTENT = "".join(f"{line}\n" for line in LINES).encode()

CODECS = [
    pytest.param(gzip.compress, ".gz", "gzip", id="gzip"),
    pytest.param(zstandard.compress, ".zst", "zstd", id="zstd"),
]
Compress = Callable[[bytes], bytes]


@pytest.mark.asyncio
@pytest.mark.parametrize(("compress", "suffix", "codec"), CODECS)
async def test_a_compressed_file_has_the_lines_of_its_content(
    tmp_path: Path, compress: Compress, suffix: str, codec: str
) -> None:
    file = tmp_path / f"a.txt{suffix}"
    file.write_bytes(compress(CONTENT))

    assert await records(TextSource(file)) == LINES


@pytest.mark.asyncio
@pytest.mark.parametrize(("compress", "suffix", "codec"), CODECS)
async def test_a_compressed_file_is_recognised_under_any_name(
    tmp_path: Path, compress: Compress, suffix: str, codec: str
) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes(compress(b"x\n"))

    assert await records(TextSource(file)) == ["x"]


@pytest.mark.asyncio
@pytest.mark.parametrize(("compress", "suffix", "codec"), CODECS)
async def test_files_that_were_compressed_and_then_joined_are_read_to_the_end(
    tmp_path: Path, compress: Compress, suffix: str, codec: str
) -> None:
    file = tmp_path / f"a.txt{suffix}"
    file.write_bytes(compress(CONTENT[:1000]) + compress(b"") + compress(CONTENT[1000:]))

    assert await records(TextSource(file)) == LINES


@pytest.mark.asyncio
async def test_zeros_after_gzip_data_are_padding(tmp_path: Path) -> None:
    file = tmp_path / "a.txt.gz"
    file.write_bytes(gzip.compress(b"a\n") + bytes(40_000) + gzip.compress(b"b\n") + bytes(7))

    assert await records(TextSource(file)) == ["a", "b"]


@pytest.mark.asyncio
@pytest.mark.parametrize(("compress", "suffix", "codec"), CODECS)
async def test_reading_continues_at_a_position_in_the_uncompressed_content(
    tmp_path: Path, compress: Compress, suffix: str, codec: str
) -> None:
    file = tmp_path / f"a.txt{suffix}"
    file.write_bytes(compress(CONTENT))

    found = await chunks(TextSource(file), limits=[7000, 1], reopen=True)

    assert values(found) == LINES


@pytest.mark.asyncio
@pytest.mark.parametrize(("compress", "suffix", "codec"), CODECS)
async def test_all_data_of_a_truncated_file_is_read_before_the_error(
    tmp_path: Path, compress: Compress, suffix: str, codec: str
) -> None:
    file = tmp_path / f"a.txt{suffix}"
    file.write_bytes(compress(CONTENT)[:-20])
    source = TextSource(file)
    reader = await source.reader((await source.splits())[0], None)

    found: list[str] = []

    async def read_all() -> None:
        while (chunk := await reader.read(10_000)) is not None:
            found.extend(chunk.values)

    with pytest.raises(SourceError) as caught:
        await read_all()
    await reader.close()

    assert found == LINES[: len(found)]
    after = f", after line {len(found):,}" if found else ""
    assert str(caught.value) == (
        f"cannot read {file}{after}: the {codec} data ends too early: the file is truncated"
    )


@pytest.mark.asyncio
async def test_much_of_a_truncated_gzip_is_read(tmp_path: Path) -> None:
    file = tmp_path / "a.txt.gz"
    file.write_bytes(gzip.compress(CONTENT)[:-20])
    source = TextSource(file)
    reader = await source.reader((await source.splits())[0], None)

    chunk = await reader.read(100_000)
    await reader.close()

    assert chunk is not None
    assert len(chunk.values) > len(LINES) * 0.9


@pytest.mark.asyncio
@pytest.mark.parametrize(("compress", "suffix", "codec"), CODECS)
async def test_damaged_data_is_an_error_that_names_the_file(
    tmp_path: Path, compress: Compress, suffix: str, codec: str
) -> None:
    file = tmp_path / f"a.txt{suffix}"
    data = bytearray(compress(CONTENT))
    data[len(data) // 2 : len(data) // 2 + 50] = b"\xff" * 50
    file.write_bytes(data)

    with pytest.raises(SourceError, match=rf"cannot read {file}.*: the {codec} data is damaged: "):
        await records(TextSource(file))


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"{}\n", r"named \.gz but does not begin as gzip does: b'{}\\n'"),
        (b"", r"\.gz but is empty"),
    ],
    ids=["plain", "empty"],
)
async def test_a_name_that_promises_another_compression_is_an_error(
    tmp_path: Path, content: bytes, says: str
) -> None:
    file = tmp_path / "a.jsonl.gz"
    file.write_bytes(content)

    with pytest.raises(SourceError, match=says):
        await records(JsonLinesSource(file))


@pytest.mark.asyncio
async def test_zstd_without_its_package_names_the_package_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a.jsonl.zst"
    file.write_bytes(zstandard.compress(b"{}\n"))
    monkeypatch.setitem(__import__("sys").modules, "zstandard", None)

    with pytest.raises(
        ConnectorError, match=r'reading \.zst files needs .* pip install "aflow-streams\[zstd\]"'
    ):
        await records(JsonLinesSource(file))


@pytest.mark.asyncio
async def test_a_compressed_file_that_became_shorter_than_the_position_is_an_error(
    tmp_path: Path,
) -> None:
    file = tmp_path / "a.txt.gz"
    file.write_bytes(gzip.compress(CONTENT))
    source = TextSource(file)
    (split,) = await source.splits()
    *_, last = await chunks_of_split(source, split, limits=[1000], reopen=False)
    file.write_bytes(gzip.compress(CONTENT[:1000]))

    reader = await source.reader(split, last.position)
    with pytest.raises(SourceError, match=r"it is shorter than the [\d,]+ bytes"):
        await reader.read(1)
    await reader.close()
