"""RabbitMQ: JSON messages of a queue, read and written by aflow and by a loop over aio-pika."""

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
from aflow_connectors.rabbitmq import RabbitmqSink, RabbitmqSource
from bench.connectors.comparison import compare_directions, numbered_record, temporary_folder
from bench.connectors.latency import Ends, Program, added_latency, flow_between, loop_beside
from bench.harness import Measurement, run_async
from tests.connectors.rabbitmq.server import Rabbit, running

# Only a part of it has types.
aio_pika: Any = import_module("aio_pika")

#: Messages that wait for a confirmation, or for an acknowledgement, at a time.
BATCH: Final = 1000


def measure(records: int, rounds: int) -> Iterator[Measurement]:
    """Start a server, and measure the source and the sink."""
    with running() as server, temporary_folder() as folder:
        yield _source(server.url, folder, records, rounds)
        yield _sink(server.url, records, rounds)
        yield added_latency("rabbitmq_to_rabbitmq", lambda program: _relay(server.url, program))


def _source(url: str, folder: Path, records: int, rounds: int) -> Measurement:
    numbers = count()
    # Each run removes its messages, so each has a queue of its own.
    queues = iter([run_async(_filled(url, records)) for _ in range(2 * rounds + 2)])

    async def in_aflow() -> int:
        flow, out = af.Flow("read"), CollectSink[int]()
        source = RabbitmqSource(url, next(queues), until="now")
        flow.source(source, name="in").map(lambda one: one["n"]).to(out)
        storage = folder / f"checkpoints-{next(numbers)}"
        every = timedelta(milliseconds=100)
        await flow.run(checkpointing=af.Checkpointing(storage=storage, every=every))
        return sum(out.values)

    async def by_hand() -> int:
        connection = await aio_pika.connect(url)
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=10 * BATCH)
        queue = await channel.get_queue(next(queues))
        found: list[int] = []
        async with queue.iterator() as messages:
            async for message in messages:
                found.append(orjson.loads(message.body)["n"])
                if not len(found) % BATCH or len(found) == records:
                    await message.ack(multiple=True)
                if len(found) == records:
                    break
        await connection.close()
        return sum(found)

    return compare_directions("rabbitmq_source", records, rounds, in_aflow, by_hand)


def _sink(url: str, records: int, rounds: int) -> Measurement:
    output = [numbered_record(n) for n in range(records)]
    rabbit = Rabbit(url)
    queues: list[str] = [run_async(rabbit.create()) for _ in range(2)]

    async def in_aflow() -> int:
        flow = af.Flow("write")
        flow.source(output, name="in").to(RabbitmqSink(url, key=queues[0]), name="out")
        await flow.run()
        return records

    async def by_hand() -> int:
        connection = await aio_pika.connect(url)
        channel = await connection.channel()
        persistent = aio_pika.DeliveryMode.PERSISTENT
        for start in range(0, records, BATCH):
            await asyncio.gather(
                *(
                    channel.default_exchange.publish(
                        aio_pika.Message(orjson.dumps(one), delivery_mode=persistent), queues[1]
                    )
                    for one in output[start : start + BATCH]
                )
            )
        await connection.close()
        return records

    measured = compare_directions("rabbitmq_sink", records, rounds, in_aflow, by_hand)
    counts = [run_async(rabbit.count(queue)) for queue in queues]
    if min(counts) < (rounds + 1) * records:
        raise SystemExit(
            f"rabbitmq_sink: {counts} messages were written instead of {rounds + 1} times {records}"
        )
    return measured


@asynccontextmanager
async def _relay(url: str, program: Program) -> AsyncGenerator[Ends]:
    before, after = [await Rabbit(url).create() for _ in range(2)]
    connection = await aio_pika.connect(url)
    channel = await connection.channel()

    async def send(number: int) -> None:
        await channel.default_exchange.publish(_message({"n": number}), before)

    async def numbers() -> AsyncGenerator[int]:
        queue = await channel.get_queue(after)
        async with queue.iterator(no_ack=True) as messages:
            async for message in messages:
                yield orjson.loads(message.body)["n"]

    async def by_hand() -> None:
        relay = await aio_pika.connect(url)
        relaying = await relay.channel()
        await relaying.set_qos(prefetch_count=BATCH)
        queue = await relaying.get_queue(before)
        try:
            async with queue.iterator() as messages:
                async for message in messages:
                    output = _message(orjson.loads(message.body))
                    await relaying.default_exchange.publish(output, after)
                    await message.ack()
        finally:
            await relay.close()

    source, sink = RabbitmqSource(url, before), RabbitmqSink[dict[str, Any]](url, key=after)
    running = flow_between(source, sink) if program == "in_aflow" else loop_beside(by_hand())
    async with running:
        yield Ends(send, numbers())
    await connection.close()


def _message(value: dict[str, Any]) -> Any:
    persistent = aio_pika.DeliveryMode.PERSISTENT
    return aio_pika.Message(orjson.dumps(value), delivery_mode=persistent)


async def _filled(url: str, records: int) -> str:
    rabbit = Rabbit(url)
    queue = await rabbit.create()
    await rabbit.publish(queue, [orjson.dumps(numbered_record(n)) for n in range(records)])
    return queue
