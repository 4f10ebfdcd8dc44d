"""The contracts of sources and sinks, against a real server."""

from __future__ import annotations

from itertools import count

import pytest

from aflow.testing import check_sink
from aflow_connectors.postgres import PostgresSink, PostgresUpsert
from tests.connectors.postgres.conftest import Database

NUMBERS = range(8)


@pytest.mark.slow
@pytest.mark.asyncio
async def test_a_sink_that_appends_keeps_the_contract(database: Database) -> None:
    tables = count()
    await database.execute(
        *(f"CREATE TABLE t{n} (n integer NOT NULL, id serial)" for n in range(60))
    )

    def fresh() -> PostgresSink[int]:
        return PostgresSink(database.address, f"t{next(tables)}", columns=["n"], row=lambda n: (n,))

    async def visible(sink: PostgresSink[int]) -> list[int]:
        return [n for (n,) in await database.fetch(f"SELECT n FROM {sink.table} ORDER BY id")]

    await check_sink(fresh, visible, list(NUMBERS))


@pytest.mark.slow
@pytest.mark.asyncio
@pytest.mark.parametrize("exactly_once", [False, True])
async def test_a_sink_that_replaces_rows_keeps_the_contract(
    database: Database, exactly_once: bool
) -> None:
    tables = count()
    await database.execute(*(f"CREATE TABLE t{n} (n integer PRIMARY KEY)" for n in range(60)))

    def fresh() -> PostgresUpsert[int]:
        return PostgresUpsert(
            database.address,
            f"t{next(tables)}",
            key="n",
            row=lambda n: (n,),
            exactly_once=exactly_once,
        )

    async def visible(sink: PostgresUpsert[int]) -> list[int]:
        return [n for (n,) in await database.fetch(f"SELECT n FROM {sink.table} ORDER BY n")]

    await check_sink(fresh, visible, list(NUMBERS))
