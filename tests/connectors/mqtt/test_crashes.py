"""A pipeline from MQTT to files loses nothing when its process or the broker is killed."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random

import pytest

from tests.connectors.mqtt.pipeline import COUNT
from tests.connectors.mqtt.server import Mosquitto, Mqtt
from tests.forked import Forked, ForkServer

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]


async def run(
    forked: ForkServer,
    arguments: tuple[str, ...],
    checkpoints: int,
    disturb: Callable[[Forked], Awaitable[None]] | None = None,
) -> bool:
    """Run the pipeline, with ``disturb`` after so many checkpoints. Return True if it came to its end."""
    process = await forked.start("tests.connectors.mqtt.pipeline", *arguments, errors=True)
    async with asyncio.timeout(600):
        while line := await process.stdout.readline():
            checkpoints -= line == b"CheckpointInfo\n"
            if checkpoints <= 0 and disturb is not None:
                await disturb(process)
                disturb = None
        _, errors = await process.communicate()
    assert process.returncode in (0, -9), errors.decode()
    return process.returncode == 0


async def made(mqtt: Mqtt) -> str:
    """Return a topic whose numbers wait in the session of the pipeline. Another session has its output."""
    topic = f"t{uuid.uuid4().hex}"
    await mqtt.subscribed(topic, topic)
    await mqtt.subscribed(f"{topic}-out", f"{topic}/out")
    await mqtt.publish(topic, [b"%d" % n for n in range(COUNT)])
    return topic


def in_files(folder: Path) -> list[int]:
    lines = [
        json.loads(line)["n"]
        for path in (folder / "files").glob("*.jsonl")
        for line in path.read_text().splitlines()
    ]
    return sorted(lines)


async def test_each_message_is_counted_once_though_the_job_is_killed(
    forked: ForkServer, mqtt: Mqtt, tmp_path: Path
) -> None:
    topic = await made(mqtt)
    arguments = (mqtt.url, topic, str(tmp_path))
    random = Random(3)
    kills = 0

    async def kill(process: Forked) -> None:
        await asyncio.sleep(random.uniform(0, 0.1))
        process.kill()

    for _ in range(3):
        kills += not await run(forked, arguments, random.randint(1, 2), kill)
    (tmp_path / "go").touch()
    while not await run(forked, arguments, 0):
        pass

    assert kills == 3
    assert in_files(tmp_path) == list(range(COUNT))
    assert await mqtt.numbers(f"{topic}-out", COUNT) == set(range(COUNT))


async def test_each_message_is_counted_though_the_broker_is_killed(
    forked: ForkServer, own_broker: Mosquitto, tmp_path: Path
) -> None:
    mqtt = Mqtt(own_broker.url)
    topic = await made(mqtt)

    async def restart(process: Forked) -> None:
        own_broker.kill()
        own_broker.start()
        (tmp_path / "go").touch()

    assert await run(forked, (mqtt.url, topic, str(tmp_path)), 2, restart)

    assert set(in_files(tmp_path)) == set(range(COUNT))
