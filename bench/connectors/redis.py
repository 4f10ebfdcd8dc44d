"""Redis: entries of three streams, read and written by aflow and by a loop over redis-py."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any, Final

import aflow as af
from aflow.testing import CollectSink
from aflow_connectors.redis import RedisSink, RedisSource
from bench.connectors.comparison import compare_directions, numbered_record, temporary_folder
from bench.connectors.latency import (
    Ends,
    Program,
    added_latency,
    flow_between,
    input_and_output,
    loop_beside,
)
from bench.harness import Measurement
from tests.connectors.redis.server import TestServer, redis_program, running_redis

# Its types are incomplete.
redis: Any = import_module("redis.asyncio")

STREAMS: Final = ("in-0", "in-1", "in-2")

#: Entries of a request of the loop.
BATCH: Final = 4096

#: Entries of a transaction of the loop, and of a block of aflow.
WRITTEN: Final = 1000


def measure(records: int, rounds: int) -> Iterator[Measurement]:
    """Start a server, and measure the source and the sink."""
    program = redis_program()
    if program is None:
        raise SystemExit("redis: no server is installed: scripts/have-redis")
    with running_redis(program) as server, temporary_folder() as folder:
        for part, stream in enumerate(STREAMS):
            server.add(stream, *map(numbered_record, range(part, records, len(STREAMS))))
        yield _source(server.url, records, rounds)
        yield _sink(server, folder, records, rounds)
        yield added_latency("redis_to_redis", lambda program: _relay(server.url, program))


def _source(url: str, records: int, rounds: int) -> Measurement:
    async def in_aflow() -> int:
        flow, out = af.Flow("read"), CollectSink[int]()
        entries = flow.source(RedisSource(url, list(STREAMS), until="now"), name="in")
        entries.map(lambda one: int(one["n"])).to(out)
        await flow.run()
        return sum(out.values)

    async def by_hand() -> int:
        client = redis.Redis.from_url(url, decode_responses=True, protocol=2)
        found: list[int] = []
        after = dict.fromkeys(STREAMS, "0-0")
        while len(found) < records:
            for stream, entries in await client.xread(after, count=BATCH, block=500):
                found += [int(fields["n"]) for _, fields in entries]
                after[stream] = entries[-1][0]
        await client.aclose()
        return sum(found)

    return compare_directions("redis_source", records, rounds, in_aflow, by_hand)


def _sink(server: TestServer, folder: Path, records: int, rounds: int) -> Measurement:
    numbers = count()
    output = [numbered_record(n) for n in range(records)]

    async def in_aflow() -> int:
        flow = af.Flow("write")
        sink = RedisSink[dict[str, Any]](server.url, "in_aflow")
        flow.source(output, name="in").to(sink, name="out")
        storage = folder / f"checkpoints-{next(numbers)}"
        every = timedelta(milliseconds=500)
        await flow.run(checkpointing=af.Checkpointing(storage=storage, every=every))
        return _emptied(server, "in_aflow")

    async def by_hand() -> int:
        client = redis.Redis.from_url(server.url)
        for start in range(0, records, WRITTEN):
            async with client.pipeline(transaction=True) as pipeline:
                for one in output[start : start + WRITTEN]:
                    pipeline.xadd("by_hand", one)
                await pipeline.execute()
        await client.aclose()
        return _emptied(server, "by_hand")

    return compare_directions("redis_sink", records, rounds, in_aflow, by_hand)


@asynccontextmanager
async def _relay(url: str, program: Program) -> AsyncGenerator[Ends]:
    before, after = input_and_output(program)
    client = redis.Redis.from_url(url, decode_responses=True, protocol=2)

    async def by_hand() -> None:
        relay = redis.Redis.from_url(url, decode_responses=True, protocol=2)
        try:
            async for fields in _entries(relay, before):
                await relay.xadd(after, fields)
        finally:
            await relay.aclose()

    async def numbers() -> AsyncGenerator[int]:
        async for fields in _entries(client, after):
            yield int(fields["n"])

    await client.xadd(before, numbered_record(-1))  # the source needs a stream that exists
    source = RedisSource(url, before)
    sink = RedisSink[dict[str, Any]](url, after, exactly_once=False)
    running = flow_between(source, sink) if program == "in_aflow" else loop_beside(by_hand())
    async with running:
        yield Ends(lambda n: client.xadd(before, numbered_record(n)), numbers())
    await client.aclose()


async def _entries(client: Any, stream: str) -> AsyncIterator[dict[str, str]]:
    last = "0-0"
    while True:
        for _, entries in await client.xread({stream: last}, count=BATCH, block=500):
            for last, fields in entries:  # noqa: B007  # the last one is the next start
                yield fields


def _emptied(server: TestServer, stream: str) -> int:
    """Remove the entries, and return their number."""
    length: int = server.command("XLEN", stream)
    server.command("DEL", stream)
    return length
