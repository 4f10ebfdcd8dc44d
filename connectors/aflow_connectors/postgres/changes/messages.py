"""Messages of a logical replication stream: those of the plugin ``pgoutput``, version 1, and of the protocol around it.

See "Logical Replication Message Formats" and "Streaming Replication Protocol" in the manual of PostgreSQL. Version 1
sends a transaction after its commit, in the order of the commits: Begin, the changes, Commit. A Relation message
precedes the first change of a table, and the first one after each change of its definition.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import Enum
from operator import itemgetter
from typing import Final, TypeAlias

import msgspec

from aflow_connectors.postgres.changes.change import ChangeKind

#: The clock of the server counts microseconds from here.
_EPOCH: Final = datetime(2000, 1, 1, tzinfo=UTC)

_XLOG_HEADER: Final = 25  # of 'w': kind, start, end of the log, time
_KEEPALIVE: Final = struct.Struct(">QqB")
_BEGIN: Final = struct.Struct(">QqI")
_COMMIT: Final = struct.Struct(">BQQq")
_COLUMN: Final = struct.Struct(">Ii")
_STATUS: Final = struct.Struct(">cQQQqB")
_OID: Final = struct.Struct(">I")
_ROW: Final = struct.Struct(">BIB")
_COUNT: Final = struct.Struct(">H")

_TRUNCATE: Final = ord("T")
_INSERT, _UPDATE, _DELETE = b"IUD"
_NULL, _UNCHANGED_MARK, _TEXT, _BINARY = b"nutb"
_NEW, _OLD = b"NO"
#: The first bytes of the length of a text of less than 256 bytes, and the mark before them.
_ZEROS: Final = b"\0\0\0"
_SHORT_TEXT: Final = b"t" + _ZEROS
_MOST_SPLIT: Final = 0xFFFF
_WITHOUT_MARK: Final = itemgetter(slice(1, -1))
_WITHOUT_LENGTH: Final = itemgetter(slice(1, None))

#: Place of the first row of a message with a changed row: after the kind, the oid of the table, and a mark.
_ROW_AT: Final = _XLOG_HEADER + 6


#: Place of the kind of an 'w' message, and the kinds of those with a changed row.
KIND_AT: Final = _XLOG_HEADER
ROW_KINDS: Final = b"IUD"

#: Returns the kind of a message with a changed row, the oid of the table, and the mark of the first row.
row_head: Final = itemgetter(slice(_XLOG_HEADER, _ROW_AT))


class Unchanged(Enum):
    """The value of a column that is stored apart (TOAST), if an update has not changed and so not sent it."""

    UNCHANGED = "unchanged"


UNCHANGED: Final = Unchanged.UNCHANGED

Value: TypeAlias = bytes | Unchanged | None
"""A value of a column, as text; None is NULL."""

TupleData: TypeAlias = Sequence[Value]


def lsn_text(lsn: int) -> str:
    """Return a position in the log as PostgreSQL writes it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def lsn_of(text: str) -> int:
    """Return the position in the log that ``text`` names. Raises ``ValueError`` for another text."""
    high, slash, low = text.partition("/")
    if not slash:
        raise ValueError(f"{text!r} is no position in the log")
    return int(high, 16) << 32 | int(low, 16)


def datetime_of(micros: int) -> datetime:
    """Return the time of a server's clock."""
    return _EPOCH + timedelta(microseconds=micros)


@dataclass(frozen=True, slots=True)
class Keepalive:
    """All transactions that were committed before ``end`` have been sent."""

    end: int
    wants_reply: bool


@dataclass(frozen=True, slots=True)
class Begin:
    """The start of a transaction. ``lsn`` is that of its commit, ``time`` that of its commit (µs of the server)."""

    lsn: int
    time: int
    xid: int


@dataclass(frozen=True, slots=True)
class Commit:
    """The end of a transaction. Later transactions are committed at ``end`` or after it."""

    lsn: int
    end: int


@dataclass(frozen=True, slots=True)
class RelationColumn:
    name: str
    type: int
    """The oid of the type."""
    in_identity: bool
    """True if the column is one of the replica identity."""


@dataclass(frozen=True, slots=True)
class Relation:
    """The definition of a table. ``identity`` is ``d``: primary key, ``i``: an index, ``f``: full, or ``n``: none."""

    oid: int
    schema: str
    name: str
    identity: str
    columns: tuple[RelationColumn, ...]


# A struct, since one is made for each row: a frozen dataclass takes several times as long.
class RowChanged(msgspec.Struct, frozen=True):
    """A changed row. ``kind`` is "insert", "update" or "delete".

    ``old`` are all values before the change if ``old_is_full``, else those of the replica identity with NULL for the
    others. It is None for an insert, and for an update that has not changed the replica identity, unless that is full.
    """

    kind: ChangeKind
    relation: int
    old: TupleData | None
    old_is_full: bool
    new: TupleData | None


@dataclass(frozen=True, slots=True)
class Truncate:
    relations: tuple[int, ...]


Message: TypeAlias = Begin | Commit | Relation | RowChanged | Truncate


def keepalive_of(data: bytes) -> Keepalive:
    end, _, reply = _KEEPALIVE.unpack_from(data, 1)
    return Keepalive(end, bool(reply))


def status_message(written: int, confirmed: int, micros: int, *, wants_reply: bool) -> bytes:
    """Return the message that confirms what is before ``confirmed``; 0 confirms nothing."""
    return _STATUS.pack(b"r", written, confirmed, confirmed, micros, wants_reply)


def micros_of(time: datetime) -> int:
    """Return ``time`` on the clock of a server."""
    return (time - _EPOCH) // timedelta(microseconds=1)


