"""Whose ``CancelledError`` it is: that of the job, or one that a user's coroutine raised by itself."""

from __future__ import annotations

from asyncio import current_task


def being_cancelled() -> bool:
    """True if somebody has cancelled the task that runs, even if a user's coroutine has swallowed the error since.

    Otherwise a ``CancelledError`` is the coroutine's own (it awaited something that another had cancelled), and
    letting it pass would end the job's task as if the job had been cancelled.
    """
    task = current_task()
    return task is not None and task.cancelling() > 0
