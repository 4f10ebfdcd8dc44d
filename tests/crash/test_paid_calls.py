"""A killed program does not make calls again whose results are in its checkpoint.

The calls are counted by a service outside of the program that is killed. Nothing here depends on how long anything
takes: the kill waits for a checkpoint that was triggered after the calls had been answered.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from pathlib import Path

import pytest

from tests.forked import Forked, ForkServer

RECORDS = 20
#: The call whose answer waits, and all later results behind it.
SLOW = 0
#: Calls that are under way at the kill, too.
UNANSWERED = {SLOW, 17, 18, 19}


class CountingService:
    """Counts calls by number. The calls in ``UNANSWERED`` wait until ``released``."""

    def __init__(self) -> None:
        self.counts = Counter[int]()
        self.released = asyncio.Event()
        self.all_asked = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            number = int(await reader.readline())
            self.counts[number] += 1
            if len(self.counts) == RECORDS:
                self.all_asked.set()
            if number in UNANSWERED:
                await self.released.wait()
            writer.write(f"{number * number}\n".encode())
            await writer.drain()
        except (ConnectionError, ValueError):
            pass  # the program was killed
        finally:
            writer.close()


async def line(process: Forked) -> object:
    return json.loads(await process.stdout.readline())


@pytest.mark.slow
@pytest.mark.asyncio
async def test_no_call_whose_result_is_in_a_checkpoint_is_made_again_after_a_kill(
    forked: ForkServer, tmp_path: Path
) -> None:
    service = CountingService()
    async with await asyncio.start_server(service.serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        killed = await forked.start("tests.crash.paid_calls", port, tmp_path, RECORDS)
        await service.all_asked.wait()
        told = Counter[object]()
        while told["answer"] < RECORDS - len(UNANSWERED):
            told[await line(killed)] += 1
        for _ in range(2):  # the first one may have begun before the last answer
            assert await line(killed) == "CheckpointInfo"
        killed.kill()
        await killed.wait()
        before = service.counts.copy()

        service.released.set()
        again = await forked.start("tests.crash.paid_calls", port, tmp_path, RECORDS)
        while not isinstance(results := await line(again), list):
            pass
        await again.wait()

    assert before == dict.fromkeys(range(RECORDS), 1)
    assert results == [number * number for number in range(RECORDS)]
    assert service.counts - before == dict.fromkeys(UNANSWERED, 1)
