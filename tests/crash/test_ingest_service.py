"""A web service that is killed under load has each payment that it accepted in its output, exactly once."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random

import aiohttp
import pytest

from tests.forked import Forked, ForkServer

CLIENTS = 16
#: In CI; ``KILLS=1000`` for a proof.
KILLS = int(os.environ.get("KILLS", "10"))
ACCEPTED, REFUSED = 202, 503


class Served:
    """The service, which is started again after each kill."""

    def __init__(self, forked: ForkServer, folder: Path) -> None:
        self.folder = folder
        self.address = ""
        self.process: Forked | None = None
        self._forked = forked

    async def start(self) -> None:
        program = ("aiohttp_ingest", "--folder", self.folder, "--port", 0)
        self.process = await self._forked.start(*program)
        line = (await self.process.stdout.readline()).decode()
        assert "listening on " in line, line
        self.address = line.split()[-1]

    async def kill(self) -> None:
        assert self.process is not None
        self.address = ""
        self.process.kill()
        await self.process.wait()

    async def stop(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        assert await self.process.wait() == 0


class Client:
    """Sends payments one after the other, each until it has an answer."""

    def __init__(self, number: int, served: Served, session: aiohttp.ClientSession) -> None:
        self._number = number
        self._served = served
        self._session = session
        self.accepted: list[str] = []
        #: Refused, and never sent again.
        self.refused: list[str] = []
        self.repeats = 0
        self.ends = False

    async def run(self) -> None:
        while not self.ends:
            order = f"client {self._number} order {len(self.accepted) + len(self.refused)}"
            status = await self._send(order)
            assert status in (ACCEPTED, REFUSED)
            (self.accepted if status == ACCEPTED else self.refused).append(order)

    async def _send(self, order: str) -> int:
        """Send a payment until there is an answer; without one it is unknown if it was accepted."""
        while True:
            if self._served.address:
                try:
                    async with self._session.post(
                        f"{self._served.address}/payments",
                        json={"card": f"card {self._number % 4}", "cents": 1},
                        headers={"Idempotency-Key": order},
                    ) as response:
                        return response.status
                except aiohttp.ClientError:
                    self.repeats += 1
            await asyncio.sleep(0.01)


@asynccontextmanager
async def clients(served: Served) -> AsyncGenerator[list[Client]]:
    """Run clients during the block; each completes its last payment."""
    async with aiohttp.ClientSession() as session, asyncio.TaskGroup() as group:
        running = [Client(number, served, session) for number in range(CLIENTS)]
        for client in running:
            group.create_task(client.run())
        yield running
        for client in running:
            client.ends = True


def rows(folder: Path) -> list[dict[str, object]]:
    return [
        json.loads(line)
        for path in sorted((folder / "output").glob("*.jsonl"))
        for line in path.read_text().splitlines()
    ]


@pytest.mark.slow
@pytest.mark.asyncio
async def test_each_accepted_payment_is_in_the_output_exactly_once(
    forked: ForkServer, tmp_path: Path
) -> None:
    random, served = Random(1), Served(forked, tmp_path)
    await served.start()
    async with clients(served) as running:
        for _ in range(KILLS):
            await _answered(running, random.randint(2 * CLIENTS, 8 * CLIENTS))
            await asyncio.sleep(random.uniform(0, 0.02))
            await served.kill()
            await served.start()
        await _answered(running, 2 * CLIENTS)
    accepted = Counter(order for client in running for order in client.accepted)
    await _until_written(tmp_path, len(accepted))
    await served.stop()

    orders = Counter(str(row["order"]) for row in rows(tmp_path))

    assert orders == accepted
    assert max(accepted.values()) == 1
    assert len(accepted) > 20 * KILLS
    assert sum(client.repeats for client in running) > 0


async def _answered(clients: list[Client], payments: int) -> None:
    """Wait until the clients have answers to so many more payments."""

    def answers() -> int:
        return sum(len(one.accepted) + len(one.refused) for one in clients)

    last = answers() + payments
    async with asyncio.timeout(300):
        while answers() < last:  # noqa: ASYNC110 - clients count in other tasks
            await asyncio.sleep(0.005)


async def _until_written(folder: Path, payments: int) -> None:
    """Wait until the output has so many rows; more would be an error, which the caller finds."""
    async with asyncio.timeout(300):
        while len(rows(folder)) < payments:  # noqa: ASYNC110 - another process writes them
            await asyncio.sleep(0.1)
