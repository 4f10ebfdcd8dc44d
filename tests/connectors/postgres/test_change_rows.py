"""Changed rows that are decoded at once are those that are decoded one by one."""

from __future__ import annotations

import struct

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from aflow.connect import BadRecord, Tag
from aflow_connectors.bad_records import BadRecords
from aflow_connectors.postgres.changes.messages import (
    UNCHANGED,
    Begin,
    Commit,
    Relation,
    RelationColumn,
    Value,
    columns_of,
    row_of,
)
from aflow_connectors.postgres.changes.row_decoder import record_type
from aflow_connectors.postgres.changes.slot import PublishedTable, ServerFacts
from aflow_connectors.postgres.changes.table_changes import TableChanges
from aflow_connectors.postgres.changes.transactions import TransactionCursor

#: Lengths of texts around those whose encoding has one byte, and two.
TEXTS = st.one_of(
    st.integers(-99, 99).map(lambda n: str(n).encode()),
    st.sampled_from([b"", b"t", b"n", b"x" * 255, b"x" * 256, b"x" * 511, b"x" * 70_000]),
)
VALUES: st.SearchStrategy[Value] = st.one_of(TEXTS, TEXTS, st.sampled_from([None, UNCHANGED]))

INT, TEXT = 23, 25
TABLE = PublishedTable("ours", "public", "ours", ("n", "name"), None, ("n",), ("integer",), oid=1)
OURS, OTHER = (
    Relation(
        oid,
        "public",
        name,
        "d",
        (RelationColumn("n", INT, True), RelationColumn("name", TEXT, False)),
    )
    for oid, name in ((1, "ours"), (2, "other"))
)


class Named(msgspec.Struct):
    n: int
    name: str


def tuple_data(values: tuple[Value, ...]) -> bytes:
    data = struct.pack(">H", len(values))
    for value in values:
        match value:
            case None:
                data += b"n"
            case bytes():
                data += b"t" + struct.pack(">I", len(value)) + value
            case _:
                data += b"u"
    return data


def message(kind: str, relation: int, *rows: bytes) -> bytes:
    return b"w" + bytes(24) + kind.encode() + struct.pack(">I", relation) + b"".join(rows)


@st.composite
def changed_rows(draw: st.DrawFn) -> bytes:
    relation = draw(st.sampled_from([1, 1, 1, 2]))
    keys = st.integers(0, 9).map(lambda n: str(n).encode())
    key, value = draw(keys), draw(VALUES)
    new = b"N" + tuple_data((key, value))
    match draw(st.sampled_from("IIIIUUODX")):
        case "I":
            # A value that is no number is a dead letter.
            number = draw(st.sampled_from([key, key, b"none"]))
            text = b"" if value is UNCHANGED else value
            return message("I", relation, b"N" + tuple_data((number, text)))
        case "U":
            return message("U", relation, new)
        case "O":
            return message("U", relation, b"O" + tuple_data((key, b"before")), new)
        case "X":
            return message("U", relation, b"K" + tuple_data((key, None)), new)
        case kind:
            return message(kind, relation, b"K" + tuple_data((key, None)))


@given(st.integers(1, 4).flatmap(lambda n: st.lists(st.tuples(*[VALUES] * n), min_size=1)))
def test_columns_of_messages_have_the_values_of_their_rows(rows: list[tuple[Value, ...]]) -> None:
    messages = [message("I", 1, b"N", tuple_data(row)) for row in rows]

    columns = columns_of(messages)

    assert list(zip(*columns, strict=True)) == rows
    assert [tuple(row_of(one).new or ()) for one in messages] == rows


@given(st.lists(changed_rows()), st.integers(0, 5), st.sampled_from([None, Named]))
def test_rows_at_once_are_the_rows_one_by_one(
    messages: list[bytes], passed: int, of: type[Named] | None
) -> None:
    tables = TableChanges[object](
        "here", {"ours": record_type("test", of)}, BadRecords("here", Tag[BadRecord]("bad"))
    )
    tables.set_tables([TABLE], ServerFacts("", 0, 0.0, {}))
    at_once, one_by_one = (TransactionCursor(100, passed) for _ in range(2))
    for cursor in (at_once, one_by_one):
        for one in (Begin(100, 5_000, 7), OURS, OTHER):
            cursor.handle(one)

    found = tables.rows(at_once.pass_rows(messages), at_once)

    changes = tables.of_source(one_by_one.rows(map(row_of, messages)))
    assert found == [tables.change(one, one.kind) for one in changes]
    assert (at_once.lsn, at_once.number) == (one_by_one.lsn, one_by_one.number)
    for cursor in (at_once, one_by_one):
        cursor.handle(Commit(100, 110))
    assert (at_once.lsn, at_once.number) == (one_by_one.lsn, one_by_one.number)


def test_rows_of_a_table_without_columns_are_changes() -> None:
    tables = TableChanges[object](
        "here", {"ours": record_type("test", None)}, BadRecords("here", None)
    )
    tables.set_tables([TABLE], ServerFacts("", 0, 0.0, {}))
    cursor = TransactionCursor(0, 0)
    cursor.handle(Begin(100, 0, 7))
    cursor.handle(Relation(1, "public", "ours", "f", ()))
    messages = [message("I", 1, b"N", tuple_data(())) for _ in range(2)]

    found = tables.rows(cursor.pass_rows(messages), cursor)

    assert [one.after for one in found if not isinstance(one, BadRecord)] == [{}, {}]
