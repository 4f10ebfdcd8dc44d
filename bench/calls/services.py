"""A service on the event loop that answers so many calls at once, and makes the others wait or turns them away."""

from __future__ import annotations

import asyncio
import random
from collections import deque

#: Seconds that an answer takes: evenly distributed between these two.
TAKES = (0.01, 0.03)
#: Seconds after which a call learns that it was turned away.
REJECT_AFTER = 0.005


class Overloaded(Exception):
    """All servers are busy."""


class Service:
    """Begins with 100 servers, then has half of them, then twice as many. Each answers one call at a time."""

    PHASES = (100, 50, 200)

    def __init__(self, *, rejects: bool) -> None:
        self._rejects = rejects
        self._servers = 0
        self._busy = 0
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._random = random.Random(11)
        self._loop = asyncio.get_running_loop()
        self._in_flight = 0
        self._changed_at = self._loop.time()
        #: Calls under way, times seconds.
        self._area = 0.0
        self.answered = 0
        self.rejected = 0
        #: Answered calls in each finished phase.
        self.by_phase: list[int] = []

    async def run(self, seconds: float) -> float:
        """Go through the phases, in ``seconds`` together; returns the mean number of calls under way."""
        began = self._loop.time()
        self._count(0)
        self._area = 0.0
        for servers in self.PHASES:
            self._servers = servers
            self._serve()
            await asyncio.sleep(seconds / len(self.PHASES))
            self.by_phase.append(self.answered - sum(self.by_phase))
        self._count(0)
        return self._area / (self._loop.time() - began)

    async def call(self, value: int) -> int:
        """Answer, once there is a server for it. Raises ``Overloaded``."""
        self._count(1)
        try:
            await self._server()
            try:
                await asyncio.sleep(self._random.uniform(*TAKES))
            finally:
                self._busy -= 1
                self._serve()
            self.answered += 1
            return value + 1
        finally:
            self._count(-1)

    async def _server(self) -> None:
        """Returns as soon as one is busy with this call."""
        if self._busy < self._servers:
            self._busy += 1
            return
        if self._rejects:
            await asyncio.sleep(REJECT_AFTER)
            self.rejected += 1
            raise Overloaded
        turn: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append(turn)
        await turn

    def _serve(self) -> None:
        while self._waiting and self._busy < self._servers:
            turn = self._waiting.popleft()
            if not turn.done():
                self._busy += 1
                turn.set_result(None)

    def _count(self, more: int) -> None:
        now = self._loop.time()
        self._area += self._in_flight * (now - self._changed_at)
        self._changed_at = now
        self._in_flight += more
