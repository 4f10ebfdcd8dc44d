"""A pipeline from Kafka to Kafka gives the same output when its process or its broker is killed, seen from outside."""

from __future__ import annotations

import asyncio
import json
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from tests.connectors.kafka.broker import Broker, Cluster
from tests.connectors.windows import expected, run_killed, run_process

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]

#: Numbers of the input, in three partitions.
COUNT: Final = 12_000

run = partial(run_process, "tests.connectors.kafka.pipeline")


async def made(kafka: Cluster, count: int) -> tuple[str, str]:
    """Return the names of a topic with ``count`` numbers, and of an empty one."""
    source, sink = await kafka.create(partitions=3), await kafka.create(partitions=2)
    for partition in range(3):
        numbers = range(partition, count, 3)
        await kafka.produce(
            source, [b"%d" % n for n in numbers], partition=partition, timestamps=numbers
        )
    return source, sink


async def output(kafka: Cluster, topic: str) -> list[tuple[int, int, int]]:
    found = [json.loads(message.value) for message in await kafka.contents(topic)]
    return sorted((one["key"], one["start"], one["sum"]) for one in found)


async def test_a_job_that_is_killed_writes_each_result_once(kafka: Cluster, tmp_path: Path) -> None:
    source, sink = await made(kafka, COUNT)
    arguments = (kafka.servers, source, sink, str(tmp_path))

    assert await run_killed("tests.connectors.kafka.pipeline", arguments, kills=3) == 3

    assert await output(kafka, sink) == expected(COUNT)


async def test_a_job_continues_when_the_broker_is_killed_and_back(
    own_broker: Broker, tmp_path: Path
) -> None:
    kafka = Cluster(own_broker.servers)
    source, sink = await made(kafka, COUNT)

    async def restart(process: asyncio.subprocess.Process) -> None:
        own_broker.kill()
        await asyncio.to_thread(own_broker.start)

    assert await run((kafka.servers, source, sink, str(tmp_path)), 2, restart)

    assert await output(kafka, sink) == expected(COUNT)
