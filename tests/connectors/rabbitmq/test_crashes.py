"""A pipeline from a queue to files counts each message once when its process or the server is killed."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Final

import pytest

from tests.connectors.rabbitmq import pipeline
from tests.connectors.rabbitmq.server import PROJECT, Rabbit, RabbitServer

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]

#: Numbers of the input.
COUNT: Final = 4_000

Result = tuple[int, int, int]


async def run(
    arguments: tuple[str, ...],
    checkpoints: int,
    disturb: Callable[[asyncio.subprocess.Process], Awaitable[None]] | None = None,
) -> bool:
    """Run the pipeline, with ``disturb`` after so many checkpoints. Return True if it came to its end."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "tests.connectors.rabbitmq.pipeline", *arguments),
        cwd=PROJECT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    async with asyncio.timeout(240):
        while line := await process.stdout.readline():
            checkpoints -= line == b"CheckpointInfo\n"
            if checkpoints <= 0 and disturb is not None:
                await disturb(process)
                disturb = None
        _, errors = await process.communicate()
    assert process.returncode in (0, -9), errors.decode()
    return process.returncode == 0


async def made(rabbit: Rabbit) -> tuple[str, str]:
    """Return the names of a queue with the numbers, and of an empty one."""
    source, sink = await rabbit.create(), await rabbit.create()
    await publish_numbers(rabbit, source, COUNT)
    return source, sink


async def publish_numbers(rabbit: Rabbit, queue: str, count: int) -> None:
    await rabbit.publish(
        queue,
        [b"%d" % n for n in range(count)],
        headers=[{"timestamp_in_ms": n} for n in range(count)],
    )


def in_files(folder: Path) -> list[Result]:
    lines = [
        json.loads(line)
        for path in (folder / "files").glob("*.jsonl")
        for line in path.read_text().splitlines()
    ]
    return sorted((one["key"], one["start"], one["sum"]) for one in lines)


async def in_queue(rabbit: Rabbit, queue: str) -> list[Result]:
    """Return the results by their message ids."""
    found: dict[str, Result] = {}
    for message in await rabbit.contents(queue):
        one = json.loads(message.body)
        found[message.header.properties.message_id] = (one["key"], one["start"], one["sum"])
    return sorted(found.values())


async def test_each_message_is_counted_once_though_the_job_and_the_server_are_killed(
    own_rabbit: RabbitServer, tmp_path: Path
) -> None:
    rabbit = Rabbit(own_rabbit.url)
    source, sink = await made(rabbit)
    arguments = (rabbit.url, source, sink, str(tmp_path))
    random = Random(3)
    kills = 0

    async def kill(process: asyncio.subprocess.Process) -> None:
        await asyncio.sleep(random.uniform(0, 0.15))
        process.kill()

    async def restart(process: asyncio.subprocess.Process) -> None:
        own_rabbit.kill()
        own_rabbit.start()

    for _ in range(3):
        kills += not await run(arguments, random.randint(1, 3), kill)
    assert await run(arguments, 1, restart)

    assert kills == 3
    assert in_files(tmp_path) == pipeline.expected(COUNT)
    assert await in_queue(rabbit, sink) == pipeline.expected(COUNT)
