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
    PROCESSED = "processed"
    """All sinks have committed the results of the record, those of its calls too. A result that waits for event time,
    as that of an open window, is not waited for: the record is in the window, and a checkpoint covers it."""


class Waits:
    """Senders that wait until a position is reached."""

    def __init__(self) -> None:
        #: All records before it have reached the promise.
        self.reached = 0
        self._order: Final = count()
        self._failure: Exception | None = None
        #: Position after a record, and its sender; a heap.
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        #: The most of them that are cancelled.
        self._cancelled = 0

    def __len__(self) -> int:
        return len(self._waiting)

    async def until(self, position: int) -> None:
        """Wait until ``position`` is reached. Raises the error given to ``fail``, which may precede the wait."""
        if position <= self.reached:
            return
        if self._failure is not None:
            raise self._failure
        reached: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (position, next(self._order), reached))
        try:
            await reached
        except asyncio.CancelledError:
            self._on_cancelled()
            raise

    def _on_cancelled(self) -> None:
        """Remove cancelled senders once they are the majority: while a job restarts, no position is reached."""
        self._cancelled += 1
        if 2 * self._cancelled > len(self._waiting):
            self._waiting = [one for one in self._waiting if not one[2].done()]
            heapq.heapify(self._waiting)
            self._cancelled = 0

    def reach(self, position: int) -> None:
        """Advance to ``position``, and release the senders that waited for it; it never goes back."""
        self.reached = max(self.reached, position)
        while self._waiting and self._waiting[0][0] <= self.reached:
            _, _, sender = heapq.heappop(self._waiting)
            if not sender.done():
                sender.set_result(None)

    def resume(self) -> None:
        """Let senders wait again."""
        self._failure = None

    def fail(self, error: Exception) -> None:
        """Raise ``error`` in all senders that wait, and in later ones until ``resume``."""
        self._failure = error
        waiting, self._waiting = self._waiting, []
        for _, _, sender in waiting:
            if not sender.done():
                sender.set_exception(error)
