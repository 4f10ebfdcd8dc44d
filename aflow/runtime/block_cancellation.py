"""Cancels a block of the host if a job fails, for hosts that cannot do anything without the job.

After ``asyncio.timeout``: the task that runs the block is cancelled, and the end of the block replaces the
cancellation by the failure. A cancellation by others that arrives at the same time has precedence.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType


class CancelOnFailure:
    """The block of ``async with job.cancel_on_failure():``. It can be entered once."""

    def __init__(
        self, running: asyncio.Task[None], failure: Callable[[], BaseException | None]
    ) -> None:
        """``running`` is the task of the job. ``failure`` returns the error with which the job has ended, or None."""
        self._running = running
        self._failure = failure
        #: The task that runs the block; None before.
        self._task: asyncio.Task[object] | None = None
        #: Requests to cancel the task before the block.
        self._requests_before = 0
        #: True once the block was cancelled.
        self._cancelled = False
        #: True after the block: a callback that was scheduled before has no effect.
        self._ended = False

    async def __aenter__(self) -> None:
        if self._task is not None:
            raise RuntimeError("a block of cancel_on_failure() was entered before: call it again")
        self._task = asyncio.current_task()
        assert self._task is not None
        self._raise_failure()
        self._requests_before = self._task.cancelling()
        self._running.add_done_callback(self._on_job_end)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._running.remove_done_callback(self._on_job_end)
        self._ended = True
        if not self._cancelled or self._task is None:
            return
        is_ours = self._task.uncancel() <= self._requests_before
        if is_ours and isinstance(error, asyncio.CancelledError):
            self._raise_failure()

    def _on_job_end(self, _: asyncio.Task[None]) -> None:
        if self._failure() is not None and self._task is not None and not self._ended:
            self._cancelled = self._task.cancel("the job has failed")

    def _raise_failure(self) -> None:
        """Raise the failure of the job, if it has one. Its context is the one that it had."""
        failure = self._failure()
        if failure is None:
            return
        context = failure.__context__
        try:
            raise failure
        finally:
            failure.__context__ = context
