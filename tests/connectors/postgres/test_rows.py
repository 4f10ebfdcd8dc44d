"""Records become rows, or errors that name sink, table and record."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from ipaddress import ip_address
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from aflow.connect import SinkError
from aflow.errors import FlowDefinitionError
from aflow_connectors.postgres import PostgresChanges, PostgresSink, PostgresTable, PostgresUpsert
from tests.connectors.postgres.conftest import Database
from tests.connectors.postgres.writing import begun, prepared, written

ADDRESS = "postgresql://user:open-sesame@localhost/db"


class Kind(Enum):
    DEBIT = "debit"


class Payment(NamedTuple):
    card: str
    amount: float


NOON = datetime(2026, 1, 2, 12, 30, 1, 5, UTC)

VALUES: list[tuple[str, object, object]] = [
    ("integer", 7, 7),
    ("bigint", 2**62, 2**62),
    ("numeric", 2**70, Decimal(2**70)),
    ("numeric(9, 2)", Decimal("1.25"), Decimal("1.25")),
    ("double precision", 0.1, 0.1),
    ("double precision", float("inf"), float("inf")),
    ("double precision", 3, 3.0),
    ("boolean", True, True),
    (
        "text",
        "tab\t, line\n\r, back\\slash, \\N, \\., é𝄞",
        "tab\t, line\n\r, back\\slash, \\N, \\., é𝄞",
    ),
    ("text", "", ""),
    ("text", "\\N", "\\N"),
    ("text", 5, "5"),
    ("text", Kind.DEBIT, "debit"),
    ("text", [1, "a"], '[1,"a"]'),
    ("varchar(3)", "abc", "abc"),
    ("char(3)", "abc", "abc"),
    ("bytea", b"\x00\xff\\", b"\x00\xff\\"),
    ("timestamptz", NOON, NOON),
    ("timestamp", NOON.replace(tzinfo=None), NOON.replace(tzinfo=None)),
    ("date", date(2026, 1, 2), date(2026, 1, 2)),
    ("date", "2026-01-02", date(2026, 1, 2)),
    ("time", time(1, 2, 3), time(1, 2, 3)),
    ("interval", timedelta(days=-1, microseconds=3), timedelta(days=-1, microseconds=3)),
    ("uuid", UUID(int=5), UUID(int=5)),
    ("jsonb", {"a": [1, None, "x\\n"]}, '{"a": [1, null, "x\\\\n"]}'),
    ("json", "text", '"text"'),
    ("jsonb", Payment("1", 2.5), '{"card": "1", "amount": 2.5}'),
    ("integer[]", [1, None, 3], [1, None, 3]),
    ("text[]", ['a"b', "c\\d", "{e},", "NULL"], ['a"b', "c\\d", "{e},", "NULL"]),
    ("integer[]", [[1, 2], [3, 4]], [[1, 2], [3, 4]]),
    ("text[]", [], []),
    ("inet", ip_address("10.0.0.1"), ip_address("10.0.0.1")),
    ("text", None, None),
]


@pytest.mark.asyncio
async def test_values_of_all_types_are_read_back_equal_from_each_sink(database: Database) -> None:
    names = [f"c{n}" for n in range(len(VALUES))]
    columns = ", ".join(f"{name} {kind}" for name, (kind, _, _) in zip(names, VALUES, strict=True))
    record = {name: value for name, (_, value, _) in zip(names, VALUES, strict=True)}
    for table in ("a", "b", "c"):
        await database.execute(f"CREATE TABLE {table} (k integer PRIMARY KEY, {columns})")

    await written(PostgresSink(database.address, "a"), {"k": 1, **record})
    await written(PostgresUpsert(database.address, "b", key="k"), {"k": 1, **record})
    writer = await begun(PostgresUpsert(database.address, "c", key="k", exactly_once=True))
    await writer.commit(await prepared(writer, 1, {"k": 1, **record}))
    await writer.close()

    for table in ("a", "b", "c"):
        ((_, *found),) = await database.fetch(f"SELECT * FROM {table}")
        expected = [value for _, _, value in VALUES]
        assert list(map(repr, found)) == list(map(repr, expected))


@pytest.mark.asyncio
async def test_rows_with_the_key_of_another_one_replace_it(database: Database) -> None:
    await database.execute("CREATE TABLE t (k numeric PRIMARY KEY, n integer)")
    sink: PostgresUpsert[Any] = PostgresUpsert(database.address, "t", key="k", row=lambda row: row)

    await written(sink, (1, 1), (2, 2), (1, 3))
    await written(sink, (2, 4), ("3", 5), ("3.0", 6))

    assert await database.fetch("SELECT k, n FROM t ORDER BY k") == [(1, 3), (2, 4), (3, 6)]


@pytest.mark.asyncio
async def test_generated_columns_and_columns_that_are_not_named_are_left_to_the_server(
    database: Database,
) -> None:
    await database.execute(
        "CREATE TABLE t (id bigint GENERATED ALWAYS AS IDENTITY, card text, amount float8 DEFAULT 7,"
        " twice float8 GENERATED ALWAYS AS (amount * 2) STORED)"
    )

    await written(PostgresSink(database.address, "t"), Payment("a", 1.5))
    await written(PostgresSink(database.address, "t", columns=["card"]), Payment("b", 1.5))

    rows = await database.fetch("SELECT * FROM t ORDER BY id")
    assert rows == [(1, "a", 1.5, 3.0), (2, "b", 7.0, 14.0)]


REFUSED: list[tuple[str, object, str]] = [
    ("integer", "x", 'invalid input syntax for type integer: "x"'),
    ("integer", 2**40, "out of range for type integer"),
    ("integer NOT NULL", None, 'null value in column "n"'),
    ("integer CHECK (n > 0)", -1, "violates check constraint"),
    ("varchar(2)", "abc", "value too long"),
    ("text", "a\0b", "invalid byte sequence"),
    ("text", "\ud800", "surrogates not allowed"),
    ("timestamptz", datetime(2026, 1, 1), "the column has a time zone, and datetime"),  # noqa: DTZ001
    ("text", object(), "object"),
]


@pytest.mark.asyncio
@pytest.mark.parametrize(("kind", "value", "reason"), REFUSED, ids=[r for _, _, r in REFUSED])
async def test_a_record_that_does_not_fit_is_an_error_that_shows_it(
    database: Database, kind: str, value: object, reason: str
) -> None:
    good = {"k": 0, "n": None if "NOT NULL" not in kind and "CHECK" not in kind else 1}
    await database.execute(f"CREATE TABLE t (k integer PRIMARY KEY, n {kind})")
    records = [good, {"k": 1, "n": value}, {**good, "k": 2}]

    for sink in (
        PostgresSink[Any](database.address, "t"),
        PostgresUpsert[Any](database.address, "t", key="k"),
    ):
        with pytest.raises(
            SinkError, match=r"sink 'out': .*table 't' cannot take rec.*'k': 1"
        ) as told:
            await written(sink, *records)
        assert reason in str(told.value)
    writer = await begun(PostgresSink(database.address, "t"))
    with pytest.raises(SinkError, match=r"cannot take (row|record) \{'k': '?1'?, "):
        await prepared(writer, 1, *records)
    await writer.close()
    assert await database.fetch("SELECT * FROM t") == []


@pytest.mark.asyncio
async def test_a_record_without_a_field_or_with_another_one_is_refused(database: Database) -> None:
    await database.execute("CREATE TABLE t (card text, amount float8)")
    sink: PostgresSink[Any] = PostgresSink(database.address, "t")

    with pytest.raises(SinkError, match="it has no field 'amount'"):
        await written(sink, {"card": "a"})
    with pytest.raises(SinkError, match="the table has no column 'x'"):
        await written(sink, {"card": "a", "amount": 1, "x": 2})


@pytest.mark.asyncio
async def test_tables_columns_and_keys_that_do_not_exist_are_named(database: Database) -> None:
    await database.execute("CREATE TABLE t (n integer)")
    address = database.address

    with pytest.raises(SinkError, match="there is no table 'u' in the search path; make it"):
        await written(PostgresSink(address, "u"))
    with pytest.raises(SinkError, match=r"table 't' has no column 'm'; it has \['n'\]"):
        await written(PostgresSink(address, "t", columns=["m"]))
    with pytest.raises(SinkError, match="table 't' has no column 'k', named in key="):
        await written(PostgresUpsert(address, "t", key="k"))
    with pytest.raises(SinkError, match="no primary key: make a unique index over them"):
        await written(PostgresUpsert(address, "t", key="n"))


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"dsn": "host=localhost password=secret"}, "the address must be a URL like"),
        ({"dsn": 5}, "the address must be a URL like"),
        ({"table": ""}, "the table must be the name of one"),
        ({"columns": []}, "columns= must be different names"),
        ({"columns": "n"}, "columns= must be several str"),
        ({"row": 5}, "row= must be a function"),
        ({"client": 5}, "client= must be a mapping"),
        ({"timeout": 5}, "timeout= must be a positive timedelta"),
        ({"reconnect": 5}, "reconnect= must be a Reconnect"),
    ],
    ids=repr,
)
def test_invalid_arguments_are_refused_and_no_password_is_shown(
    arguments: dict[str, Any], reason: str
) -> None:
    given: dict[str, Any] = {"dsn": ADDRESS, "table": "t", **arguments}

    with pytest.raises(FlowDefinitionError, match=reason) as told:
        PostgresSink(**given)

    assert "secret" not in str(told.value)


def test_a_key_that_is_not_written_is_refused() -> None:
    with pytest.raises(FlowDefinitionError, match="key= must be columns that are written"):
        PostgresUpsert(ADDRESS, "t", key="k", columns=["n"])
    with pytest.raises(FlowDefinitionError, match="exactly_once= must be a bool"):
        PostgresUpsert(ADDRESS, "t", key="k", exactly_once="yes")  # type: ignore[arg-type]


def test_the_representation_of_a_server_has_no_password() -> None:
    server = PostgresSink[Any](ADDRESS, "t", client={"password": "open-sesame"}).server

    assert "sesame" not in repr(server)
    assert server.place == "localhost/db"


@pytest.mark.asyncio
async def test_batches_of_floats_keep_each_value_and_texts_of_floats_their_form(
    database: Database,
) -> None:
    floats = [0.1, -0.0, 1e16, 1.5e-7, 5e-324, 1.7976931348623157e308, 2.0**53 + 2]
    await database.execute("CREATE TABLE t (n integer, a float8, b text)")
    sink: PostgresSink[tuple[int, float, float]] = PostgresSink(
        database.address, "t", row=lambda row: row
    )

    for batch in (floats, [float("inf"), float("nan"), 1.0]):
        await database.execute("TRUNCATE t")
        await written(sink, *((n, one, one) for n, one in enumerate(batch)))

        found = await database.fetch("SELECT a, b FROM t ORDER BY n")
        assert [repr(a) for a, _ in found] == [repr(one) for one in batch]
        assert [b for _, b in found] == [repr(one) for one in batch]


@pytest.mark.parametrize(
    "password",
    ["0pen/sesame", "0pen?sesame", "0pen#sesame", "0pen?a=sesame", "0pen@/sesame", "0pen["],
)
@pytest.mark.parametrize("end", [PostgresSink, PostgresTable, PostgresChanges])
def test_a_password_that_is_not_percent_encoded_is_refused_and_not_shown(
    end: Any, password: str
) -> None:
    options = {
        PostgresTable: {"key": "n"},
        PostgresChanges: {"slot": "s"},
    }.get(end, {})

    with pytest.raises(FlowDefinitionError, match=r"the address (has '@' after|must be)") as told:
        end(f"postgresql://me:{password}@host:5432/db", "t", **options)

    assert "0pen" not in str(told.value)
    assert "sesame" not in str(told.value)


@pytest.mark.parametrize(
    ("address", "place"),
    [
        ("postgresql://me:p@ss@host:5432/db", "host:5432/db"),
        ("postgresql://me:a%2Fb%23c@host/db?user=me@corp&options=-c a=b@c", "host/db"),
        ("postgresql:///db?host=/run/postgresql&user=me@corp", "the local server/db"),
    ],
    ids=["at", "encoded", "query"],
)
def test_other_addresses_are_accepted(address: str, place: str) -> None:
    assert PostgresSink[Any](address, "t").server.place == place
