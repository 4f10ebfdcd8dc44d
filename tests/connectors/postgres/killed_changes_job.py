"""A job that reads changes and is killed: ``python -m tests.connectors.postgres.killed_changes_job``.

With ADDRESS FOLDER SLOT it runs the job: each change of table ``items`` passes an async call, is counted by its key,
and both sinks of PostgreSQL write it. The job continues from its checkpoints in FOLDER. With KILLS it repeats the test
with more kills, by hand.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

import aflow as af
from aflow_connectors.postgres import Change, PostgresChanges, PostgresSink, PostgresUpsert
from tests.connectors.postgres.server import Server, execute, fetch, programs, running
from tests.forked import Forked, ForkServer, fork_server

KEYS: Final = 2000

SCHEMA: Final = (
    "CREATE TABLE items (id integer PRIMARY KEY, version integer NOT NULL)",
    f"INSERT INTO items SELECT n, 1 FROM generate_series(1, {KEYS}) n",
    "CREATE TABLE seen (id integer, version integer)",
    "CREATE TABLE counts (id integer PRIMARY KEY, changes integer)",
)

#: Rows of ``items`` with versions that the job has not written, or with more than one change for a version.
WRONG: Final = """
    SELECT i.id, i.version, s.versions, s.first, s.last, c.changes FROM items i
    LEFT JOIN (SELECT id, count(*) AS versions, min(version) AS first, max(version) AS last FROM seen GROUP BY id) s
        USING (id)
    LEFT JOIN counts c USING (id)
    WHERE s.last IS DISTINCT FROM i.version OR s.versions <> s.last - s.first + 1
        OR c.changes IS DISTINCT FROM s.versions"""
REPEATED: Final = "SELECT id, version FROM seen GROUP BY 1, 2 HAVING count(*) > 1"


class Item(NamedTuple):
    id: int
    version: int


class Seen(NamedTuple):
    id: int
    changes: int


async def called(change: Change[Item]) -> Item:
    await asyncio.sleep(0.001)
    assert change.after is not None
    return change.after


def flow_of(address: str, slot: str) -> af.Flow:
    flow = af.Flow("killed")
    source = PostgresChanges(address, "items", of=Item, slot=slot, page=20)
    items = flow.source(source, name="items").map_async(called, name="called", capacity=8)
    items.to(PostgresSink(address, "seen"), name="seen")
    counts = items.map(lambda i: Seen(i.id, 1), name="one").key_by(lambda s: s.id)
    counts.reduce(lambda a, b: Seen(a.id, a.changes + b.changes), name="count", of=Seen).to(
        PostgresUpsert(address, "counts", key="id"), name="counts"
    )
    return flow


async def work(address: str, folder: str, slot: str) -> None:
    checkpointing = af.Checkpointing(storage=folder, every=timedelta(milliseconds=100))
    await flow_of(address, slot).run(checkpointing=checkpointing, parallelism=2)


async def started(forked: ForkServer, address: str, folder: Path, slot: str) -> Forked:
    program = "tests.connectors.postgres.killed_changes_job"
    return await forked.start(program, address, folder, slot, errors=True)


async def change(address: str, random: Random, transactions: int) -> None:
    """Give new versions to rows."""
    for _ in range(transactions):
        first = random.randrange(KEYS)
        await execute(
            address,
            f"UPDATE items SET version = version + 1 WHERE id BETWEEN {first} AND {first + 30}",
        )


async def more_than(address: str, count: int, job: Forked) -> int:
    """Wait until the job has committed more than ``count`` changes. Return their number."""
    while True:
        ((found,),) = await fetch(address, "SELECT count(*) FROM seen")
        if found > count:
            return int(found)
        assert job.returncode is None, (await job.communicate())[1].decode()
        await asyncio.sleep(0.02)


async def complete(address: str, job: Forked) -> None:
    """Wait until the job has written the last version of all rows. Fails after a while."""
    until = time.monotonic() + 300
    while wrong := await fetch(address, WRONG):
        assert job.returncode is None, (await job.communicate())[1].decode()
        assert time.monotonic() < until, wrong[:5]
        await asyncio.sleep(0.05)


async def killed(
    forked: ForkServer,
    server: Server,
    address: str,
    slot: str,
    folder: Path,
    kills: int,
    random: Random,
) -> None:
    """Kill the job, and the server once in ten times, and compare. Raises ``AssertionError``."""
    await execute(address, *SCHEMA)
    committed = 0
    for number in range(kills):
        job = await started(forked, address, folder, slot)
        committed = await more_than(address, committed, job)
        await change(address, random, 5)
        await asyncio.sleep(random.uniform(0, 0.2))
        if number % 10 == 2:
            server.kill()
            server.start()
            await change(address, random, 2)
            committed = await more_than(address, committed, job)
        job.kill()
        await job.communicate()
        await change(address, random, 1)
    job = await started(forked, address, folder, slot)
    try:
        await complete(address, job)
    finally:
        job.kill()
        await job.communicate()
    assert await fetch(address, REPEATED) == []


async def _by_hand(kills: int) -> None:
    found = programs()
    assert found is not None
    with (
        fork_server() as forked,
        running(found) as server,
        tempfile.TemporaryDirectory() as folder,
    ):
        await killed(forked, server, server.address, "killed", Path(folder), kills, Random(kills))
        rows: list[tuple[Any, ...]] = await fetch(server.address, "SELECT count(*) FROM seen")
        print(f"{kills} kills, {rows[0][0]} changes, each written once")


if __name__ == "__main__":
    if len(sys.argv) == 2:
        asyncio.run(_by_hand(int(sys.argv[1])))
    else:
        asyncio.run(work(*sys.argv[1:]))
