"""How many requests the service works on at once, which changes while it runs, and who has to wait or is sent away."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

#: Requests at once: full, halved twice, doubled again. After the last comes the first.
CAPACITIES: Final = (32, 16, 8, 16)


class NoRoom(Exception):
    """As many requests are worked on as can be, and enough of them wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacities:
    """How many requests are worked on at once, after so many were."""

    phase: int
    """After so many requests comes the next one of ``each``."""
    each: tuple[int, ...] = CAPACITIES

    def after(self, requests: int) -> int:
        """The capacity once ``requests`` were worked on."""
        return self.each[requests // self.phase % len(self.each)]


class Desk:
    """Lets requests in up to a capacity. Half as many again wait, in the order in which they came; others are refused.

    So a client that asks too much at once first sees that answers take longer, and then that it is sent away.
    """

    def __init__(self, capacities: Capacities) -> None:
        self._capacities = capacities
        #: Done when the request may go on.
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._inside = 0
        self._done = 0

    @property
    def capacity(self) -> int:
        """How many may be inside now."""
        return self._capacities.after(self._done)

    @asynccontextmanager
    async def inside(self) -> AsyncGenerator[None]:
        """Waits for a place, and has it meanwhile. Raises ``NoRoom`` if there is none to wait in either."""
        await self._come_in()
        try:
            yield
        finally:
            self._inside -= 1
            self._done += 1
            self._let_in()

    async def _come_in(self) -> None:
        if len(self._waiting) >= max(1, self.capacity // 2):
            raise NoRoom
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self._let_in()
        try:
            await turn
        except asyncio.CancelledError:
            if turn in self._waiting:
                self._waiting.remove(turn)
            else:  # its turn came, and nobody is there any more
                self._inside -= 1
                self._let_in()
            raise

    def _let_in(self) -> None:
        while self._waiting and self._inside < self.capacity:
            self._inside += 1
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
