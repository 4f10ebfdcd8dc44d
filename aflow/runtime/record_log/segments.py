"""The files of a log: segments of blocks, and what is read from damaged ones.

Theory. Records are numbered from 0; the number is their *position*. A *segment* is a file named after the position of
its first record. It has a header and *blocks*. A block has the records of one or more senders, which were written and
synced together; the next one is written after that. So in the last segment only the last block may be *torn*: cut off,
or with parts that never reached the disk. It was acknowledged to no sender, and it is cut.

- A block that cannot be read and is followed by anything else is *damage*, and an error: records that were synced are
  lost. A block that cannot be read at the very end of a log that was not closed cannot be told from a torn one.
- A closed log ends with a block without records. So a closed one has no torn block.
- A segment is never appended to after an error, nor by another process. Each continues with a new segment, whose name
  is the position after the last valid record: blocks from that position on in the preceding segment are *withdrawn*.
  They are those whose write failed, and torn ones.

A header is ``aflowlog``, the version of the format, the length and checksum of its description, and the description
(JSON), which the log passes on. A block is a header of fixed size with a checksum of its own, then the records as
msgpack. All numbers are little endian, all checksums CRC-32.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeAlias
from zlib import crc32

import msgspec

from aflow.errors import SourceError
from aflow.model.time import Timestamp

#: The largest encoded record, in bytes.
MAX_RECORD: Final = 64 << 20

#: A block is ended when its records have more bytes; one record may have more.
BLOCK_BYTES: Final = 4 << 20

SEGMENT_SUFFIX: Final = ".log"

_VERSION: Final = 1
_MAGIC: Final = b"aflowlog"
_FILE_HEADER: Final = struct.Struct("<8sHII")
"""Magic, version of the format, length and checksum of the description."""

_BLOCK_MAGIC: Final = b"\xafBLK"
_BLOCK_HEADER: Final = struct.Struct("<4sIIQqII")
"""Magic, bytes and number of the records, position of the first, time (epoch ms), checksum of the records, and of the
preceding fields."""
_CHECKED: Final = _BLOCK_HEADER.size - 4

_NAME: Final = re.compile(r"(\d{20})\.log")

LogRecord: TypeAlias = tuple[bytes, Timestamp | None, str | None]
"""An encoded value, its timestamp (epoch ms), and its id; None without one."""

_encode_records: Final = msgspec.msgpack.Encoder().encode
_decode_records: Final = msgspec.msgpack.Decoder(list[tuple[bytes, int | None, str | None]]).decode


@dataclass(frozen=True, slots=True)
class LogBlock:
    """Records that were written together, at ``written_at``; the first has position ``first``."""

    first: int
    written_at: Timestamp
    records: Sequence[LogRecord]

    @property
    def end(self) -> int:
        """The position after the last record."""
        return self.first + len(self.records)


@dataclass(frozen=True, slots=True)
class LogBlockHeader:
    """The header of a block: the number of its records and bytes without the header, and the rest of its fields."""

    size: int
    count: int
    first: int
    written_at: Timestamp
    checksum: int

    @property
    def end(self) -> int:
        """The position after the last record."""
        return self.first + self.count

    @property
    def closes(self) -> bool:
        """True for the block that ends a closed log."""
        return self.count == 0


class Damaged(Exception):
    """A block cannot be read; the message is the reason."""


def segment_name(first: int) -> str:
    """Return the name of the segment that begins at a position."""
    return f"{first:020d}{SEGMENT_SUFFIX}"


def first_position(name: str) -> int | None:
    """Return the position in the name of a segment; None for any other name."""
    found = _NAME.fullmatch(name)
    return None if found is None else int(found[1])


def file_header(description: bytes) -> bytes:
    """Return the beginning of a segment."""
    fields = (_MAGIC, _VERSION, len(description), crc32(description))
    return _FILE_HEADER.pack(*fields) + description


def read_file_header(data: bytes, path: Path) -> tuple[bytes, int]:
    """Return the description at the beginning of a segment, and the offset of the first block.

    Raises ``Damaged``, and ``SourceError`` for a file that is no segment, or one of a newer version of aflow.
    """
    if len(data) < _FILE_HEADER.size:
        raise Damaged(f"its header is cut off after {len(data)} bytes")
    magic, version, size, checksum = _FILE_HEADER.unpack_from(data)
    if magic != _MAGIC:
        if not data.strip(b"\0"):
            raise Damaged("its header has only zeros")
        raise SourceError(
            f"{path} is no segment of a log of aflow, or byte 0 is damaged; restore the file from a copy, or remove "
            f"the folder and begin with an empty log"
        )
    if version != _VERSION:
        raise SourceError(
            f"{path} has version {version} of the format of logs in byte 8, and this version of aflow reads version "
            f"{_VERSION}"
        )
    end = _FILE_HEADER.size + size
    description = data[_FILE_HEADER.size : end]
    if len(description) < size or crc32(description) != checksum:
        raise Damaged("its header is cut off or damaged")
    return description, end


def encode_block(first: int, written_at: Timestamp, records: Sequence[LogRecord]) -> bytes:
    """Return a block. Without records, it is the one that ends a closed log."""
    body = _encode_records(records)
    fields = (_BLOCK_MAGIC, len(body), len(records), first, written_at, crc32(body))
    header = _BLOCK_HEADER.pack(*fields, 0)[:_CHECKED]
    return header + crc32(header).to_bytes(4, "little") + body


def read_header(data: bytes, offset: int) -> LogBlockHeader:
    """Return the header of the block at ``offset``. Raises ``Damaged``."""
    if len(data) - offset < _BLOCK_HEADER.size:
        raise Damaged("its header is cut off")
    magic, size, count, first, written_at, checksum, own = _BLOCK_HEADER.unpack_from(data, offset)
    if magic != _BLOCK_MAGIC or crc32(data[offset : offset + _CHECKED]) != own:
        raise Damaged("its header is damaged")
    return LogBlockHeader(size, count, first, written_at, checksum)


def read_block(data: bytes, offset: int) -> tuple[LogBlock, int]:
    """Return the block at ``offset``, and the offset after it. Raises ``Damaged``."""
    header = read_header(data, offset)
    begin = offset + _BLOCK_HEADER.size
    end = begin + header.size
    body = data[begin:end]
    if len(body) < header.size:
        raise Damaged("it is cut off")
    if crc32(body) != header.checksum:
        raise Damaged("its records are damaged")
    try:
        records = _decode_records(body)
    except (ValueError, msgspec.MsgspecError) as exc:
        raise Damaged(f"its records cannot be read: {exc}") from exc
    if len(records) != header.count:
        raise Damaged("its number of records is wrong")
    return LogBlock(header.first, header.written_at, records), end


def blocks_in(
    data: bytes, offset: int, first: int, until: int | None
) -> Iterator[tuple[LogBlock, int]]:
    """Yield the blocks from ``offset`` on with the offset after each; the first has position ``first``.

    With ``until``, the blocks from that position on are withdrawn and not read. Raises ``Damaged`` at the first block
    that cannot be read.
    """
    position = first
    while (offset < len(data)) if until is None else (position < until):
        block, offset = read_block(data, offset)
        if block.first != position:
            raise Damaged(f"it begins at record {block.first} instead of {position}")
        position = block.end
        yield block, offset


def is_torn(data: bytes, offset: int) -> bool:
    """Return True if the unreadable block at ``offset`` may be one that was never synced: nothing follows it.

    Searching costs time in proportion to the rest of the file.
    """
    try:
        end = offset + _BLOCK_HEADER.size + read_header(data, offset).size
    except Damaged:
        return not _has_block(data, offset)
    return end >= len(data)


def _has_block(data: bytes, offset: int) -> bool:
    """Return True if a readable block begins after ``offset``."""
    while (offset := data.find(_BLOCK_MAGIC, offset + 1)) >= 0:
        try:
            read_block(data, offset)
        except Damaged:
            continue
        return True
    return False
