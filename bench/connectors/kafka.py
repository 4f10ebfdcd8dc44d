"""Kafka: JSON messages of three partitions, read and written by aflow and by a loop over aiokafka."""

from __future__ import annotations

import asyncio
import subprocess
import uuid
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
from aflow_connectors.kafka import KafkaSink, KafkaSource
from bench.connectors.comparison import compare_directions, numbered_record, temporary_folder
from bench.connectors.latency import Ends, Program, added_latency, flow_between, loop_beside
from bench.harness import Measurement, run_async
from tests.connectors.kafka.broker import Broker, Cluster

# aiokafka has no complete types.
aiokafka: Any = import_module("aiokafka")

PROJECT: Final = Path(__file__).parents[2]
PARTITIONS: Final = 3

#: Records of a batch of aflow, and of a request of the loop.
BATCH: Final = 4096


def measure(records: int, rounds: int) -> Iterator[Measurement]:
    """Start a broker, and measure the source and the sink."""
    found = subprocess.run(
        [PROJECT / "scripts" / "have-kafka", "required"], capture_output=True, text=True, check=True
    )
    with temporary_folder() as folder:
        broker = Broker(found.stdout.strip(), folder)
        try:
            broker.start()
            yield _source(broker.servers, records, rounds)
            yield _sink(broker.servers, folder, records, rounds)
            yield added_latency("kafka_to_kafka", lambda program: _relay(broker.servers, program))
        finally:
            broker.stop()


def _source(servers: str, records: int, rounds: int) -> Measurement:
    topic = run_async(_filled(servers, records))

    async def in_aflow() -> int:
        flow, out = af.Flow("read"), CollectSink[int]()
        numbers = flow.source(KafkaSource(servers, topic, until="now"), name="in")
        numbers.map(lambda one: one["n"]).to(out)
        await flow.run()
        return sum(out.values)

    async def by_hand() -> int:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=servers, isolation_level="read_committed", enable_auto_commit=False
        )
        await consumer.start()
        places = [aiokafka.TopicPartition(topic, number) for number in range(PARTITIONS)]
        consumer.assign(places)
        await consumer.seek_to_beginning(*places)
        left, loads = records, orjson.loads
        found: list[int] = []
        while left:
            for messages in (await consumer.getmany(timeout_ms=500, max_records=BATCH)).values():
                found += [loads(one.value)["n"] for one in messages]
                left -= len(messages)
        await consumer.stop()
        return sum(found)

    return compare_directions("kafka_source", records, rounds, in_aflow, by_hand)


def _sink(servers: str, folder: Path, records: int, rounds: int) -> Measurement:
    numbers = count()
    output = [numbered_record(n) for n in range(records)]
    cluster = Cluster(servers)
    topics: list[str] = [run_async(cluster.create(partitions=PARTITIONS)) for _ in range(2)]

    async def in_aflow() -> int:
        flow = af.Flow("write")
        sink = KafkaSink[dict[str, Any]](servers, topics[0], key=lambda one: str(one["n"]))
        flow.source(output, name="in").to(sink, name="out")
        storage = folder / f"checkpoints-{next(numbers)}"
        await flow.run(
            checkpointing=af.Checkpointing(storage=storage, every=timedelta(milliseconds=500))
        )
        return records

    async def by_hand() -> int:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=servers, transactional_id=uuid.uuid4().hex, max_batch_size=131_072
        )
        await producer.start()
        for start in range(0, records, BATCH):
            async with producer.transaction():
                sent = [
                    await producer.send(topics[1], orjson.dumps(one), str(one["n"]).encode())
                    for one in output[start : start + BATCH]
                ]
                await asyncio.gather(*sent)
        await producer.stop()
        return records

    measured = compare_directions("kafka_sink", records, rounds, in_aflow, by_hand)
    ends = [sum(run_async(cluster.ends(topic)).values()) for topic in topics]
    if min(ends) < (rounds + 1) * records:
        raise SystemExit(
            f"kafka_sink: {ends} messages were written instead of {rounds + 1} times {records}"
        )
    return measured


@asynccontextmanager
async def _relay(servers: str, program: Program) -> AsyncGenerator[Ends]:
    cluster = Cluster(servers)
    before, after = [await cluster.create(partitions=1) for _ in range(2)]
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=servers)
    await producer.start()

    async def numbers() -> AsyncGenerator[int]:
        async with _consuming(servers, after) as consumer:
            async for message in consumer:
                yield orjson.loads(message.value)["n"]

    async def by_hand() -> None:
        relaying = aiokafka.AIOKafkaProducer(bootstrap_servers=servers)
        await relaying.start()
        try:
            async with _consuming(servers, before) as consumer:
                async for message in consumer:
                    value = orjson.dumps(orjson.loads(message.value))
                    await relaying.send_and_wait(after, value)
        finally:
            await relaying.stop()

    source = KafkaSource(servers, before)
    sink = KafkaSink[dict[str, Any]](servers, after, exactly_once=False)
    running = flow_between(source, sink) if program == "in_aflow" else loop_beside(by_hand())
    async with running:
        yield Ends(lambda n: producer.send(before, orjson.dumps({"n": n})), numbers())
    await producer.stop()


@asynccontextmanager
async def _consuming(servers: str, topic: str) -> AsyncGenerator[Any]:
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=servers, isolation_level="read_committed", enable_auto_commit=False
    )
    await consumer.start()
    try:
        consumer.assign([aiokafka.TopicPartition(topic, 0)])
        await consumer.seek_to_beginning()
        yield consumer
    finally:
        await consumer.stop()


async def _filled(servers: str, records: int) -> str:
    cluster = Cluster(servers)
    topic = await cluster.create(partitions=PARTITIONS)
    for partition in range(PARTITIONS):
        numbers = range(partition, records, PARTITIONS)
        values = [orjson.dumps(numbered_record(n)) for n in numbers]
        await cluster.produce(topic, values, partition=partition)
    return topic
