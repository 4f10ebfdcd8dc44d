"""MQTT: JSON messages of a session, read and written by aflow and by a loop over aiomqtt."""

from __future__ import annotations

import asyncio
import socket
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any, Final

import orjson

import aflow as af
from aflow_connectors.mqtt import MqttSink, MqttSource
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
from tests.connectors.mqtt.server import Mqtt, running

# Only a part of it has types.
aiomqtt: Any = import_module("aiomqtt")

#: Messages that wait for a confirmation at a time.
BATCH: Final = 1000

#: A small packet does not wait until the preceding one is acknowledged, which the peer delays by 40 ms.
_AT_ONCE: Final = ((socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),)


def measure(records: int, rounds: int) -> Iterator[Measurement]:
    """Start a broker, and measure the source and the sink."""
    with running() as broker, temporary_folder() as folder:
        yield _source(Mqtt(broker.url), folder, records, rounds)
        yield _sink(Mqtt(broker.url), records, rounds)
        yield added_latency("mqtt_to_mqtt", lambda program: _relay(Mqtt(broker.url), program))


def _source(mqtt: Mqtt, folder: Path, records: int, rounds: int) -> Measurement:
    numbers = count()
    # Each run removes its messages, so each has a topic, and a session with its name.
    topics = iter([run_async(_filled(mqtt, records)) for _ in range(2 * rounds + 2)])

    async def in_aflow() -> int:
        topic, found, over = next(topics), list[int](), asyncio.Event()

        def take(one: dict[str, int]) -> None:
            found.append(one["n"])
            if len(found) == records:
                over.set()

        flow = af.Flow("read")
        source = MqttSource(mqtt.url, topic, client_id=topic)
        flow.source(source, name="in").to(af.CallbackSink(take), name="out")
        storage = folder / f"checkpoints-{next(numbers)}"
        every = timedelta(milliseconds=100)
        checkpointing = af.Checkpointing(storage=storage, every=every)
        async with flow.start(checkpointing=checkpointing) as job:
            await over.wait()
            await job.stop()
        return sum(found)

    async def by_hand() -> int:
        topic, found = next(topics), list[int]()
        async with mqtt.client(identifier=topic, clean_start=False, expiry=3600) as client:
            async for message in client.messages:
                found.append(orjson.loads(message.payload)["n"])
                if len(found) == records:
                    break
        return sum(found)

    return compare_directions("mqtt_source", records, rounds, in_aflow, by_hand)


def _sink(mqtt: Mqtt, records: int, rounds: int) -> Measurement:
    output = [numbered_record(n) for n in range(records)]

    async def in_aflow(topic: str = "written") -> int:
        flow = af.Flow("write")
        flow.source(output, name="in").to(MqttSink(mqtt.url, topic), name="out")
        await flow.run()
        return records

    async def by_hand(topic: str = "written") -> int:
        async with mqtt.client() as client:
            for start in range(0, records, BATCH):
                await asyncio.gather(
                    *(
                        client.publish(topic, orjson.dumps(one), 1)
                        for one in output[start : start + BATCH]
                    )
                )
        return records

    # Nothing subscribes to the topic of the measured runs: the broker would work for the subscriber, too.
    for program in (in_aflow, by_hand):
        received = run_async(_received(mqtt, program, records))
        if received != records * (records - 1) // 2:
            raise SystemExit(f"mqtt_sink: {program.__name__} published other messages")
    return compare_directions("mqtt_sink", records, rounds, in_aflow, by_hand)


async def _received(mqtt: Mqtt, program: Callable[[str], Awaitable[object]], records: int) -> int:
    """Run ``program`` with a topic of its own, and return the sum of the numbers that it has published."""
    topic = uuid.uuid4().hex
    await mqtt.subscribed(topic, topic)
    await program(topic)
    messages = await mqtt.messages(topic, count=records)
    return sum(int(orjson.loads(one.payload)["n"]) for one in messages)


@asynccontextmanager
async def _relay(mqtt: Mqtt, program: Program) -> AsyncGenerator[Ends]:
    before, after = input_and_output(program)

    async def by_hand() -> None:
        async with mqtt.client(socket_options=_AT_ONCE) as client:
            await client.subscribe(before, 1)
            async for message in client.messages:
                await client.publish(after, orjson.dumps(orjson.loads(message.payload)), 1)

    async with mqtt.client(socket_options=_AT_ONCE) as client:
        await client.subscribe(after, 1)

        async def numbers() -> AsyncGenerator[int]:
            async for message in client.messages:
                yield orjson.loads(message.payload)["n"]

        settings = {"socket_options": _AT_ONCE}
        source = MqttSource(mqtt.url, before, client_id=f"relay_{before}", client=settings)
        sink = MqttSink[dict[str, Any]](mqtt.url, after, client=settings)
        running = flow_between(source, sink) if program == "in_aflow" else loop_beside(by_hand())
        async with running:
            yield Ends(lambda n: client.publish(before, orjson.dumps({"n": n}), 1), numbers())


async def _filled(mqtt: Mqtt, records: int) -> str:
    topic = uuid.uuid4().hex
    await mqtt.subscribed(topic, topic)
    payloads = [orjson.dumps(numbered_record(n)) for n in range(records)]
    for start in range(0, records, BATCH):
        await mqtt.publish(topic, payloads[start : start + BATCH])
    return topic
