"""PostgreSQL as an end of a pair."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from aflow_connectors.postgres import PostgresSink, PostgresUpsert
from tests.connectors.pairs.pair import QUICK, Pair, Result
from tests.connectors.postgres.server import Server, execute, fetch, run

_COLUMNS = "key integer NOT NULL, start bigint NOT NULL, sum bigint NOT NULL"


def connect(pair: Pair) -> tuple[Server, str]:
    """Let the job connect to PostgreSQL through a proxy, in a schema of its own; the run kills the server.

    Return the server and its address for the test.
    """
    server = pair.servers.postgres
    schema = f"pair_{uuid.uuid4().hex}"
    run(execute(server.address, f"CREATE SCHEMA {schema}"))
    via = pair.proxied(*server.host_and_port)
    pair.settings["postgres"] = server.address_of(schema, via=via)
    pair.killable.append(server)
    return server, server.address_of(schema)


def create_tables(address: str) -> None:
    """Create a table for ``appending`` and one for ``replacing``."""
    run(
        execute(
            address,
            f"CREATE TABLE appended ({_COLUMNS})",
            f"CREATE TABLE replaced ({_COLUMNS}, PRIMARY KEY (key, start))",
        )
    )


def results(address: str, table: str) -> list[Result]:
    """Return the rows of ``table``."""
    rows = run(fetch(address, f"SELECT key, start, sum FROM {table}"))
    return [(key, start, total) for key, start, total in rows]


def appending(settings: Mapping[str, str]) -> PostgresSink[dict[str, int]]:
    return PostgresSink(settings["postgres"], "appended", reconnect=QUICK)


def replacing(settings: Mapping[str, str]) -> PostgresUpsert[dict[str, int]]:
    return PostgresUpsert(settings["postgres"], "replaced", key=["key", "start"], reconnect=QUICK)
