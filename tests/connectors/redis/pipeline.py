"""A pipeline from Redis to Redis for tests that kill it: ``python -m tests.connectors.redis.pipeline`` (see main)."""

from __future__ import annotations

import asyncio
import re
import sys

from aflow_connectors.redis import RedisSink, RedisSource
from tests.connectors.windows import run_windows


async def main(url: str, source: str, sink: str, folder: str, group: str | None = None) -> None:
    """Run it to the end of the input, and print a line for each complete checkpoint.

    With a ``group`` it reads as a consumer of it.
    """
    read = RedisSource(
        url,
        re.compile(f"{source}.*"),
        until="now",
        group=group,
        consumer=None if group is None else "only",
    )
    await run_windows(read, RedisSink(url, sink), folder)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
