"""Streams of changes survive lost connections, rests of the job, and crashes of the server."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from aflow.connect import Chunk, Reader, SourceError
from aflow_connectors.postgres import Change, PostgresChanges
from aflow_connectors.postgres.changes import reader as reader_module
from aflow_connectors.postgres.changes.position import decoded
from aflow_connectors.reconnect import Reconnect
from tests.connectors.postgres.conftest import Database
from tests.connectors.postgres.reading import changes, opened, snapshot_of
from tests.connectors.postgres.server import Server
from tests.connectors.postgres.writing import QUICK
from tests.connectors.proxy import Proxy

pytestmark = pytest.mark.asyncio

TABLE = "CREATE TABLE t (id integer PRIMARY KEY, item text)"


def through(proxy: Proxy, database: Database, **options: Any) -> PostgresChanges[Any]:
    address = database.server.address_of(database.schema, via=proxy.address)
    given: dict[str, Any] = {"reconnect": QUICK, **options}
    return PostgresChanges(address, "t", slot=database.schema, **given)


def with_settings(database: Database, settings: str) -> dict[str, str]:
    return {"options": f"-c search_path={database.schema} {settings}"}


async def inserted(database: Database, first: int, last: int) -> None:
    await database.execute(f"INSERT INTO t SELECT n, 'x' FROM generate_series({first}, {last}) n")


async def test_a_stream_that_is_cut_continues_after_its_last_change(database: Database) -> None:
    await database.execute(TABLE)

    async with Proxy(*database.server.host_and_port) as proxy:
        reader = await opened(through(proxy, database, snapshot=False))
        try:
            await reader.read(1)
            found: list[Change[Any]] = []
            for number in range(5):
                await inserted(database, 10 * number, 10 * number + 9)
                # The cut is in the middle of a transaction.
                chunk = await reader.read(4)
                assert chunk is not None
                found += chunk.values
                proxy.cut()
                found += await changes(reader, 10 - len(chunk.values))
        finally:
            await reader.close()

    assert [one.key for one in found] == [(str(n),) for n in range(50)]
    assert proxy.accepted > 3


async def test_a_snapshot_that_is_cut_continues_with_another_one(database: Database) -> None:
    await database.execute(TABLE)
    await inserted(database, 1, 6)

    async with Proxy(*database.server.host_and_port) as proxy:
        reader = await opened(through(proxy, database, page=1))
        try:
            rows = await changes(reader, 3)
            proxy.cut()
            await database.execute(
                "UPDATE t SET item = 'y' WHERE id IN (1, 5)",
                "UPDATE t SET id = 20 WHERE id = 2",
                "UPDATE t SET id = 0 WHERE id = 6",
                "DELETE FROM t WHERE id = 4",
                "INSERT INTO t VALUES (-1), (21)",
            )
            later = await snapshot_of(reader)
        finally:
            await reader.close()

    assert [one.key for one in rows] == [("1",), ("2",), ("3",)]
    assert [(one.kind, one.key, one.transaction is None) for one in later] == [
        ("update", ("1",), False),
        ("delete", ("2",), False),
        ("insert", ("0",), False),
        ("insert", ("-1",), False),
        ("insert", ("5",), True),
        ("insert", ("20",), True),
        ("insert", ("21",), True),
    ]


async def test_a_frozen_stream_counts_as_lost(database: Database) -> None:
    await database.execute(TABLE)

    async with Proxy(*database.server.host_and_port) as proxy:
        reader = await opened(
            through(
                proxy,
                database,
                snapshot=False,
                timeout=timedelta(milliseconds=400),
                client=with_settings(database, "-c wal_sender_timeout=300ms"),
            )
        )
        try:
            await reader.read(1)
            proxy.freeze()
            await inserted(database, 1, 3)
            async with asyncio.TaskGroup() as group:
                reading = group.create_task(changes(reader, 3))
                await asyncio.sleep(0.8)
                assert not reading.done()
                proxy.thaw()
        finally:
            await reader.close()

    assert [one.key for one in reading.result()] == [("1",), ("2",), ("3",)]
    assert proxy.accepted > 1


@pytest.mark.slow
async def test_a_stream_that_is_not_read_keeps_its_connection(database: Database) -> None:
    await database.execute(TABLE)
    settings = with_settings(database, "-c wal_sender_timeout=1500ms")

    async with Proxy(*database.server.host_and_port) as proxy:
        reader = await opened(through(proxy, database, snapshot=False, client=settings))
        try:
            await reader.read(1)
            # More than is read ahead.
            await database.execute(
                "INSERT INTO t SELECT n, repeat('x', 1000) FROM generate_series(1, 10000) n"
            )
            chunk = await reader.read(1)
            assert chunk is not None
            await asyncio.sleep(2)
            rest = await changes(reader, 10_000 - len(chunk.values))
        finally:
            await reader.close()

    assert [int(one.key[0]) for one in [*chunk.values, *rest]] == list(range(1, 10_001))
    assert proxy.accepted == 1


async def test_an_idle_stream_advances_over_the_changes_of_other_tables(
    database: Database,
) -> None:
    await database.execute(TABLE, "CREATE TABLE other (id integer)")
    source: PostgresChanges[Any] = PostgresChanges(
        database.address,
        "t",
        slot=database.schema,
        snapshot=False,
        idle_after=timedelta(milliseconds=200),
    )
    reader = await opened(source)
    try:
        start = await reader.read(1)
        await database.execute("INSERT INTO other SELECT generate_series(1, 1000)")
        ((end,),) = await database.fetch("SELECT (pg_current_wal_lsn() - '0/0')::bigint")
        found = await _until(reader, int(end))
    finally:
        await reader.close()

    assert start is not None
    assert all(not chunk.values for chunk in found)
    assert any(chunk.idle for chunk in found)


async def _until(reader: Reader[Change[Any]], end: int) -> list[Chunk[Change[Any]]]:
    found: list[Chunk[Change[Any]]] = []
    async with asyncio.timeout(300):
        while True:
            chunk = await reader.read(10)
            assert chunk is not None
            found.append(chunk)
            if decoded(chunk.position, "").lsn >= end and any(one.idle for one in found):
                return found


async def test_the_reader_fails_if_the_server_stays_away(database: Database) -> None:
    await database.execute(TABLE)
    reconnect = Reconnect(delay=timedelta(milliseconds=1), give_up_after=timedelta(milliseconds=30))

    async with Proxy(*database.server.host_and_port) as proxy:
        reader = await opened(through(proxy, database, snapshot=False, reconnect=reconnect))
        try:
            await reader.read(1)
            proxy.refuse()
            with pytest.raises(SourceError, match=r"slot '.*: no connection for"):
                await changes(reader, 1)
        finally:
            await reader.close()


@pytest.mark.slow
async def test_a_server_that_is_killed_and_restarted_sends_each_change_once(
    database: Database, own_server: Server
) -> None:
    await database.execute(TABLE)
    await inserted(database, 1, 5)
    reader = await opened(
        PostgresChanges(database.address, "t", slot=database.schema, reconnect=QUICK, page=2)
    )
    try:
        found = await changes(reader, 3)  # in the middle of the snapshot
        own_server.kill()
        own_server.start()
        await inserted(database, 6, 7)
        found += await changes(reader, 4)
        await inserted(database, 8, 20)
        found += (await reader.read(5) or Chunk([], None)).values
        own_server.kill()
        own_server.start()
        await inserted(database, 21, 22)
        found += await changes(reader, 22 - len(found))
    finally:
        await reader.close()

    assert [one.key for one in found] == [(str(n),) for n in range(1, 23)]


async def test_a_stream_is_not_idle_while_received_messages_are_skipped(
    database: Database,
) -> None:
    publication = f"{database.schema}_both"
    await database.execute(
        TABLE,
        "CREATE TABLE other (id integer)",
        f"CREATE PUBLICATION {publication} FOR TABLE t, other",
    )
    source: PostgresChanges[Any] = PostgresChanges(
        database.address,
        "t",
        slot=database.schema,
        publication=publication,
        snapshot=False,
        idle_after=timedelta(microseconds=1),
    )
    reader = await opened(source)
    found: list[Chunk[Change[Any]]] = []
    try:
        await reader.read(1)
        await database.execute(
            "DO $$ BEGIN INSERT INTO t VALUES (1, 'x'); INSERT INTO other SELECT generate_series(1, 5000); "
            "INSERT INTO t VALUES (2, 'x'); END $$"
        )
        async with asyncio.timeout(20):
            while sum(len(chunk.values) for chunk in found) < 2:
                chunk = await reader.read(1)
                assert chunk is not None
                if chunk.values or found:
                    found.append(chunk)
    finally:
        await reader.close()

    assert [[one.key for one in chunk.values] for chunk in found if not chunk.idle] == [
        [("1",)],
        [("2",)],
    ]
    assert not any(chunk.idle for chunk in found)


async def test_a_stream_is_not_idle_at_once_after_a_lost_connection(database: Database) -> None:
    await database.execute(TABLE)
    idle_after = timedelta(milliseconds=300)
    now = asyncio.get_running_loop().time

    async with Proxy(*database.server.host_and_port) as proxy:
        reader = await opened(through(proxy, database, snapshot=False, idle_after=idle_after))
        try:
            await reader.read(1)
            await inserted(database, 1, 1)
            await changes(reader, 1)
            await asyncio.sleep(idle_after.total_seconds())
            proxy.cut()
            await inserted(database, 2, 2)
            start = now()
            chunk = await reader.read(1)
            took = now() - start
        finally:
            await reader.close()

    assert chunk is not None
    assert not chunk.idle or took >= idle_after.total_seconds()


async def test_lost_connections_do_not_keep_a_silent_stream_active(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_module, "_CONNECT_GRACE", 0.0)
    await database.execute(TABLE)
    idle_after = timedelta(hours=1)

    async with Proxy(*database.server.host_and_port) as proxy:
        source = through(proxy, database, snapshot=False, idle_after=idle_after)
        reader: Any = await opened(source)
        try:
            await reader.read(1)
            proxy.cut()
            while not reader._stream.has_ended:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            reader._changed_at -= 2 * idle_after.total_seconds()
            async with asyncio.timeout(60):
                chunk = await reader.read(1)
                while not chunk.idle:  # a new position
                    chunk = await reader.read(1)
        finally:
            await reader.close()
        accepted = proxy.accepted

    assert accepted > 1
