"""Blocking calls on one resource, in a worker thread, one at a time."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import TypeVar

from anyio import CancelScope, to_thread

T = TypeVar("T")


class WorkerThread:
    """Runs the blocking calls on one resource, such as a file.

    A cancelled call continues in its thread until it is done. The lock makes the next call, at the latest the one that
    closes the file, wait for that: a file is never closed while it is read.
    """

    def __init__(self) -> None:
        self._lock = Lock()

    async def run(self, call: Callable[[], T]) -> T:
        """Return the result of ``call``, which runs in a worker thread after all earlier calls have ended."""
        return await to_thread.run_sync(self._locked, call)

    async def finish(self, call: Callable[[], None]) -> None:
        """Run ``call`` like ``run``, even in a cancelled scope: for closing and cleaning up."""
        with CancelScope(shield=True):
            await self.run(call)

    def _locked(self, call: Callable[[], T]) -> T:
        with self._lock:
            return call()
