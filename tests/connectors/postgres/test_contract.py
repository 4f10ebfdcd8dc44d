"""The contracts of sources and sinks, against a real server."""

from __future__ import annotations

from itertools import count

import pytest

from aflow.testing import check_sink
from aflow_connectors.postgres import PostgresSink, PostgresUpsert
from tests.connectors.postgres.conftest import Database
from tests.connectors.postgres.writing import QUICK
from tests.connectors.proxy import Proxy

NUMBERS = range(8)

#: A password that the server of the tests does not ask for.
SECRET = "s3cret"


@pytest.mark.slow
@pytest.mark.asyncio
async def test_a_sink_that_appends_keeps_the_contract(database: Database) -> None:
    tables = count()
    await database.execute(
        *(f"CREATE TABLE t{n} (n integer NOT NULL, id serial)" for n in range(60))
    )

    async def visible(sink: PostgresSink[int]) -> list[int]:
        return [n for (n,) in await database.fetch(f"SELECT n FROM {sink.table} ORDER BY id")]

    async with Proxy(*database.server.host_and_port) as proxy:
        address = database.server.address_of(database.schema, via=proxy.address)
        with_password = address.replace("@", f":{SECRET}@", 1)

        def fresh() -> PostgresSink[int]:
            return PostgresSink(
                with_password,
                f"t{next(tables)}",
                columns=["n"],
                row=lambda n: (n,),
                reconnect=QUICK,
            )

        await check_sink(fresh, visible, list(NUMBERS), disturb=proxy.cut, secrets=[SECRET])


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
