"""A pipeline from Kafka to Kafka gives the same output when its process or its broker is killed, seen from outside."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Final

import pytest

from tests.connectors.kafka import pipeline
from tests.connectors.kafka.broker import PROJECT, Broker, Cluster

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]

#: Numbers of the input, in three partitions.
COUNT: Final = 12_000

Disturb = Callable[[asyncio.subprocess.Process], Awaitable[None]]


async def made(kafka: Cluster, count: int) -> tuple[str, str]:
    """Return the names of a topic with ``count`` numbers, and of an empty one."""
    source, sink = await kafka.create(partitions=3), await kafka.create(partitions=2)
    for partition in range(3):
        numbers = range(partition, count, 3)
        await kafka.produce(
            source, [b"%d" % n for n in numbers], partition=partition, timestamps=numbers
        )
    return source, sink


async def run(arguments: tuple[str, ...], checkpoints: int, disturb: Disturb | None = None) -> bool:
    """Run the pipeline, with ``disturb`` after so many checkpoints. Return True if it came to its end."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.connectors.kafka.pipeline",
        *arguments,
        cwd=PROJECT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    async with asyncio.timeout(120):
        while line := await process.stdout.readline():
            checkpoints -= line == b"CheckpointInfo\n"
            if checkpoints <= 0 and disturb is not None:
                await disturb(process)
                disturb = None
        _, errors = await process.communicate()
    assert process.returncode in (0, -9), errors.decode()
    return process.returncode == 0


async def output(kafka: Cluster, topic: str) -> list[tuple[int, int, int]]:
    found = [json.loads(message.value) for message in await kafka.contents(topic)]
    return sorted((one["key"], one["start"], one["sum"]) for one in found)


async def test_a_job_that_is_killed_writes_each_result_once(kafka: Cluster, tmp_path: Path) -> None:
    source, sink = await made(kafka, COUNT)
    arguments = (kafka.servers, source, sink, str(tmp_path))
    random = Random(3)
    kills = 0

    async def kill(process: asyncio.subprocess.Process) -> None:
        await asyncio.sleep(random.uniform(0, 0.15))
        process.kill()

    for _ in range(3):
        kills += not await run(arguments, random.randint(1, 3), kill)
    while not await run(arguments, 0):
        pass

    assert kills == 3
    assert await output(kafka, sink) == pipeline.expected(COUNT)


async def test_a_job_continues_when_the_broker_is_killed_and_back(
    own_broker: Broker, tmp_path: Path
) -> None:
    kafka = Cluster(own_broker.servers)
    source, sink = await made(kafka, COUNT)

    async def restart(process: asyncio.subprocess.Process) -> None:
        own_broker.kill()
        await asyncio.to_thread(own_broker.start)

    assert await run((kafka.servers, source, sink, str(tmp_path)), 2, restart)

    assert await output(kafka, sink) == pipeline.expected(COUNT)
