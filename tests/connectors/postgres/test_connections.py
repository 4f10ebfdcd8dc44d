"""Lost connections are replaced, conflicts repeated, and wrong credentials fail at once."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from aflow.connect import SinkError
from aflow_connectors.postgres import PostgresSink, PostgresUpsert
from aflow_connectors.postgres.client import ConnectionLost, ServerSession
from aflow_connectors.postgres.staged_rows import PreparedEpoch, Staging
from aflow_connectors.postgres.table import Append
from aflow_connectors.postgres.writers import EpochWriter
from aflow_connectors.reconnect import Reconnect
from tests.connectors.postgres.conftest import Database
from tests.connectors.postgres.server import WITH_PASSWORD, Server
from tests.connectors.postgres.writing import QUICK, begun, opened, prepared, put, written
from tests.connectors.proxy import Proxy

pytestmark = pytest.mark.asyncio


def through(proxy: Proxy, database: Database, **options: Any) -> PostgresSink[int]:
    return PostgresSink(
        database.server.address_of(database.schema, via=proxy.address),
        "t",
        row=lambda n: (n,),
        reconnect=QUICK,
        **options,
    )


async def numbers(database: Database) -> list[int]:
    return [n for (n,) in await database.fetch("SELECT n FROM t ORDER BY n")]


@pytest.mark.slow
async def test_connections_that_are_cut_anywhere_lose_and_repeat_nothing(
    database: Database,
) -> None:
    await database.execute("CREATE TABLE t (n integer)")
    expected: list[int] = []

    async with Proxy(*database.server.host_and_port) as proxy:
        writer = await begun(through(proxy, database))
        for checkpoint in range(1, 40):
            proxy.cut_after = checkpoint * 37
            numbers_of_it = range(checkpoint * 10, checkpoint * 10 + 5)
            expected += numbers_of_it
            await writer.commit(await prepared(writer, checkpoint, *numbers_of_it))
        accepted = proxy.accepted
        await writer.close()

    assert accepted > 20
    assert await numbers(database) == expected


async def test_a_connection_that_is_cut_between_prepare_and_commit_costs_no_row(
    database: Database,
) -> None:
    await database.execute("CREATE TABLE t (n integer)")

    async with Proxy(*database.server.host_and_port) as proxy:
        writer = await begun(through(proxy, database))
        first = await prepared(writer, 1, 1, 2)
        proxy.cut()
        second = await prepared(writer, 2, 3)
        await writer.commit(first)
        proxy.cut()
        await writer.commit(second)
        await writer.close()

    assert await numbers(database) == [1, 2, 3]


async def test_a_frozen_connection_counts_as_lost_after_its_timeout(database: Database) -> None:
    await database.execute("CREATE TABLE t (n integer PRIMARY KEY)")

    async with Proxy(*database.server.host_and_port) as proxy:
        sink: PostgresUpsert[Any] = PostgresUpsert(
            database.server.address_of(database.schema, via=proxy.address),
            "t",
            key="n",
            reconnect=QUICK,
            timeout=timedelta(milliseconds=300),
        )
        writer = await opened(sink, checkpoints=False)
        proxy.freeze()
        async with asyncio.TaskGroup() as tasks:
            writing = tasks.create_task(put(writer, {"n": 1}))
            await asyncio.sleep(0.4)
            waiting = not writing.done()
            proxy.thaw()
        await writer.close()

    assert waiting
    assert await numbers(database) == [1]


async def test_a_transaction_that_is_frozen_at_its_commit_keeps_no_locks(
    database: Database,
) -> None:
    await database.execute("CREATE TABLE t (n integer PRIMARY KEY)")

    async with Proxy(*database.server.host_and_port) as proxy:
        writer = await begun(through(proxy, database, timeout=timedelta(milliseconds=300)))
        first = await prepared(writer, 1, 1, 2)
        proxy.freeze()
        async with asyncio.TaskGroup() as tasks:
            committing = tasks.create_task(writer.commit(first))
            await asyncio.sleep(0.4)
            waiting = not committing.done()
            proxy.thaw()
        await writer.commit(await prepared(writer, 2, 3))
        await writer.close()

    assert waiting
    assert await numbers(database) == [1, 2, 3]


async def test_the_locks_of_a_transaction_whose_connection_is_lost_are_released(
    database: Database,
) -> None:
    await database.execute("CREATE TABLE t (n integer PRIMARY KEY)")
    sink: PostgresSink[int] = PostgresSink(database.address, "t", row=lambda n: (n,))
    writer = await begun(sink)
    committable = await prepared(writer, 1, 1)
    assert isinstance(writer, EpochWriter)
    # The server does not learn that the writer has lost this connection.
    epoch = writer._sealed[1]  # pyright: ignore[reportPrivateUsage]
    lost, epoch.session = epoch.session, None

    await writer.commit(committable)
    await writer.close()

    assert lost is not None
    with pytest.raises(ConnectionLost):
        await lost.execute("SELECT 1")
    assert await numbers(database) == [1]


@pytest.mark.parametrize("column", ["n integer PRIMARY KEY", "n integer"], ids=["key", "no key"])
async def test_a_lost_commit_that_takes_effect_during_the_next_attempt_is_no_error(
    database: Database, monkeypatch: pytest.MonkeyPatch, column: str
) -> None:
    await database.execute(f"CREATE TABLE t ({column})")
    writer = await begun(PostgresSink[int](database.address, "t", row=lambda n: (n,)))
    committable = await prepared(writer, 1, 1)
    assert isinstance(writer, EpochWriter)
    epoch = writer._sealed[1]  # pyright: ignore[reportPrivateUsage]
    lost, epoch.session = epoch.session, None
    assert lost is not None
    load = Append.load

    async def end_late(*_: object) -> None:
        """Leave the lost transaction open, as if its COMMIT was on its way."""

    async def load_after_commit(self: Append, session: ServerSession, payload: bytes) -> int:
        monkeypatch.setattr(Append, "load", load)
        staging = writer._staging  # pyright: ignore[reportPrivateUsage]
        await staging.mark(lost, PreparedEpoch.of(committable, sink="out"))
        await lost.execute("COMMIT")
        return await self.load(session, payload)

    monkeypatch.setattr(Staging, "end_transaction_of", end_late)
    monkeypatch.setattr(Append, "load", load_after_commit)
    await writer.commit(committable)
    await writer.commit(await prepared(writer, 2, 2))
    await writer.flush()
    await writer.close()
    await lost.close()

    assert await numbers(database) == [1, 2]


async def test_a_writer_with_checkpoints_fails_if_the_server_stays_away(database: Database) -> None:
    await database.execute("CREATE TABLE t (n integer)")
    reconnect = Reconnect(delay=timedelta(milliseconds=1), give_up_after=timedelta(milliseconds=30))

    async with Proxy(*database.server.host_and_port) as proxy:
        address = database.server.address_of(database.schema, via=proxy.address)
        writer = await begun(PostgresSink(address, "t", reconnect=reconnect))
        proxy.refuse()
        with pytest.raises(SinkError, match=r"sink 'out' at 127.*: no connection for"):
            await prepared(writer, 1, {"n": 1})
        await writer.close()


async def test_the_job_fails_if_the_server_stays_away(database: Database) -> None:
    await database.execute("CREATE TABLE t (n integer)")
    reconnect = Reconnect(delay=timedelta(milliseconds=1), give_up_after=timedelta(milliseconds=30))

    async with Proxy(*database.server.host_and_port) as proxy:
        proxy.refuse()
        address = database.server.address_of(database.schema, via=proxy.address)
        with pytest.raises(SinkError, match=r"sink 'out' at 127.*: no connection for"):
            await written(PostgresSink(address, "t", reconnect=reconnect), {"n": 1})


async def test_wrong_credentials_and_databases_fail_at_once_without_the_password(
    database: Database,
) -> None:
    role, password = WITH_PASSWORD
    host, port = database.server.host_and_port
    exists = await database.fetch("SELECT 1 FROM pg_roles WHERE rolname = $1", role)
    if not exists:
        await database.execute(f"CREATE ROLE {role} LOGIN PASSWORD '{password}'")

    for address, reason in (
        (f"postgresql://{role}:0pen@{host}:{port}/postgres", "password authentication failed"),
        (database.server.address.replace("/postgres", "/nowhere"), '"nowhere" does not exist'),
    ):
        with pytest.raises(SinkError, match=reason) as told:
            await written(PostgresSink(address, "t"), {"n": 1})
        assert "0pen" not in str(told.value)


async def test_deadlocks_of_two_writers_are_repeated(database: Database) -> None:
    await database.execute("CREATE TABLE t (k integer PRIMARY KEY, n integer)")
    sink: PostgresUpsert[Any] = PostgresUpsert(
        database.address, "t", key="k", row=lambda row: row, reconnect=QUICK
    )
    await database.execute("ALTER SYSTEM SET deadlock_timeout = '10ms'", "SELECT pg_reload_conf()")
    await written(sink, *((k, 0) for k in range(200)))

    async def write(keys: list[int]) -> None:
        for n in range(15):
            await written(sink, *((k, n) for k in keys))

    try:
        async with asyncio.TaskGroup() as writers:
            writers.create_task(write(list(range(200))))
            writers.create_task(write(list(reversed(range(200)))))
    finally:
        await database.execute("ALTER SYSTEM RESET deadlock_timeout", "SELECT pg_reload_conf()")

    assert await database.fetch("SELECT DISTINCT n FROM t") == [(14,)]


@pytest.mark.slow
async def test_a_server_that_is_killed_and_restarted_has_each_row_once(
    database: Database, own_server: Server
) -> None:
    await database.execute("CREATE TABLE t (n integer)")
    sink: PostgresSink[int] = PostgresSink(
        database.address, "t", row=lambda n: (n,), reconnect=QUICK
    )
    writer = await begun(sink)
    committables = [await prepared(writer, 1, *range(5000))]
    own_server.kill()
    own_server.start()
    committables.append(await prepared(writer, 2, *range(5000, 5010)))
    await writer.commit(committables[0])
    await put(writer, *range(5010, 10_000))
    own_server.kill()
    own_server.start()
    await writer.commit(committables[1])
    await writer.commit(await prepared(writer, 3))
    await writer.close()

    assert await numbers(database) == list(range(10_000))
