"""Fixtures of a PostgreSQL server: one for each test process, and a schema for each test."""

from __future__ import annotations

import os
from collections.abc import Generator
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

import pytest

from tests.conftest import IN_CI
from tests.connectors.postgres.server import ADDRESS, Server, execute, fetch, programs, run, running

_NUMBERS: Final = count()


@dataclass(frozen=True)
class Database:
    """A schema of its own in the server."""

    server: Server
    schema: str
    address: str

    async def execute(self, *statements: str) -> None:
        await execute(self.address, *statements)

    async def fetch(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        return await fetch(self.address, sql, *values)


@pytest.fixture(scope="session")
def postgres_server() -> Generator[Server]:
    """A server of this test process, or the one that ``AFLOW_TEST_POSTGRES`` names."""
    named = os.environ.get(ADDRESS)
    if named:
        yield Server(named)
        return
    found = programs()
    if found is None:
        reason = (
            f"no PostgreSQL server is installed: scripts/have-postgres, or {ADDRESS}=postgresql://…"
        )
        if IN_CI:
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    with running(found) as server:
        yield server


@pytest.fixture
def database(postgres_server: Server) -> Generator[Database]:
    """An empty schema, which is the search path of ``address``."""
    schema = f"aflow_test_{os.getpid()}_{next(_NUMBERS)}"
    run(execute(postgres_server.address, f"CREATE SCHEMA {schema}"))
    existing = run(_names(postgres_server.address))
    try:
        yield Database(postgres_server, schema, postgres_server.address_of(schema))
    finally:
        run(_removed(postgres_server.address, schema, existing))


@pytest.fixture
def own_server(postgres_server: Server) -> Server:
    """The server, which the test may kill."""
    if postgres_server.process is None:
        pytest.skip(f"{ADDRESS} names a server, which this test would kill")
    return postgres_server


async def _names(address: str) -> list[tuple[str, str]]:
    """Slots and publications, each as the statement that removes it."""
    slots = await fetch(
        address,
        "SELECT slot_name, format('SELECT pg_drop_replication_slot(%L)', slot_name) FROM pg_replication_slots",
    )
    publications = await fetch(
        address, "SELECT pubname, format('DROP PUBLICATION %I', pubname) FROM pg_publication"
    )
    return [(str(name), str(removal)) for name, removal in slots + publications]


async def _removed(address: str, schema: str, existing: list[tuple[str, str]]) -> None:
    """Remove the schema, and the slots and publications that are not among the existing ones."""
    await execute(address, f"DROP SCHEMA {schema} CASCADE")
    new = [removal for name, removal in await _names(address) if (name, removal) not in existing]
    await execute(address, *new)
