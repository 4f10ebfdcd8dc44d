"""A pipeline from Kafka to Kafka for tests that kill it: ``python -m tests.connectors.kafka.pipeline`` (see main)."""

from __future__ import annotations

import asyncio
import sys

from aflow_connectors.kafka import KafkaSink, KafkaSource
from tests.connectors.windows import run_windows


async def main(servers: str, source: str, sink: str, folder: str) -> None:
    """Run it to the end of the input, and print a line for each complete checkpoint."""
    await run_windows(
        KafkaSource(servers, source, of=int, until="now"),
        KafkaSink(servers, sink, key=lambda one: str(one["key"])),
        folder,
    )


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
