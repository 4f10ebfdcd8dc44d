"""A job that the tests kill: ``python -m tests.connectors.postgres.killed_job ADDRESS FOLDER PARALLELISM LAST``.

A table is read, each row passes an async call, windows are summed by key, and both sinks of PostgreSQL write the sums.
The job is restored from its checkpoints in FOLDER, if there are any. It waits for ever before the row after id LAST.
"""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

import aflow as af
from aflow_connectors.postgres import PostgresSink, PostgresTable, PostgresUpsert

#: Rows of the table ``events``: id, a key and a time in seconds.
COUNT: Final = 3000
KEYS: Final = 5
#: Seconds of a window.
SIZE: Final = 10


class Event(NamedTuple):
    id: int
    key: int
    second: int


class Sum(NamedTuple):
    key: int
    start: datetime
    total: int


def flow_of(address: str, last: int) -> af.Flow:
    async def called(event: Event) -> Event:
        await asyncio.sleep(0.004)
        if event.id > last:
            await asyncio.Event().wait()
        return event

    flow = af.Flow("killed")
    source = PostgresTable(address, "events", key="id", of=Event, page=50)
    sums = (
        flow.source(source, name="events")
        .map_async(called, name="called", capacity=8)
        .event_time(lambda e: datetime.fromtimestamp(e.second, UTC), max_delay=timedelta(seconds=1))
        .key_by(lambda e: e.key)
        .window(af.Tumbling(timedelta(seconds=SIZE)))
        .fold(int, lambda total, e: total + e.id, name="sums")
        .map(lambda r: Sum(r.key, r.window.start_time, r.value), name="row")
    )
    sums.to(PostgresSink(address, "appended"), name="appended")
    sums.to(PostgresUpsert(address, "replaced", key=["key", "start"]), name="replaced")
    return flow


async def main(address: str, folder: str, parallelism: str, last: str) -> None:
    checkpointing = af.Checkpointing(storage=folder, every=timedelta(milliseconds=100))
    flow = flow_of(address, int(last))
    await flow.run(checkpointing=checkpointing, parallelism=int(parallelism))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
