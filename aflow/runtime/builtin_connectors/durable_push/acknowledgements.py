"""The promises a sender can wait for, and the waits for those that a job keeps."""

from __future__ import annotations

import asyncio
import heapq
from enum import Enum
from itertools import count
from typing import Final


class Ack(Enum):
    """The moment at which ``DurablePushSource.send`` returns."""

    MEMORY = "memory"
    """The record is queued to be logged. A crash at this moment loses it. So does a failure to write, which is a
    warning in the program's log."""
    LOGGED = "logged"
    """The record is in the log on disk, synced: a crash or a loss of power does not lose it."""
    CHECKPOINTED = "checkpointed"
    """A completed checkpoint covers the record: its effects on state are restored after a crash."""


class Waits:
    """Senders that wait until a position is reached."""

    def __init__(self) -> None:
        #: All records before it have reached the promise.
        self.reached = 0
        self._order: Final = count()
        #: Position after a record, and its sender; a heap.
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    async def until(self, position: int) -> None:
        """Wait until ``position`` is reached. Raises the error given to ``fail``."""
        if position <= self.reached:
            return
        reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (position, next(self._order), reached)
        heapq.heappush(self._waiting, entry)
        try:
            await reached
        except asyncio.CancelledError:
            if entry in self._waiting:
                self._waiting.remove(entry)
                heapq.heapify(self._waiting)
            raise

    def reach(self, position: int) -> None:
        """Advance to ``position``, and release the senders that waited for it; it never goes back."""
        self.reached = max(self.reached, position)
        while self._waiting and self._waiting[0][0] <= self.reached:
            _, _, sender = heapq.heappop(self._waiting)
            if not sender.done():
                sender.set_result(None)

    def fail(self, error: Exception) -> None:
        """Raise ``error`` in all senders that wait."""
        waiting, self._waiting = self._waiting, []
        for _, _, sender in waiting:
            if not sender.done():
                sender.set_exception(error)
