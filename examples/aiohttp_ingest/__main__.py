"""``python -m aiohttp_ingest --folder data --port 8080``."""

from __future__ import annotations

import argparse
import asyncio
import signal
from pathlib import Path

from aiohttp import web

from aiohttp_ingest.pipeline import Ingest
from aiohttp_ingest.service import Service


async def serve(folder: Path, port: int) -> None:
    """Serve until SIGTERM or SIGINT."""
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    runner = web.AppRunner(Service(Ingest(folder)).application())
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", port)
        await site.start()
        address = runner.addresses[0]
        print(f"listening on http://{address[0]}:{address[1]}", flush=True)
        await stopped.wait()
    finally:
        await runner.cleanup()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("data"))
    parser.add_argument("--port", type=int, default=8080, help="0 chooses a free one")
    arguments = parser.parse_args()
    asyncio.run(serve(arguments.folder, arguments.port))


main()
