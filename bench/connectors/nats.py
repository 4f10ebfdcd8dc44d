"""NATS JetStream: JSON messages of three streams, read and published by aflow and by a loop over nats-py."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any, Final

import orjson

import aflow as af
from aflow.testing import CollectSink
from aflow_connectors.nats import NatsSink, NatsSource
from bench.connectors.comparison import compare_directions, numbered_record, temporary_folder
from bench.connectors.latency import (
    Ends,
    Program,
    added_latency,
    flow_between,
    input_and_output,
    loop_beside,
)
from bench.harness import Measurement, run_async
from tests.connectors.nats.server import NatsServer, nats_program, running_nats

# Its types are incomplete.
nats: Any = import_module("nats")
api: Any = import_module("nats.js.api")

STREAMS: Final = ("in-0", "in-1", "in-2")

#: Messages of a request, and of a group that awaits its acknowledgements, also in aflow.
FETCHED: Final = 1024
PUBLISHED: Final = 512


def measure(records: int, rounds: int) -> Iterator[Measurement]:
    """Start a server, and measure the source and the sink."""
    program = nats_program()
    if program is None:
        raise SystemExit("nats: no server is installed: scripts/have-nats")
    with running_nats(program) as server, temporary_folder() as folder:
        run_async(_fill(server, records))
        yield _source(server.url, records, rounds)
        yield _sink(server, folder, records, rounds)
        yield added_latency("nats_to_nats", lambda program: _relay(server, program))


async def _fill(server: NatsServer, records: int) -> None:
    for part, stream in enumerate(STREAMS):
        await server.create(stream)
        numbers = range(part, records, len(STREAMS))
        await server.publish(stream, *(orjson.dumps(numbered_record(n)) for n in numbers))
    for stream in ("in_aflow", "by_hand"):
        await server.create(stream)


def _source(url: str, records: int, rounds: int) -> Measurement:
    async def in_aflow() -> int:
        flow, out = af.Flow("read"), CollectSink[int]()
        source = NatsSource(url, list(STREAMS), until="now")
        flow.source(source, name="in").map(lambda one: int(one["n"])).to(out)
        await flow.run()
        return sum(out.values)

    async def by_hand() -> int:
        client = await nats.connect(url)
        context = client.jetstream()
        config = api.ConsumerConfig(ack_policy="none", deliver_policy="all")
        found: list[int] = []
        for part, stream in enumerate(STREAMS):
            subscription = await context.pull_subscribe("", stream=stream, config=config)
            left = len(range(part, records, len(STREAMS)))
            while left:
                messages = await subscription.fetch(min(left, FETCHED), timeout=5)
                found += [int(orjson.loads(one.data)["n"]) for one in messages]
                left -= len(messages)
        await client.close()
        return sum(found)

    return compare_directions("nats_source", records, rounds, in_aflow, by_hand)


def _sink(server: NatsServer, folder: Path, records: int, rounds: int) -> Measurement:
    numbers = count()
    output = [numbered_record(n) for n in range(records)]

    async def in_aflow() -> int:
        flow = af.Flow("write")
        sink = NatsSink[dict[str, Any]](server.url, "in_aflow")
        flow.source(output, name="in").to(sink, name="out")
        storage = folder / f"checkpoints-{next(numbers)}"
        every = timedelta(milliseconds=500)
        await flow.run(checkpointing=af.Checkpointing(storage=storage, every=every))
        return await _emptied(server, "in_aflow")

    async def by_hand() -> int:
        client = await nats.connect(server.url)
        context = client.jetstream()
        run = next(numbers)
        for start in range(0, records, PUBLISHED):
            sent = [
                await context.publish_async(
                    "by_hand",
                    orjson.dumps(one),
                    headers={"Nats-Msg-Id": f"0123456789abcdef-{run}-{one['n']}"},
                )
                for one in output[start : start + PUBLISHED]
            ]
            await asyncio.gather(*sent)
        await client.close()
        return await _emptied(server, "by_hand")

    return compare_directions("nats_sink", records, rounds, in_aflow, by_hand)


@asynccontextmanager
async def _relay(server: NatsServer, program: Program) -> AsyncGenerator[Ends]:
    before, after = input_and_output(program)
    for stream in (before, after):
        await server.create(stream)
    client = await nats.connect(server.url)
    context = client.jetstream()
    output = await context.subscribe(after, stream=after, ordered_consumer=True)

    async def numbers() -> AsyncGenerator[int]:
        async for message in output.messages:
            yield orjson.loads(message.data)["n"]

    async def by_hand() -> None:
        relay = await nats.connect(server.url)
        relaying = relay.jetstream()
        received = await relaying.subscribe(before, stream=before, ordered_consumer=True)
        try:
            async for message in received.messages:
                await relaying.publish(after, orjson.dumps(orjson.loads(message.data)))
        finally:
            await relay.close()

    source = NatsSource(server.url, before)
    sink = NatsSink[dict[str, Any]](server.url, after, exactly_once=False)
    running = flow_between(source, sink) if program == "in_aflow" else loop_beside(by_hand())
    async with running:
        yield Ends(lambda n: context.publish(before, orjson.dumps(numbered_record(n))), numbers())
    await client.close()


async def _emptied(server: NatsServer, stream: str) -> int:
    """Remove the messages, and return their number."""
    async with server.jetstream() as context:
        state = (await context.stream_info(stream)).state
        await context._jsm.purge_stream(stream)
        return int(state.messages)
