"""Blocking calls on one resource, in a worker thread, never two at once."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import TypeVar

from anyio import CancelScope, to_thread

T = TypeVar("T")


class WorkerThread:
    """Where the blocking calls on a file are made.

    A call that is cancelled goes on in its thread until it is done. The lock makes the next one, at the latest the
    one that closes the file, wait for that: nobody ever closes a file that is being read.
    """

    def __init__(self) -> None:
        self._lock = Lock()

    async def run(self, call: Callable[[], T]) -> T:
        """The result of ``call``, which runs in a worker thread once all calls before it have ended."""
        return await to_thread.run_sync(self._locked, call)

    async def finish(self, call: Callable[[], None]) -> None:
        """As ``run``, but also where everything around it is cancelled: for what closes and cleans up."""
        with CancelScope(shield=True):
            await self.run(call)

    def _locked(self, call: Callable[[], T]) -> T:
        with self._lock:
            return call()
