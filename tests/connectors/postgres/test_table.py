"""The rows of a table are read once, in the order of the key, from any position."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pytest

from aflow.connect import Chunk, Reader, Source, SourceError, Split, Tag
from aflow.errors import FlowDefinitionError, RestoreError
from aflow.testing import check_source
from aflow_connectors.postgres import PostgresTable
from tests.connectors.postgres.conftest import Database
from tests.connectors.postgres.writing import QUICK
from tests.connectors.proxy import Proxy

pytestmark = pytest.mark.asyncio


@dataclass(frozen=True)
class Order:
    id: int
    item: str | None


class OrderTuple(NamedTuple):
    id: int
    item: str | None


ROWS = [Order(n * 10, None if n % 3 == 0 else f"item {n}") for n in range(12)]
ORDERS = (
    "CREATE TABLE orders (id integer PRIMARY KEY, item text)",
    "INSERT INTO orders SELECT n * 10, CASE n % 3 WHEN 0 THEN NULL ELSE 'item ' || n END"
    " FROM generate_series(0, 11) n",
)


async def chunks(reader: Reader[Any], limit: int = 100) -> list[Chunk[Any]]:
    found: list[Chunk[Any]] = []
    try:
        while (chunk := await reader.read(limit)) is not None:
            found.append(chunk)
    finally:
        await reader.close()
    return found


async def values(source: Source[Any]) -> list[Any]:
    """All records, split after split."""
    return [
        value
        for split in await source.splits()
        for chunk in await chunks(await source.reader(split, None))
        for value in chunk.values
    ]


@pytest.mark.slow
@pytest.mark.parametrize("bounds", [[], [40, "75"]], ids=["one split", "three splits"])
async def test_a_table_keeps_the_contract_of_sources(
    database: Database, bounds: list[object]
) -> None:
    await database.execute(*ORDERS)

    def source() -> PostgresTable[Order]:
        return PostgresTable(database.address, "orders", key="id", of=Order, bounds=bounds, page=5)

    await check_source(source, expected=ROWS)


async def test_rows_are_dicts_or_of_the_declared_class(database: Database) -> None:
    await database.execute(*ORDERS)
    dsn = database.address

    assert (await values(PostgresTable(dsn, "orders", key="id")))[1] == {"id": 10, "item": "item 1"}
    tuples = await values(PostgresTable(dsn, "orders", key="id", of=OrderTuple))
    assert tuples[1] == OrderTuple(10, "item 1")


async def test_columns_and_a_condition_choose_what_is_read(database: Database) -> None:
    await database.execute(*ORDERS)
    source = PostgresTable(
        database.address, "orders", key="id", columns=["item"], where="id > 80 OR item = 'item 1'"
    )

    assert await values(source) == [
        {"item": f"item {n}"} if n % 3 else {"item": None} for n in (1, 9, 10, 11)
    ]


async def test_keys_of_several_columns_and_exact_types_are_continued(database: Database) -> None:
    await database.execute(
        "CREATE TABLE t (a timestamptz, b float8, c text, d jsonb, PRIMARY KEY (c, a, b))",
        "INSERT INTO t SELECT '2026-01-02T03:04:05.000007Z'::timestamptz + n % 2 * interval '1us',"
        " 0.1 + n * 1e-17, 'é\\' || n / 4, '{\"n\": [1]}' FROM generate_series(1, 40, 5) n"
        " ON CONFLICT DO NOTHING",
    )
    source = PostgresTable(database.address, "t", key=["c", "a", "b"], page=1)
    (split,) = await source.splits()

    whole = await chunks(await source.reader(split, None), 1)

    rows = await database.fetch("SELECT a, b, c FROM t ORDER BY c, a, b")
    assert [(r["a"], r["b"], r["c"]) for c in whole for r in c.values] == rows
    assert whole[0].values[0]["d"] == {"n": [1]}
    assert whole[0].values[0]["a"].tzinfo is not None
    assert datetime(2026, 1, 2, tzinfo=UTC) < whole[0].values[0]["a"]
    for number, chunk in enumerate(whole):
        rest = await chunks(await source.reader(split, chunk.position))
        assert [v for c in rest for v in c.values] == [
            v for c in whole[number + 1 :] for v in c.values
        ]


async def test_a_row_of_another_type_is_an_error_with_its_key_or_a_dead_letter(
    database: Database,
) -> None:
    class Strict(NamedTuple):
        id: int
        item: str

    await database.execute(*ORDERS)
    source = PostgresTable(database.address, "orders", key="id", of=Strict)
    with pytest.raises(SourceError, match=r"table orders, key 0: Expected `str`, got `null`"):
        await values(source)

    tolerant = PostgresTable(
        database.address, "orders", key="id", of=Strict, dead_letters=Tag("bad")
    )
    (split,) = await tolerant.splits()
    (chunk,) = await chunks(await tolerant.reader(split, None))
    assert len(chunk.values) == 8
    assert [one.place.rpartition(", ")[2] for one in chunk.rejected] == [
        f"key {n}" for n in (0, 30, 60, 90)
    ]
    assert chunk.rejected[0].raw == b"(0, None)"


async def test_a_key_without_unique_index_would_lose_rows_and_is_refused(
    database: Database,
) -> None:
    await database.execute(
        "CREATE TABLE t (a integer NOT NULL, b integer UNIQUE, c integer NOT NULL)",
        "CREATE UNIQUE INDEX ON t (c) WHERE a > 0",
    )

    for key in ("a", "b", "c"):
        with pytest.raises(
            SourceError, match="needs a unique index over columns that are NOT NULL"
        ):
            await values(PostgresTable(database.address, "t", key=key))
    with pytest.raises(SourceError, match="there is no column 'x', named in key="):
        await values(PostgresTable(database.address, "t", key="x"))
    with pytest.raises(SourceError, match="there is no table 'u'"):
        await values(PostgresTable(database.address, "u", key="x"))


async def test_errors_of_conditions_and_positions_say_what_failed(database: Database) -> None:
    await database.execute(*ORDERS)

    with pytest.raises(SourceError, match=r"cannot read the next rows: .*nothing"):
        await values(PostgresTable(database.address, "orders", key="id", where="nothing > 1"))
    with pytest.raises(RestoreError, match="is no position for key="):
        await PostgresTable(database.address, "orders", key="id").reader(
            Split("orders: .."), ["1", "2"]
        )


async def test_connections_that_are_cut_lose_and_repeat_no_row(database: Database) -> None:
    await database.execute(*ORDERS)

    async with Proxy(*database.server.host_and_port) as proxy:
        source = PostgresTable(
            database.server.address_of(database.schema, via=proxy.address),
            "orders",
            key="id",
            of=Order,
            page=2,
            reconnect=QUICK,
        )
        (split,) = await source.splits()
        reader = await source.reader(split, None)
        found: list[Order] = []
        while (chunk := await reader.read(2)) is not None:
            found += chunk.values
            proxy.cut()
        await reader.close()

    assert found == ROWS
    assert proxy.accepted > 5


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"key": []}, "key= must be names of columns"),
        ({"where": 5}, "where= must be a condition in SQL"),
        ({"page": 0}, "page= must be a number of rows"),
        ({"bounds": 5}, "bounds= must be a list of keys"),
        ({"bounds": [(1, 2)]}, "bounds= must be keys of 1 values"),
        ({"bounds": [1, "1"]}, "bounds= must be different keys"),
        ({"of": 5}, "is no class that rows can be converted to"),
    ],
    ids=repr,
)
async def test_invalid_arguments_are_refused(arguments: dict[str, Any], reason: str) -> None:
    given: dict[str, Any] = {
        "dsn": "postgresql://localhost/db",
        "table": "t",
        "key": "k",
        **arguments,
    }

    with pytest.raises(FlowDefinitionError, match=reason):
        PostgresTable(**given)
