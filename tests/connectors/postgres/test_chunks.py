"""Rows of integers, floats, texts and booleans are sent in binary format, and mean the same as those sent as text."""

from __future__ import annotations

from math import inf, nan
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aflow.connect import SinkError
from aflow_connectors.postgres import PostgresSink, PostgresUpsert
from aflow_connectors.postgres.chunks import (
    CopyRow,
    PlainTable,
    chunk_of,
    is_plain,
    lines_of,
    payload_of,
)
from aflow_connectors.postgres.table import Column, TableColumns
from aflow_connectors.postgres.text_values import copy_payload
from tests.connectors.postgres.conftest import Database
from tests.connectors.postgres.writing import begun, prepared, put, written

COLUMNS = {
    "s": "smallint",
    "i": "integer",
    "b": "bigint",
    "f": "double precision",
    "t": "text",
    "v": "character varying",
    "o": "boolean",
}
TABLE = PlainTable(list(COLUMNS.values()))

ROWS: list[tuple[Any, ...]] = [
    (-(2**15), -(2**31), -(2**63), -0.0, "a\tb\\n\n", "", True),
    (2**15 - 1, 2**31 - 1, 2**63 - 1, inf, "\\N", "ü€🙂", False),
    (None, None, None, None, None, None, None),
    (0, 0, 0, nan, "NULL", "\\.", None),
    (1, 1, 1, 1e300, "1e300", '"', True),
    (1, 1, 1, 0.1 + 0.2, "\r", "'", True),
]


def integers(bits: int) -> st.SearchStrategy[int | None]:
    return st.none() | st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


PLAIN_ROWS = st.tuples(
    integers(16),
    integers(32),
    integers(64),
    st.none() | st.floats(),
    st.none() | st.text(),
    st.none() | st.text(),
    st.none() | st.booleans(),
)


@given(st.lists(PLAIN_ROWS, max_size=4), st.integers(0, 3))
def test_a_staged_chunk_has_the_lines_of_its_rows(rows: list[tuple[Any, ...]], texts: int) -> None:
    mixed: list[CopyRow] = [*lines_of(rows[:texts]), *rows[texts:]]

    chunk = chunk_of(mixed)

    assert TABLE.has(rows)
    assert is_plain(chunk) is (texts == 0 or not rows)
    assert payload_of(chunk) == copy_payload(lines_of(rows))


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("s", 2**15),
        ("i", -(2**31) - 1),
        ("b", 2**63),
        ("i", True),
        ("i", "1"),
        ("f", 1),
        ("t", 1),
        ("o", 1),
        ("v", b""),
    ],
)
def test_other_values_are_not_plain(column: str, value: object) -> None:
    row = [None] * len(COLUMNS)

    changed = tuple(value if name == column else None for name in COLUMNS)

    assert TABLE.has([tuple(row)])
    assert not TABLE.has([tuple(row), changed])


def test_columns_of_other_types_have_no_plain_rows() -> None:
    assert not PlainTable(["integer", "numeric"]).has([(1, 1)])


@pytest.mark.asyncio
async def test_plain_rows_are_the_same_committed_recovered_and_written_without_checkpoints(
    database: Database,
) -> None:
    columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    await database.execute(
        *(f"CREATE TABLE {table} (id integer PRIMARY KEY, {columns})" for table in "abcde"),
    )
    rows = [(number, *row) for number, row in enumerate(ROWS)]

    def sink(table: str) -> PostgresSink[Any]:
        return PostgresSink[Any](database.address, table, row=lambda row: row)

    writer = await begun(sink("a"))
    await writer.commit(await prepared(writer, 1, *rows))
    await writer.close()
    lost = await begun(sink("b"))
    committable = await prepared(lost, 1, *rows)
    await lost.close()
    await sink("b").recover("out", [committable])
    upsert: PostgresUpsert[Any] = PostgresUpsert(
        database.address, "c", key="id", row=lambda row: row, exactly_once=True
    )
    writer = await begun(upsert)
    await writer.commit(await prepared(writer, 1, *rows))
    await writer.close()
    await written(sink("d"), *rows)
    await written(PostgresUpsert[Any](database.address, "e", key="id", row=lambda row: row), *rows)

    for table in "abcde":
        found = await database.fetch(f"SELECT * FROM {table} ORDER BY id")
        assert list(map(repr, found)) == list(map(repr, rows))


