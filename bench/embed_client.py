"""The client of ``embed``: sends requests at a fixed rate, and prints the latency of each in seconds as JSON.

``python -m bench.embed_client PORT RATE``. Each line of its input is the number of seconds for which it sends requests
then, and it prints one line for each.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time

import aiohttp


async def main(port: int, rate: int) -> None:
    """Send requests for each line of the input."""
    connector = aiohttp.TCPConnector(limit=64, keepalive_timeout=300)
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}", connector=connector) as session:
        while line := sys.stdin.readline():  # between two phases the loop has nothing to do
            gc.collect()
            print(json.dumps(await _latencies(session, rate, float(line))), flush=True)


async def _latencies(session: aiohttp.ClientSession, rate: int, seconds: float) -> list[float]:
    """Send ``rate`` requests a second. A request that is due is sent even if others are not answered."""
    latencies: list[float] = []

    async def ask(page: int, due: float) -> None:
        async with session.get(f"/pages/{page}") as response:
            await response.read()
            assert response.status == 200
        latencies.append(time.perf_counter() - due)

    for page in range(20):  # connections are opened
        await ask(page, 0.0)
    latencies.clear()
    begin = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for page in range(round(rate * seconds)):
            due = begin + page / rate
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            # From the moment at which it is sent: a client that is late itself must not count.
            group.create_task(ask(page, time.perf_counter()))
    return latencies


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2])))
