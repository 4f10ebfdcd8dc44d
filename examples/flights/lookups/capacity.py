"""Capacity of the service: concurrent requests, a bounded queue of waiting ones, and rejection of the rest."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

#: Maximum numbers of concurrent requests, one phase after the other, in a cycle.
CAPACITIES: Final = (32, 16, 8, 16)


class CapacityExceeded(Exception):
    """The capacity is used, and the queue is full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Capacities:
    """Capacity as a function of the number of completed requests."""

    phase: int
    """Number of requests until the next one of ``each`` applies."""
    each: tuple[int, ...] = CAPACITIES

    def after(self, requests: int) -> int:
        """Return the capacity after ``requests`` completed requests."""
        return self.each[requests // self.phase % len(self.each)]


class RequestLimiter:
    """Admit requests up to a capacity. Half as many more wait in a queue, in order; others are rejected.

    With growing concurrency a client first sees longer response times and then rejections.
    """

    def __init__(self, capacities: Capacities) -> None:
        self._capacities = capacities
        #: A future of each waiting request; it is done when the request is admitted.
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._admitted = 0
        self._completed = 0

    @property
    def capacity(self) -> int:
        """Concurrent requests that are admitted now."""
        return self._capacities.after(self._completed)

    @asynccontextmanager
    async def admitted(self) -> AsyncGenerator[None]:
        """Wait for admission, and hold it during the block. Raises ``CapacityExceeded`` if the queue is full."""
        await self._acquire()
        try:
            yield
        finally:
            self._admitted -= 1
            self._completed += 1
            self._admit()

    async def _acquire(self) -> None:
        if len(self._waiting) >= max(1, self.capacity // 2):
            raise CapacityExceeded
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        self._admit()
        try:
            await future
        except asyncio.CancelledError:
            if future in self._waiting:
                self._waiting.remove(future)
            else:  # admitted in the same pass of the event loop
                self._admitted -= 1
                self._admit()
            raise

    def _admit(self) -> None:
        while self._waiting and self._admitted < self.capacity:
            self._admitted += 1
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)
