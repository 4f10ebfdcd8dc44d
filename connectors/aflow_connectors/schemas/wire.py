"""The wire format of Confluent's registry: 0, the id of the schema (4 bytes, big endian), and for Protobuf the path to
the message in its file.

The path is a list of indexes: that of the outermost message in the file, that of the next one in it, and so on. It is
written as its length and its items, each a zigzag varint; the path [0] as the single byte 0.
"""

from __future__ import annotations

import struct
from typing import Final

from aflow_connectors.formats.format import FormatError

#: The number of bytes before the data: in Avro all of the header.
HEADER: Final = 5

#: The first byte of an id from which on it is none: ids are positive ints of Java, and a registry refuses to look for
#: others.
_NO_ID: Final = 0x80

#: Bits of a varint, at most.
_MOST_BITS: Final = 35


def header(schema_id: int) -> bytes:
    """Return the first five bytes of a message."""
    return struct.pack(">bI", 0, schema_id)


def id_of(head: bytes) -> int:
    """Return the id in the first five bytes."""
    return int.from_bytes(head[1:], "big")


def has_header(data: bytes) -> bool:
    """Return True if ``data`` begins as a message with a schema does."""
    return len(data) >= HEADER and data[0] == 0 and data[1] < _NO_ID


def missing_header(data: bytes) -> FormatError:
    """Return the error for a message that does not begin with the id of a schema."""
    if len(data) < HEADER:
        return FormatError(
            f"it has {len(data)} bytes, and the id of a schema takes {HEADER}; was it written without a registry?"
        )
    if data[0] == 0:
        return FormatError(
            f"it has {id_of(data[:HEADER]):,} as the id of a schema, which is too large; was it written without a "
            f"registry?"
        )
    return FormatError(
        f"its first byte is 0x{data[0]:02x} and not 0, so no id of a schema follows; was it written without a registry?"
    )


def packed_path(path: tuple[int, ...]) -> bytes:
    """Return the path to a message."""
    if path == (0,):
        return b"\0"
    return b"".join(_varint(one << 1) for one in (len(path), *path))


def read_path(data: bytes, at: int = HEADER) -> tuple[tuple[int, ...], int]:
    """Return the path to a message and the position after it. Raises ``FormatError``."""
    count, at = _read_varint(data, at)
    if count == 0:
        return (0,), at
    if not 0 < count <= len(data) - at:
        raise FormatError(f"the path to the message has {count} items")
    path: list[int] = []
    for _ in range(count):
        item, at = _read_varint(data, at)
        path.append(item)
    return tuple(path), at


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while at < len(data) and shift < _MOST_BITS:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
    raise FormatError("the path to the message is not complete")
