"""PostgreSQL: changes of a table, read from a logical slot by aflow and by a loop over libpq with psycopg."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from itertools import count
from struct import Struct
from typing import Any, Final

import aflow as af
from aflow_connectors.postgres import PostgresChanges, PostgresUpsert
from bench.connectors.comparison import compare_directions
from bench.connectors.latency import Ends, Program, flow_between, input_and_output, loop_beside
from bench.harness import Measurement, run_async
from tests.connectors.postgres.server import execute, fetch

# asyncpg has no types, and those of psycopg are incomplete.
asyncpg: Any = import_module("asyncpg")
psycopg: Any = import_module("psycopg")

#: Rows of a transaction.
TRANSACTION: Final = 100

#: Of 'w' messages: kind, start, end of the log, time.
_HEADER: Final = 25
_XLOG_DATA, _KEEPALIVE = b"wk"
_INSERT, _BEGIN = b"IB"
_TEXT: Final = ord("t")
_LENGTH: Final = Struct(">I")
_LSN: Final = Struct(">Q")
_STATUS: Final = Struct(">cQQQqB")


def measure_changes(address: str, records: int, rounds: int) -> Measurement:
    """Insert rows, and read the changes from copies of a slot that was made before."""
    end = run_async(_inserted(address, records))
    numbers = count()

    async def in_aflow() -> int:
        flow, out = af.Flow("read"), af.CollectSink[int]()
        async with _copied_slot(address, f"in_aflow_{next(numbers)}") as slot:
            changes = PostgresChanges(
                address,
                "changed",
                slot=slot,
                publication="changes_of_bench",
                snapshot=False,
                until="now",
            )
            rows = flow.source(changes, name="in")
            rows.map(lambda change: 0 if change.after is None else change.after["n"]).to(out)
            await flow.run()
        return sum(out.values)

    async def by_hand() -> int:
        found: list[int] = []
        async with _copied_slot(address, f"by_hand_{next(numbers)}") as slot:
            async for rows in inserted_rows(address, slot, "changes_of_bench", end):
                found += [row["n"] for row in rows]
        return sum(found)

    return compare_directions("postgres_changes", records, rounds, in_aflow, by_hand)


async def _inserted(address: str, records: int) -> int:
    """Create the table and the slot, insert the rows, and return the end of the log."""
    for statement in (
        "CREATE TABLE changed (n integer PRIMARY KEY, name text, share float8)",
        "CREATE PUBLICATION changes_of_bench FOR TABLE changed",
        "SELECT pg_create_logical_replication_slot('before_changes', 'pgoutput')",
    ):
        await execute(address, statement)
    insert = (
        "INSERT INTO changed SELECT n, 'a record of some bytes ' || n, n / 7.0 "
        "FROM generate_series({}, {}) AS n"
    )
    connection = await asyncpg.connect(address)
    for start in range(0, records, TRANSACTION):
        await connection.execute(insert.format(start, min(start + TRANSACTION, records) - 1))
    await connection.close()
    ((end,),) = await fetch(address, "SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")
    return int(end)


@asynccontextmanager
async def _copied_slot(address: str, name: str) -> AsyncGenerator[str]:
    await execute(address, f"SELECT pg_copy_logical_replication_slot('before_changes', '{name}')")
    try:
        yield name
    finally:
        await execute(address, f"SELECT pg_drop_replication_slot('{name}')")


async def inserted_rows(
    address: str, slot: str, publication: str, end: int | None = None
) -> AsyncIterator[list[dict[str, Any]]]:
    """Yield rows of three columns that were inserted, as soon as they are received; until ``end`` of the log."""
    parameters = {"replication": "database", "autocommit": True}
    connection = await psycopg.AsyncConnection.connect(address, **parameters)
    pgconn, loop = connection.pgconn, asyncio.get_running_loop()
    readable = asyncio.Event()
    try:
        pgconn.exec_(
            f"START_REPLICATION SLOT {slot} LOGICAL 0/0 "
            f"(proto_version '1', publication_names '{publication}')".encode()
        )
        loop.add_reader(pgconn.socket, readable.set)
        while True:
            await readable.wait()
            readable.clear()
            pgconn.consume_input()
            rows, is_over = _received(pgconn, end)
            if rows:
                yield rows
            if is_over:
                break
        pgconn.put_copy_end()
        pgconn.flush()
    finally:
        loop.remove_reader(pgconn.socket)
        await connection.close()


def _received(pgconn: Any, end: int | None) -> tuple[list[dict[str, Any]], bool]:
    """Return the rows of the buffer of libpq, and True if ``end`` was reached."""
    rows: list[dict[str, Any]] = []
    while True:
        size, data = pgconn.get_copy_data(1)
        if size <= 0:
            return rows, size < 0
        if data[0] == _XLOG_DATA:
            kind = data[_HEADER]
            if kind == _INSERT:
                rows.append(_row(data))
            elif kind == _BEGIN and end is not None and _lsn(data, _HEADER + 1) >= end:
                return rows, True
        elif data[0] == _KEEPALIVE:
            written = _lsn(data, 1)
            if end is not None and written >= end:
                return rows, True
            if data[17]:
                pgconn.put_copy_data(_STATUS.pack(b"r", written, 0, 0, 0, 0))
                pgconn.flush()


def _lsn(data: memoryview, at: int) -> int:
    lsn: int = _LSN.unpack_from(data, at)[0]
    return lsn


def _row(data: memoryview) -> dict[str, Any]:
    """Return the row of an Insert message: int, text, float."""
    # Kind, oid of the table, mark of a new row, number of columns.
    at = _HEADER + 1 + 4 + 1 + 2
    texts: list[str | None] = []
    for _ in range(3):
        if data[at] == _TEXT:
            (length,) = _LENGTH.unpack_from(data, at + 1)
            at += 5
            texts.append(str(data[at : at + length], "utf-8"))
            at += length
        else:
            texts.append(None)
            at += 1
    n, name, share = texts
    return {
        "n": None if n is None else int(n),
        "name": name,
        "share": None if share is None else float(share),
    }


@asynccontextmanager
async def relay(address: str, program: Program) -> AsyncGenerator[Ends]:
    """Relay inserted rows of a table to another one, whose trigger notifies the receiver."""
    before, after = input_and_output(program)
    columns = "n integer PRIMARY KEY, name text, share float8"
    for statement in (
        f"CREATE TABLE {before} ({columns})",
        f"CREATE TABLE {after} ({columns})",
        f"CREATE PUBLICATION {before} FOR TABLE {before}",
        f"SELECT pg_create_logical_replication_slot('{before}', 'pgoutput')",
        f"CREATE FUNCTION notify_{after}() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN PERFORM pg_notify('{after}', NEW.n::text); RETURN NEW; END $$",
        f"CREATE TRIGGER notify AFTER INSERT ON {after} "
        f"FOR EACH ROW EXECUTE FUNCTION notify_{after}()",
    ):
        await execute(address, statement)
    sender, receiver = [await asyncpg.connect(address) for _ in range(2)]
    received = asyncio.Queue[str]()

    def on_notification(_connection: object, _pid: int, _channel: str, number: str) -> None:
        received.put_nowait(number)

    await receiver.add_listener(after, on_notification)

    async def numbers() -> AsyncGenerator[int]:
        while True:
            yield int(await received.get())

    async def by_hand() -> None:
        connection = await asyncpg.connect(address)
        upsert = (
            f"INSERT INTO {after} VALUES ($1, $2, $3) "
            f"ON CONFLICT (n) DO UPDATE SET name = excluded.name, share = excluded.share"
        )
        try:
            async for rows in inserted_rows(address, before, before):
                # One transaction for all that has arrived, as aflow: with one each, the loop may fall behind.
                await connection.executemany(upsert, [tuple(row.values()) for row in rows])
        finally:
            await connection.close()

    def send(number: int) -> Any:
        insert = f"INSERT INTO {before} VALUES ($1, 'a record of some bytes', 0.5)"
        return sender.execute(insert, number)

    source = PostgresChanges(address, before, slot=before, publication=before, snapshot=False)
    sink: PostgresUpsert[Any] = PostgresUpsert(
        address, after, key="n", row=lambda change: change.after
    )
    running = flow_between(source, sink) if program == "in_aflow" else loop_beside(by_hand())
    async with running:
        yield Ends(send, numbers())
    await sender.close()
    await receiver.close()
