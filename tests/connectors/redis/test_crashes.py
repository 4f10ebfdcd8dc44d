"""A pipeline from Redis to Redis gives the same output when its process or its server is killed, seen from outside."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import pytest

from tests.connectors.redis.server import TestServer
from tests.connectors.windows import expected, run_killed, run_process

pytestmark = [pytest.mark.asyncio, pytest.mark.slow]

PIPELINE: Final = "tests.connectors.redis.pipeline"

#: Numbers of the input, in three streams.
COUNT: Final = 12_000


def fill(server: TestServer, stream: str, count: int) -> None:
    for part in range(3):
        numbers = range(part, count, 3)
        server.add(
            f"{stream}-in-{part}", *({"n": n} for n in numbers), ids=[f"{n}-1" for n in numbers]
        )


def output(server: TestServer, stream: str) -> list[tuple[int, int, int]]:
    found = server.contents(stream)
    return sorted((int(one["key"]), int(one["start"]), int(one["sum"])) for one in found)


@pytest.mark.parametrize("group", [None, "group"], ids=["by position", "by group"])
async def test_a_job_that_is_killed_writes_each_result_once(
    redis_server: TestServer, stream: str, tmp_path: Path, group: str | None
) -> None:
    fill(redis_server, stream, COUNT)
    arguments = [redis_server.url, f"{stream}-in", f"{stream}-out", str(tmp_path)]
    if group is not None:
        arguments.append(group)

    assert await run_killed(PIPELINE, arguments, kills=3) == 3

    assert output(redis_server, f"{stream}-out") == expected(COUNT)


async def test_a_job_continues_when_the_server_is_killed_and_back(
    own_redis: TestServer, stream: str, tmp_path: Path
) -> None:
    fill(own_redis, stream, COUNT)

    async def restart(process: asyncio.subprocess.Process) -> None:
        own_redis.kill()
        own_redis.start()

    arguments = (own_redis.url, f"{stream}-in", f"{stream}-out", str(tmp_path))
    assert await run_process(PIPELINE, arguments, 2, restart)

    assert output(own_redis, f"{stream}-out") == expected(COUNT)
