"""RabbitMQ: JSON messages of a queue, read and written by aflow and by a loop over aio-pika."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from importlib import import_module
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import orjson

import aflow as af
from aflow.testing import CollectSink
from aflow_connectors.rabbitmq import RabbitmqSink, RabbitmqSource
from bench.connectors.comparison import compare_directions
from bench.harness import Measurement, run_async
from tests.connectors.rabbitmq.server import Rabbit, running

# Only a part of it has types.
aio_pika: Any = import_module("aio_pika")

#: Messages that wait for a confirmation, or for an acknowledgement, at a time.
BATCH: Final = 1000


def measure(records: int, rounds: int) -> Iterator[Measurement]:
    """Start a server, and measure the source and the sink."""
    with running() as server, TemporaryDirectory() as folder:
        yield _source(server.url, Path(folder), records, rounds)
        yield _sink(server.url, records, rounds)


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
    output = [{"n": n, "name": "a record of some bytes"} for n in range(records)]
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


async def _filled(url: str, records: int) -> str:
    rabbit = Rabbit(url)
    queue = await rabbit.create()
    await rabbit.publish(
        queue, [orjson.dumps({"n": n, "name": "a record of some bytes"}) for n in range(records)]
    )
    return queue