def begin_lsn(data: bytes) -> int | None:
    """Return the LSN of a Begin message in an 'w' message, None for another one."""
    if data[_XLOG_HEADER] != _BEGIN_MARK:
        return None
    lsn: int = _BEGIN.unpack_from(data, _XLOG_HEADER + 1)[0]
    return lsn


def is_commit(data: bytes) -> bool:
    """Return True for an 'w' message with a Commit."""
    return data[_XLOG_HEADER] == _COMMIT_MARK


_BEGIN_MARK: Final = ord("B")
_COMMIT_MARK: Final = ord("C")


def row_of(data: bytes) -> RowChanged:
    """Decode an 'w' message whose kind is one of ``ROW_KINDS``."""
    # Hot path of the source.
    kind, relation, mark = _ROW.unpack_from(data, _XLOG_HEADER)
    row, at = _tuple(data, _ROW_AT)
    if kind == _INSERT:
        return RowChanged("insert", relation, None, False, row)
    if kind == _DELETE:
        return RowChanged("delete", relation, row, mark == _OLD, None)
    if mark == _NEW:
        return RowChanged("update", relation, None, False, row)
    return RowChanged("update", relation, row, mark == _OLD, _tuple(data, at + 1)[0])


def only_new_kind(head: bytes) -> ChangeKind | None:
    """Return the kind of messages with this ``row_head`` if they have no row but the new one, else None."""
    if head[-1] != _NEW:
        return None
    return "insert" if head[0] == _INSERT else "update"


def relation_of(head: bytes) -> int:
    """Return the oid of the table of messages with this ``row_head``."""
    return int.from_bytes(head[1:5])


def columns_of(messages: Sequence[bytes]) -> list[Sequence[Value]]:
    """Return the values of the first rows of ``messages`` of one table, by columns.

    Raises ``ValueError`` if the rows have different numbers of columns.
    """
    # Hot path of the source: loops in C.
    short = _columns_of_short(messages)
    if short is not None:
        return short
    return list(zip(*[_tuple(data, _ROW_AT)[0] for data in messages], strict=True))


def _columns_of_short(messages: Sequence[bytes]) -> list[Sequence[Value]] | None:
    """Return the same for rows of texts of less than 256 bytes; None if there are others.

    Texts have no zero byte. So, in a message of less than 64 KiB, three zeros are the first bytes of the length of such
    a text, and nothing else. Between them are the last byte of the length, the text, and the mark of the next value.
    """
    if max(map(len, messages)) > _MOST_SPLIT:
        return None
    rows = [data[_ROW_AT:].split(_ZEROS) for data in messages]
    (count,) = _COUNT.unpack_from(messages[0], _ROW_AT)
    if not count or set(map(len, rows)) != {count + 1}:
        return None
    before, *columns = zip(*rows, strict=True)
    if len(set(before)) != 1:
        return None
    return [
        *(list(map(_WITHOUT_MARK, column)) for column in columns[:-1]),
        list(map(_WITHOUT_LENGTH, columns[-1])),
    ]


def message_of(data: bytes) -> Message | None:
    """Decode an 'w' message. Return None for one that has no change: origins, types, and messages of applications."""
    kind = data[_XLOG_HEADER]
    if kind in ROW_KINDS:
        return row_of(data)
    body = data[_XLOG_HEADER:]
    if kind == _BEGIN_MARK:
        return Begin(*_BEGIN.unpack_from(body, 1))
    if kind == _COMMIT_MARK:
        _, lsn, end, _ = _COMMIT.unpack_from(body, 1)
        return Commit(lsn, end)
    if kind == ord("R"):
        return _relation(body)
    if kind == _TRUNCATE:
        count = _OID.unpack_from(body, 1)[0]
        return Truncate(struct.unpack_from(f">{count}I", body, 6))
    return None


def _tuple(data: bytes, at: int) -> tuple[TupleData, int]:
    """Return the values of a row at ``at``, and the place after them."""
    # Hot path of the source.
    (count,) = _COUNT.unpack_from(data, at)
    at += 2
    values: list[Value] = []
    for _ in range(count):
        start = at + 5
        if data[at : at + 4] == _SHORT_TEXT:
            at = start + data[at + 4]
            values.append(data[start:at])
            continue
        mark = data[at]
        if mark == _TEXT:
            at = start + int.from_bytes(data[at + 1 : start])
            values.append(data[start:at])
        elif mark == _NULL:
            at += 1
            values.append(None)
        elif mark == _UNCHANGED_MARK:
            at += 1
            values.append(UNCHANGED)
        else:
            raise ValueError(f"{chr(mark)!r} is no mark of a value in text format")
    return values, at


def _relation(body: bytes) -> Relation:
    (oid,) = _OID.unpack_from(body, 1)
    schema, at = _text(body, 5)
    name, at = _text(body, at)
    identity = chr(body[at])
    (count,) = _COUNT.unpack_from(body, at + 1)
    at += 3
    columns: list[RelationColumn] = []
    for _ in range(count):
        flags = body[at]
        column, at = _text(body, at + 1)
        type_, _ = _COLUMN.unpack_from(body, at)
        at += _COLUMN.size
        columns.append(RelationColumn(column, type_, bool(flags & 1)))
    # An empty text is the schema of system tables.
    return Relation(oid, schema or "pg_catalog", name, identity, tuple(columns))


def _text(body: bytes, at: int) -> tuple[str, int]:
    """Return the text at ``at``, which ends with a zero byte, and the place after it."""
    end = body.index(0, at)
    return body[at:end].decode(), end + 1
