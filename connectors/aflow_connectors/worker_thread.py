"""Blocking calls on one resource, in a worker thread, one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from threading import Event, Lock
from typing import TypeVar

from anyio import CancelScope, get_cancelled_exc_class, to_thread

from aflow.errors import InternalError

T = TypeVar("T")


class WorkerThread:
    """Runs the blocking calls on one resource, such as a file.

    A cancelled call continues in its thread until it is done, or does not begin. The lock makes the next call, at the
    latest the one that closes the file, wait for that: a file is never closed while it is read, nor opened after that.
    """

    def __init__(self) -> None:
        self._lock = Lock()

    async def run(self, call: Callable[[], T]) -> T:
        """Return the result of ``call``, which runs in a worker thread after all earlier calls have ended."""
        cancelled = Event()
        try:
            return await to_thread.run_sync(self._locked, call, cancelled)
        except get_cancelled_exc_class():
            cancelled.set()
            raise

    async def finish(self, call: Callable[[], None]) -> None:
        """Run ``call`` like ``run``, and even if cancelled: for closing and cleaning up.

        A cancellation ends the wait, not the call.
        """
        # A thread of anyio, or a task, drops a call that is cancelled before it begins.
        running = asyncio.get_running_loop().run_in_executor(None, self._locked, call, Event())
        with CancelScope(shield=True):
            await asyncio.shield(running)

    async def complete(self, call: Callable[[], T]) -> T:
        """Return the result of ``call``, which runs like ``run``, but to its end: a cancellation is raised after that.

        For calls that must not continue after the end of the job, since the next one would meet them.
        """
        running = asyncio.get_running_loop().run_in_executor(None, self._locked, call, Event())
        cancellation: asyncio.CancelledError | None = None
        with CancelScope(shield=True):
            while not running.done():
                try:
                    await asyncio.wait([running])
                except asyncio.CancelledError as exc:
                    cancellation = exc
        if cancellation is not None:
            running.exception()  # retrieved here: the cancellation goes before it
            raise cancellation
        return running.result()

    def _locked(self, call: Callable[[], T], cancelled: Event) -> T:
        with self._lock:
            if cancelled.is_set():
                raise InternalError("a cancelled call was waited for")  # no caller is left
            return call()
