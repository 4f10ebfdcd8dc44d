"""Chunks of rows: as they are sent, and as they are staged.

Rows of integers, floats, texts and booleans are *plain*: the client sends them in its binary format, which the server
reads in half the time, and they are staged as MessagePack. Other rows are lines of the text format of COPY, sent and
staged, since the server knows how to read each of its types from text. Staged rows are always loaded as text, so a
table whose columns have other types since then converts them, too.

The first byte of a staged chunk of plain rows occurs in no text, so chunks of both kinds are told apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final, TypeAlias, cast

import msgspec

from aflow_connectors.postgres.text_values import (
    copy_lines,
    copy_payload,
    refuse_surrogates,
    texts_of,
    to_text,
)

PlainRow: TypeAlias = tuple[Any, ...]

CopyRow: TypeAlias = str | PlainRow
"""A line of COPY, or a plain row."""

_MARK: Final = b"\xff"
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(list[tuple[Any, ...]])


#: The classes of plain values, by types of columns. The server reads the same value from both formats.
_PLAIN: Final[Mapping[str, type]] = {
    "smallint": int,
    "integer": int,
    "bigint": int,
    "double precision": float,
    "text": str,
    "character varying": str,
    "boolean": bool,
}
#: Bits of integers.
_BITS: Final = {"smallint": 16, "integer": 32, "bigint": 64}


class PlainTable:
    """Tells whether rows of columns of ``types`` are plain."""

    def __init__(self, types: Sequence[str]) -> None:
        #: For each column, the classes of its values, and the bound of integers.
        self._columns: list[tuple[frozenset[type], int]] | None = None
        if types and all(one in _PLAIN for one in types):
            self._columns = [
                (frozenset((_PLAIN[one], type(None))), 1 << _BITS.get(one, 1) - 1) for one in types
            ]

    def has(self, rows: Sequence[Sequence[object]]) -> bool:
        """Return True if ``rows``, which have a value for each column, have plain ones only."""
        # Hot path of the sinks: loops in C, which make no objects.
        if self._columns is None:
            return False
        for number, (classes, bound) in enumerate(self._columns):
            found = set(map(type, map(itemgetter(number), rows)))
            if not found <= classes:
                return False
            if int in found:
                values = cast("Iterable[int]", map(itemgetter(number), rows))
                ordered = sorted(values if len(found) == 1 else filter(_is_some, values))
                if ordered[0] < -bound or ordered[-1] >= bound:
                    return False
        return True


def _is_some(value: object) -> bool:
    return value is not None


def are_plain(rows: Sequence[CopyRow]) -> bool:
    """Return True if ``rows`` has plain ones only."""
    return str not in set(map(type, rows))


def chunk_of(rows: Sequence[CopyRow]) -> bytes:
    """Return ``rows`` as they are staged. Raises ``TextRejected``."""
    if not are_plain(rows):
        return copy_payload(lines_of(rows))
    try:
        return _MARK + _ENCODER.encode(rows)
    except UnicodeEncodeError:
        refuse_plain_surrogates(rows)
        raise


def is_plain(chunk: bytes) -> bool:
    """Return True if a staged chunk has plain rows; else it is text for COPY."""
    return chunk.startswith(_MARK)


def refuse_plain_surrogates(rows: Iterable[CopyRow]) -> None:
    """Raise ``TextRejected`` for the first plain row with text that cannot be encoded."""
    for index, row in enumerate(rows):
        refuse_surrogates(index, tuple([one for one in row if isinstance(one, str)]))


def payload_of(chunk: bytes) -> bytes:
    """Return the rows of a staged chunk for COPY."""
    if not is_plain(chunk):
        return chunk
    return copy_payload(_lines_of_plain(_DECODER.decode(memoryview(chunk)[1:])))


def lines_of(rows: Sequence[CopyRow]) -> list[str]:
    """Return ``rows`` as lines of COPY."""
    if are_plain(rows):
        return _lines_of_plain(cast(Sequence[PlainRow], rows))
    return [row if isinstance(row, str) else _lines_of_plain((row,))[0] for row in rows]


def _lines_of_plain(rows: Sequence[PlainRow]) -> list[str]:
    return copy_lines([texts_of(to_text, column) for column in zip(*rows, strict=True)])
