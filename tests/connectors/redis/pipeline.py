"""A pipeline from Redis to Redis for tests that kill it: ``python -m tests.connectors.redis.pipeline`` (see main)."""

from __future__ import annotations

import asyncio
import re
import sys

from aflow_connectors.redis import RedisSink, RedisSource
from tests.connectors.windows import run_windows


async def main(url: str, source: str, sink: str, folder: str) -> None:
    """Run it to the end of the input, and print a line for each complete checkpoint."""
    pattern = re.compile(f"{source}.*")
    await run_windows(RedisSource(url, pattern, until="now"), RedisSink(url, sink), folder)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
