"""A pipeline from NATS to NATS gives the same output when its process or its server is killed, seen from outside."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Final

import pytest

from tests.connectors.nats.server import NatsServer
from tests.connectors.windows import expected, run_killed, run_process

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]

PIPELINE: Final = "tests.connectors.nats.pipeline"

#: Numbers of the input, in three streams.
COUNT: Final = 12_000


async def fill(server: NatsServer, stream: str, count: int) -> None:
    await server.create(f"{stream}-out")
    for part in range(3):
        name = await server.create(f"{stream}-in-{part}")
        await server.publish(name, *(b"%d" % n for n in range(part, count, 3)))


async def output(server: NatsServer, stream: str) -> list[tuple[int, int, int]]:
    found = map(json.loads, await server.bodies(stream))
    return sorted((one["key"], one["start"], one["sum"]) for one in found)


async def test_a_job_that_is_killed_publishes_each_result_once(
    nats_server: NatsServer, stream: str, tmp_path: Path
) -> None:
    await fill(nats_server, stream, COUNT)
    arguments = (nats_server.url, f"{stream}-in", f"{stream}-out", str(tmp_path))

    assert await run_killed(PIPELINE, arguments, kills=3) == 3

    assert await output(nats_server, f"{stream}-out") == expected(COUNT)


async def test_a_job_continues_when_the_server_is_killed_and_back(
    own_nats: NatsServer, stream: str, tmp_path: Path
) -> None:
    await fill(own_nats, stream, COUNT)

    async def restart(process: asyncio.subprocess.Process) -> None:
        own_nats.kill()
        own_nats.start()

    arguments = (own_nats.url, f"{stream}-in", f"{stream}-out", str(tmp_path))
    assert await run_process(PIPELINE, arguments, 2, restart)

    assert await output(own_nats, f"{stream}-out") == expected(COUNT)
