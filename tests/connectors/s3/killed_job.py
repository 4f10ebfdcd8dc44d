"""A job that the tests kill: ``python -m tests.connectors.s3.killed_job ENDPOINT URL FOLDER PARALLELISM``.

Objects below URL are read, each record passes an async call, windows are summed by key, and the sums are written to
objects and to a Delta table in FOLDER. The checkpoints of the job are in the bucket, too.
"""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

import pyarrow as pa

import aflow as af
from aflow_connectors.delta import DeltaSink
from aflow_connectors.s3 import JsonLinesObjects, JsonLinesObjectSink, ObjectStorage
from tests.connectors.s3.server import S3Server

#: Records in all objects: a number, a key and a time in seconds.
COUNT: Final = 400
OBJECTS: Final = 5
KEYS: Final = 5
#: Seconds of a window.
SIZE: Final = 10

SCHEMA: Final = pa.schema([("key", pa.int64()), ("start", pa.int64()), ("total", pa.int64())])


class Event(NamedTuple):
    id: int
    key: int
    second: int


class Sum(NamedTuple):
    key: int
    start: int
    total: int


def events() -> list[Event]:
    return [Event(number, number % KEYS, number // 5) for number in range(COUNT)]


async def called(event: Event) -> Event:
    await asyncio.sleep(0.004)
    return event


def flow_of(server: S3Server, url: str, folder: str) -> af.Flow:
    flow = af.Flow("killed")
    source = JsonLinesObjects(f"{url}/in/", of=Event, client=server.client)
    sums = (
        flow.source(source, name="events")
        .map_async(called, name="called", capacity=4)
        .event_time(lambda e: datetime.fromtimestamp(e.second, UTC), max_delay=timedelta(hours=1))
        .key_by(lambda e: e.key)
        .window(af.Tumbling(timedelta(seconds=SIZE)))
        .fold(int, lambda total, e: total + e.id, name="sums")
        .map(lambda r: Sum(r.key, int(r.window.start_time.timestamp()), r.value), name="row")
    )
    events_out = flow.source(source, name="again").map_async(
        called, name="called_again", capacity=4
    )
    sums.to(DeltaSink(f"{folder}/table", schema=SCHEMA), name="table")
    sums.to(JsonLinesObjectSink(f"{url}/sums", client=server.client), name="sums_out")
    events_out.to(JsonLinesObjectSink(f"{url}/copy", client=server.client), name="copy")
    return flow


async def main(endpoint: str, url: str, folder: str, parallelism: str) -> None:
    server = S3Server(endpoint)
    storage = ObjectStorage(f"{url}/state", client=server.client)
    checkpointing = af.Checkpointing(storage=storage, every=timedelta(milliseconds=100))
    await flow_of(server, url, folder).run(
        checkpointing=checkpointing, parallelism=int(parallelism)
    )


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
