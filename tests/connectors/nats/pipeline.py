"""A pipeline from NATS to NATS for tests that kill it: ``python -m tests.connectors.nats.pipeline`` (see main)."""

from __future__ import annotations

import asyncio
import re
import sys

from aflow_connectors.nats import NatsSink, NatsSource
from tests.connectors.windows import run_windows


async def main(url: str, source: str, sink: str, folder: str) -> None:
    """Run it to the end of the input, and print a line for each complete checkpoint."""
    await run_windows(
        NatsSource(url, re.compile(f"{source}.*"), of=int, until="now"),
        NatsSink(url, sink),
        folder,
        times="of numbers",
    )


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