@pytest.mark.asyncio
async def test_a_plain_row_that_the_table_refuses_is_named(database: Database) -> None:
    await database.execute("CREATE TABLE t (n integer CHECK (n > 0), name text)")

    def sink() -> PostgresSink[Any]:
        return PostgresSink[Any](database.address, "t", row=lambda row: row)

    for row, reason in (
        ((-1, "a"), r"cannot take row \{'n': '-1', 'name': 'a'\}: .*check constraint"),
        ((1, "a\0"), r"cannot take row \{'n': '1'.*invalid byte sequence"),
        ((1, "\ud800"), r"cannot take row \{'n': '1'.*surrogates not allowed"),
    ):
        writer = await begun(sink())
        with pytest.raises(SinkError, match=reason):
            await prepared(writer, 1, (5, "before"), row)
        await writer.close()


@pytest.mark.asyncio
async def test_a_chunk_with_rows_that_are_not_plain_is_text(database: Database) -> None:
    await database.execute("CREATE TABLE t (n integer, name text)")
    writer = await begun(PostgresSink[Any](database.address, "t", row=lambda row: row))

    await put(writer, (1, "a\t"), (2, None))
    await writer.commit(await prepared(writer, 1, ("3", "c"), [4, 4]))
    await writer.close()

    rows = await database.fetch("SELECT * FROM t ORDER BY n")
    assert rows == [(1, "a\t"), (2, None), (3, "c"), (4, "4")]


@pytest.mark.asyncio
async def test_a_role_that_may_only_insert_can_write_plain_rows(database: Database) -> None:
    await database.execute(
        "CREATE TABLE t (n integer)",
        "DROP ROLE IF EXISTS inserter",
        "CREATE ROLE inserter LOGIN",
        f"GRANT USAGE, CREATE ON SCHEMA {database.schema} TO inserter",
        "GRANT INSERT ON t TO inserter",
    )
    address = database.address.replace("postgres@", "inserter@")
    try:
        writer = await begun(PostgresSink[int](address, "t", row=lambda n: (n,)))
        await writer.commit(await prepared(writer, 1, 7))
        await writer.close()
        assert await database.fetch("SELECT n FROM t") == [(7,)]
    finally:
        await database.execute("DROP OWNED BY inserter", "DROP ROLE inserter")


@pytest.mark.asyncio
async def test_a_role_that_may_not_create_tables_writes_where_they_exist(
    database: Database,
) -> None:
    await database.execute(
        "CREATE TABLE t (n integer)",
        "DROP ROLE IF EXISTS writer",
        "CREATE ROLE writer LOGIN",
        f"GRANT USAGE ON SCHEMA {database.schema} TO writer",
        "GRANT INSERT ON t TO writer",
    )
    address = database.address.replace("postgres@", "writer@")
    try:
        with pytest.raises(SinkError, match="permission denied for schema"):
            await begun(PostgresSink[int](address, "t", row=lambda n: (n,)))
        await (await begun(PostgresSink[int](database.address, "t", row=lambda n: (n,)))).close()
        await database.execute(
            "GRANT SELECT, INSERT, UPDATE, DELETE ON _aflow_owners, _aflow_commits, _aflow_staged TO writer"
        )
        writer = await begun(PostgresSink[int](address, "t", row=lambda n: (n,)))
        await writer.commit(await prepared(writer, 1, 7))
        await writer.close()
        assert await database.fetch("SELECT n FROM t") == [(7,)]
    finally:
        await database.execute("DROP OWNED BY writer", "DROP ROLE writer")


def test_named_tuples_are_copied_as_tuples() -> None:
    class Pair(NamedTuple):
        i: int
        t: str

    columns = tuple(Column(name, COLUMNS[name], "", "", generated=False) for name in Pair._fields)
    copied = TableColumns("public", "t", columns).copied()

    rows = copied([Pair(1, "a"), Pair(2, "b")])

    assert rows == [(1, "a"), (2, "b")]
    assert {type(row) for row in rows} == {tuple}
    assert copied([]) == []
