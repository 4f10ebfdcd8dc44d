"""A job and its server are killed repeatedly, and each result is in the tables once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.connectors.postgres.conftest import Database
from tests.connectors.postgres.killed_job import COUNT, KEYS, SIZE
from tests.connectors.postgres.server import Server
from tests.forked import Forked, ForkServer

EXPECTED = f"""
    SELECT key, to_timestamp(second / {SIZE} * {SIZE}) AS start, sum(id)::integer AS total
    FROM events GROUP BY 1, 2 ORDER BY 1, 2"""


async def started(
    forked: ForkServer, database: Database, folder: Path, parallelism: int, *, last: int = COUNT
) -> Forked:
    job = ("tests.connectors.postgres.killed_job", database.address, folder, parallelism, last)
    return await forked.start(*job, errors=True)


async def more_than(database: Database, count: int, job: Forked) -> int:
    """Wait until the job has committed more than ``count`` rows. Return their number."""
    while True:
        ((found,),) = await database.fetch("SELECT count(*) FROM appended")
        if found > count:
            return int(found)
        assert job.returncode is None, (await job.communicate())[1].decode()
        await asyncio.sleep(0.02)


@pytest.mark.slow
@pytest.mark.asyncio
async def test_each_result_is_written_once_though_the_job_and_the_server_are_killed(
    forked: ForkServer, database: Database, own_server: Server, tmp_path: Path
) -> None:
    await database.execute(
        "CREATE TABLE events (id integer PRIMARY KEY, key integer NOT NULL, second integer NOT NULL)",
        f"INSERT INTO events SELECT n, n % {KEYS}, n / 5 FROM generate_series(1, {COUNT}) n",
        "CREATE TABLE appended (key integer, start timestamptz, total integer)",
        "CREATE TABLE replaced (LIKE appended, PRIMARY KEY (key, start))",
    )
    committed = 0

    for number, parallelism in enumerate((1, 3, 2), start=1):
        # However late it is killed, rows remain for the next one.
        job = await started(forked, database, tmp_path, parallelism, last=number * COUNT // 4)
        committed = await more_than(database, committed, job)
        job.kill()
        await job.communicate()
    job = await started(forked, database, tmp_path, 2)
    await more_than(database, committed, job)
    own_server.kill()
    own_server.start()
    _, errors = await job.communicate()

    assert job.returncode == 0, errors.decode()
    expected = await database.fetch(EXPECTED)
    assert await database.fetch("SELECT * FROM appended ORDER BY 1, 2") == expected
    assert await database.fetch("SELECT * FROM replaced ORDER BY 1, 2") == expected
    assert await database.fetch("SELECT * FROM _aflow_staged") == []
