"""PostgreSQL: rows of a table, read by keyset and written by COPY, by aflow and by a loop over asyncpg."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any, Final

import aflow as af
from aflow_connectors.postgres import PostgresSink, PostgresTable, PostgresUpsert
from bench.connectors.comparison import compare_directions, temporary_folder
from bench.connectors.latency import added_latency
from bench.connectors.postgres_changes import measure_changes, relay
from bench.harness import Measurement, run_async
from tests.connectors.postgres.server import execute, fetch, programs, running

# asyncpg has no types.
asyncpg: Any = import_module("asyncpg")

#: Rows of a page, and of an upsert of the loop.
BATCH: Final = 4096
#: Rows of a COPY, also of the sink.
COPIED: Final = 16_384
#: Times that the sink appends all rows: the start of a job takes as long as a COPY of 100,000 rows.
APPENDED: Final = 4

_UPSERT: Final = """
    INSERT INTO {} SELECT * FROM unnest($1::integer[], $2::text[], $3::float8[])
    ON CONFLICT (n) DO UPDATE SET name = excluded.name, share = excluded.share"""

Row = tuple[int, str, float]


def measure(records: int, rounds: int) -> Iterator[Measurement]:
    """Start a server, and measure the source and the sinks."""
    found = programs()
    if found is None:
        raise SystemExit("postgres: no server is installed: scripts/have-postgres")
    rows = [(n, f"a record of some bytes {n}", n / 7) for n in range(records)]
    with running(found) as server, temporary_folder() as folder:
        run_async(_create(server.address, rows))
        yield _source(server.address, records, rounds)
        yield _sink(server.address, folder, rows * APPENDED, rounds)
        yield _upsert(server.address, rows, rounds)
        yield measure_changes(server.address, max(1, records // 4), rounds)
        address = server.address
        yield added_latency("postgres_changes_to_postgres", lambda program: relay(address, program))


async def _create(address: str, rows: list[Row]) -> None:
    columns = "n integer {}, name text, share float8"
    keys = {"source": "PRIMARY KEY", "in_aflow": "", "by_hand": ""}
    keys |= {"upserted": "PRIMARY KEY", "upserted_by_hand": "PRIMARY KEY"}
    for name, key in keys.items():
        await execute(address, f"CREATE TABLE {name} ({columns.format(key)})")
    connection = await asyncpg.connect(address)
    await connection.execute("CREATE TABLE progress AS SELECT 0 AS copied")
    await connection.copy_records_to_table("source", records=rows)
    await connection.close()


def _source(address: str, records: int, rounds: int) -> Measurement:
    async def in_aflow() -> int:
        flow, out = af.Flow("read"), af.CollectSink[int]()
        rows = flow.source(PostgresTable(address, "source", key="n", page=BATCH), name="in")
        rows.map(lambda row: row["n"]).to(out)
        await flow.run()
        return sum(out.values)

    async def by_hand() -> int:
        connection = await asyncpg.connect(address)
        found: list[int] = []
        last = -1
        page = "SELECT * FROM source WHERE n > $1 ORDER BY n LIMIT $2"
        while rows := await connection.fetch(page, last, BATCH):
            found += [dict(row)["n"] for row in rows]
            last = found[-1]
        await connection.close()
        return sum(found)

    return compare_directions("postgres_source", records, rounds, in_aflow, by_hand)


def _sink(address: str, folder: Path, rows: list[Row], rounds: int) -> Measurement:
    numbers = count()

    async def in_aflow() -> int:
        await execute(address, "TRUNCATE in_aflow")
        flow = af.Flow("write")
        sink: PostgresSink[Row] = PostgresSink(address, "in_aflow", row=lambda row: row)
        flow.source(rows, name="in").to(sink, name="out")
        storage = folder / f"checkpoints-{next(numbers)}"
        every = timedelta(milliseconds=500)
        await flow.run(checkpointing=af.Checkpointing(storage=storage, every=every))
        return await _total(address, "in_aflow")

    async def by_hand() -> int:
        await execute(address, "TRUNCATE by_hand", "UPDATE progress SET copied = 0")
        connection = await asyncpg.connect(address)
        for start in range(0, len(rows), COPIED):
            # Exactly once, too: a restarted loop would continue from its progress.
            async with connection.transaction():
                part = rows[start : start + COPIED]
                await connection.copy_records_to_table("by_hand", records=part)
                await connection.execute("UPDATE progress SET copied = $1", start + len(part))
        await connection.close()
        return await _total(address, "by_hand")

    return compare_directions("postgres_sink", len(rows), rounds, in_aflow, by_hand)


def _upsert(address: str, rows: list[Row], rounds: int) -> Measurement:
    async def in_aflow() -> int:
        await execute(address, "TRUNCATE upserted")
        flow = af.Flow("write")
        sink: PostgresUpsert[Row] = PostgresUpsert(
            address, "upserted", key="n", row=lambda row: row
        )
        flow.source(rows, name="in").to(sink, name="out")
        await flow.run()
        return await _total(address, "upserted")

    async def by_hand() -> int:
        await execute(address, "TRUNCATE upserted_by_hand")
        connection = await asyncpg.connect(address)
        statement = _UPSERT.format("upserted_by_hand")
        for start in range(0, len(rows), BATCH):
            columns = map(list, zip(*rows[start : start + BATCH], strict=True))
            await connection.execute(statement, *columns)
        await connection.close()
        return await _total(address, "upserted_by_hand")

    return compare_directions("postgres_upsert", len(rows), rounds, in_aflow, by_hand)


async def _total(address: str, table: str) -> int:
    ((total,),) = await fetch(address, f"SELECT sum(n) FROM {table}")
    return int(total)
