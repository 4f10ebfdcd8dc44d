"""Rows of a snapshot and changes of tables, as records."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from aflow.connect import Reader, SourceError, Tag
from aflow.errors import FlowDefinitionError
from aflow.testing import check_source
from aflow_connectors.postgres import Change, PostgresChanges
from tests.connectors.postgres.changing_table import compare
from tests.connectors.postgres.conftest import Database
from tests.connectors.postgres.reading import all_changes, changes, opened, snapshot_of, values

pytestmark = pytest.mark.asyncio


@dataclass(frozen=True)
class Order:
    id: int
    item: str | None


@dataclass(frozen=True)
class Thing:
    name: str
    wide: str = "?"


ORDERS = "CREATE TABLE orders (id integer PRIMARY KEY, item text)"


def source(database: Database, tables: Any = "orders", **options: Any) -> PostgresChanges[Any]:
    return PostgresChanges(database.address, tables, slot=database.schema, **options)


@asynccontextmanager
async def reading(source: PostgresChanges[Any]) -> AsyncGenerator[Reader[Change[Any]]]:
    reader = await opened(source)
    try:
        await reader.read(1)  # its start
        yield reader
    finally:
        await reader.close()


@pytest.mark.slow
async def test_a_source_of_changes_keeps_the_contract_of_sources(database: Database) -> None:
    await database.execute(ORDERS)
    await all_changes(source(database, until="now", snapshot=False))  # creates the slot
    await database.execute(
        "INSERT INTO orders VALUES (1, 'a'), (2, NULL)",
        "UPDATE orders SET id = 3 WHERE id = 2; DELETE FROM orders WHERE id = 1",
        "TRUNCATE orders",
    )

    found = values(await all_changes(source(database, until="now", snapshot=False, of=Order)))
    # It confirms changes, which are gone then.
    await check_source(lambda: source(database, until="now", snapshot=False, of=Order))

    assert [(one.kind, one.key) for one in found] == [
        ("insert", ("1",)),
        ("insert", ("2",)),
        ("update", ("2",)),
        ("delete", ("1",)),
        ("truncate", ()),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("full", [False, True])
async def test_a_replica_equals_the_table_after_each_transaction(
    database: Database, full: bool
) -> None:
    job = await compare(database.address, 150, seed=7, full=full)

    assert job.compared > 1
    assert job.restored > 1


async def test_rows_of_the_snapshot_are_inserts_before_the_changes(database: Database) -> None:
    await database.execute(ORDERS, "INSERT INTO orders VALUES (1, 'a'), (2, NULL)")

    async with reading(source(database, of=Order)) as reader:
        first = await changes(reader, 2)
        await database.execute("UPDATE orders SET item = 'b' WHERE id = 2", "DELETE FROM orders")
        later = await changes(reader, 3)

    assert [one.after for one in first] == [Order(1, "a"), Order(2, None)]
    assert [one.transaction for one in first] == [None, None]
    assert [(one.kind, one.key, one.after) for one in later] == [
        ("update", ("2",), Order(2, "b")),
        ("delete", ("1",), None),
        ("delete", ("2",), None),
    ]
    assert first[0].lsn <= later[0].lsn < later[1].lsn == later[2].lsn


async def test_the_event_time_is_the_time_of_the_commit(database: Database) -> None:
    await database.execute(ORDERS)

    async with reading(source(database, snapshot=False)) as reader:
        begin = datetime.now(UTC)
        await database.execute("INSERT INTO orders VALUES (1)")
        chunk = None
        while chunk is None or not chunk.values:
            chunk = await reader.read(10)

    assert chunk.timestamps is not None
    assert begin <= chunk.values[0].time <= datetime.now(UTC)
    assert chunk.values[0].time - datetime.fromtimestamp(
        chunk.timestamps[0] / 1000, UTC
    ) < timedelta(milliseconds=1)


async def test_a_full_replica_identity_gives_the_row_before_the_change(database: Database) -> None:
    await database.execute(ORDERS, "ALTER TABLE orders REPLICA IDENTITY FULL")

    async with reading(source(database, of=Order, snapshot=False)) as reader:
        await database.execute(
            "INSERT INTO orders VALUES (1, 'a')",
            "UPDATE orders SET id = 2",
            "DELETE FROM orders",
        )
        _, update, delete = await changes(reader, 3)

    assert (update.key, update.before, update.after) == (("1",), Order(1, "a"), Order(2, "a"))
    assert (delete.key, delete.before, delete.after) == (("2",), Order(2, "a"), None)


async def test_large_values_that_are_not_sent_are_named_or_refused(database: Database) -> None:
    class Strict(NamedTuple):
        name: str
        wide: str

    await database.execute(
        "CREATE TABLE things (name text PRIMARY KEY, wide text)",
        "ALTER TABLE things ALTER wide SET STORAGE EXTERNAL",
        "INSERT INTO things VALUES ('a', repeat('w', 5000))",
    )
    async with reading(source(database, "things", of=Thing, snapshot=False)) as reader:
        await database.execute("UPDATE things SET name = 'b'")
        (update,) = await changes(reader, 1)
        assert (update.after, update.unchanged) == (Thing("b", "?"), ("wide",))

    with pytest.raises(SourceError, match=r"column 'wide', so its value was not sent: .* FULL"):
        async with reading(source(database, "things", of=Strict, snapshot=False)) as reader:
            await changes(reader, 1)

    await database.execute("ALTER TABLE things REPLICA IDENTITY FULL")
    async with reading(source(database, "things", of=Strict)) as reader:
        await snapshot_of(reader)
        await database.execute("UPDATE things SET name = 'c'")
        (update,) = await changes(reader, 1)
    assert update.after == Strict("c", "w" * 5000)


async def test_values_of_the_snapshot_and_of_changes_are_the_same(database: Database) -> None:
    await database.execute(
        "CREATE DOMAIN positive AS integer CHECK (VALUE > 0)",
        "CREATE TYPE color AS ENUM ('red', 'green')",
        "CREATE TABLE t (id uuid PRIMARY KEY, a boolean, b bytea, c float8, d numeric, e jsonb, f date, g timestamptz,"
        " h timestamp, i interval, j positive, k color, l text[], m inet, n integer[], o time)",
        """INSERT INTO t VALUES ('00000000-0000-0000-0000-000000000001', true, '\\x00ff', 'NaN', 1.50, '{"a": [1]}',
        '2026-02-03', '2026-02-03 04:05:06.5+01', '2026-02-03 04:05:06', '1 day 2 hours', 7, 'green',
        '{a,"b,\\"c\\"",NULL}', '10.0.0.1', '[0:1][1:2]={{1,2},{3,NULL}}', '01:02:03')""",
    )

    async with reading(source(database, "t")) as reader:
        (row,) = await snapshot_of(reader)
        await database.execute("UPDATE t SET a = true")
        (update,) = await changes(reader, 1)

    assert row.after is not None
    assert update.after is not None
    assert str(row.after.pop("c")) == str(update.after.pop("c")) == "nan"
    assert row.after == update.after
    assert row.after == {
        "id": UUID(int=1),
        "a": True,
        "b": b"\x00\xff",
        "d": Decimal("1.50"),
        "e": {"a": [1]},
        "f": date(2026, 2, 3),
        "g": datetime(2026, 2, 3, 3, 5, 6, 500_000, UTC),
        "h": datetime(2026, 2, 3, 4, 5, 6),  # noqa: DTZ001  # the column has no time zone
        "i": "P1DT2H",
        "j": 7,
        "k": "green",
        "l": ["a", 'b,"c"', None],
        "m": "10.0.0.1",
        "n": [[1, 2], [3, None]],
        "o": datetime(2026, 1, 1, 1, 2, 3, tzinfo=UTC).time(),
    }


async def test_tables_have_classes_of_their_own_and_others_are_left_out(
    database: Database,
) -> None:
    await database.execute(
        ORDERS,
        "CREATE TABLE things (name text PRIMARY KEY, wide text)",
        "CREATE TABLE others (id integer PRIMARY KEY)",
        f"CREATE PUBLICATION p_{database.schema} FOR TABLE orders, things, others",
        "INSERT INTO orders VALUES (1)",
        "INSERT INTO things VALUES ('a')",
    )
    both: PostgresChanges[Any] = source(
        database,
        ["things", f"{database.schema}.orders"],
        of={"things": Thing, f"{database.schema}.orders": Order},
        publication=f"p_{database.schema}",
        dead_letters=Tag("bad"),
    )

    async with reading(both) as reader:
        (row,) = await snapshot_of(reader)
        await database.execute(
            "INSERT INTO others VALUES (1)",
            "INSERT INTO things VALUES ('b', 'w')",
            "TRUNCATE others, orders, things",
        )
        later = await changes(reader, 3)

    assert (row.table, row.after) == (f"{database.schema}.orders", Order(1, None))
    assert [(one.kind, one.table) for one in later] == [
        ("insert", "things"),
        ("truncate", f"{database.schema}.orders"),
        ("truncate", "things"),
    ]


async def test_columns_and_rows_that_a_publication_leaves_out_are_not_in_the_snapshot(
    database: Database,
) -> None:
    await database.execute(
        "CREATE TABLE t (id integer PRIMARY KEY, a text, b text, c text GENERATED ALWAYS AS ('x') STORED)",
        f"CREATE PUBLICATION p_{database.schema} FOR TABLE t (id, a) WHERE (id > 1)",
        "INSERT INTO t VALUES (1, 'a'), (2, 'a')",
    )

    async with reading(source(database, "t", publication=f"p_{database.schema}")) as reader:
        (row,) = await snapshot_of(reader)
        await database.execute("INSERT INTO t VALUES (0, 'a'), (3, 'a')")
        (insert,) = await changes(reader, 1)

    assert row.after == {"id": 2, "a": "a"}
    assert insert.after == {"id": 3, "a": "a"}


async def test_partitions_are_changes_of_their_table(database: Database) -> None:
    await database.execute(
        "CREATE TABLE t (id integer PRIMARY KEY) PARTITION BY RANGE (id)",
        "CREATE TABLE t1 PARTITION OF t FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE t2 PARTITION OF t FOR VALUES FROM (10) TO (20)",
        "INSERT INTO t VALUES (1), (11)",
    )

    async with reading(source(database, "t")) as reader:
        rows = await snapshot_of(reader)
        await database.execute("UPDATE t SET id = id + 1")
        updates = await changes(reader, 2)

    assert [(one.table, one.key) for one in rows + updates] == [
        ("t", ("1",)),
        ("t", ("11",)),
        ("t", ("1",)),
        ("t", ("11",)),
    ]


async def test_a_new_column_is_an_event_and_a_missing_one_an_error(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    await database.execute(ORDERS)

    with caplog.at_level(logging.WARNING, "aflow.connectors"):
        async with reading(source(database, of=Order, snapshot=False)) as reader:
            await database.execute(
                "INSERT INTO orders VALUES (1)",
                "ALTER TABLE orders ADD price integer",
                "INSERT INTO orders VALUES (2)",
            )
            assert [one.after for one in await changes(reader, 2)] == [
                Order(1, None),
                Order(2, None),
            ]
            await database.execute(
                "ALTER TABLE orders RENAME item TO article", "INSERT INTO orders VALUES (3)"
            )
            with pytest.raises(SourceError, match=r"has no column 'item' \(any more\).* of Order"):
                await changes(reader, 1)

    (event,) = [one for one in caplog.records if getattr(one, "event", "") == "schema_changed"]
    assert event.__dict__["added"] == ["price"]


async def test_a_row_of_another_type_is_an_error_or_a_dead_letter(database: Database) -> None:
    await database.execute(ORDERS, "INSERT INTO orders VALUES (1)")
    tolerant = source(database, of=Order, dead_letters=Tag("bad"))

    async with reading(tolerant) as reader:
        await snapshot_of(reader)
        await database.execute(
            "ALTER TABLE orders ALTER id TYPE text", "INSERT INTO orders VALUES ('x', 'y')"
        )
        chunk = None
        while chunk is None or not chunk.rejected:
            chunk = await reader.read(10)

    (bad,) = chunk.rejected
    assert "table orders, LSN " in bad.place
    assert bad.raw == b"x\ty"
    with pytest.raises(SourceError, match="Expected `int`, got `str`"):
        await all_changes(source(database, of=Order, until="now"))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"tables": []}, "the tables must be different names"),
        ({"tables": ["a", "a"]}, "the tables must be different names"),
        ({"slot": "Slot"}, "slot= must have lower-case letters"),
        ({"of": {"b": dict}}, "of= must have a class for each of the tables"),
        ({"of": 7}, "of=7 is no class"),
        ({"publication": ""}, "publication= must be a name"),
        ({"until": "then"}, "until= must be 'now'"),
        ({"page": 0}, "page= must be a number of rows"),
        ({"snapshot": 1}, "snapshot= must be True or False"),
        ({"idle_after": 5}, "idle_after= must be a positive timedelta"),
        ({"client": {"nonsense": 1}}, "client= is not as libpq reads it"),
        ({"client": [1]}, "client= must be a mapping"),
        ({"dsn": "host=x password=secret"}, "the address must be a URL"),
    ],
    ids=str,
)
async def test_wrong_arguments_are_refused(options: dict[str, Any], reason: str) -> None:
    given: dict[str, Any] = {"dsn": "postgresql://x/y", "tables": "a", "slot": "s", **options}
    dsn, tables = given.pop("dsn"), given.pop("tables")

    with pytest.raises(FlowDefinitionError, match=reason) as told:
        PostgresChanges(dsn, tables, **given)

    assert "secret" not in str(told.value)
