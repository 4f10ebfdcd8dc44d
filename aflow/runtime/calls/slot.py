"""One of the coroutines that make the calls of an async step, and the error for functions without a coroutine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextvars import Context
from typing import cast

from aflow.errors import shown
from aflow.machines.calls.call import Call
from aflow.machines.calls.failures import not_awaited

Report = Callable[[str, str, float], None]
"""Report the step, an event, and its duration in seconds."""


class Slot:
    """One coroutine that makes calls."""

    __slots__ = ("begun", "call", "cancelled", "check", "context", "reported", "rest", "task")

    def __init__(self, context: Context) -> None:
        #: The context variables of its calls.
        self.context = context
        #: Set when the slot is made.
        self.task: asyncio.Task[None]
        #: True from the first step of its task.
        self.begun = False
        #: The call that it awaits; None while it rests.
        self.call: Call | None = None
        #: The future that it rests on; None while it does not rest.
        self.rest: asyncio.Future[None] | None = None
        #: True if its call was cancelled because its result does not count any more.
        self.cancelled = False
        #: True if its call was reported as abandoned.
        self.reported = False
        #: The timer that checks whether a cancelled call has ended.
        self.check: asyncio.TimerHandle | None = None

    def cancel_check(self) -> None:
        """Cancel the check: the call has ended, or the job has."""
        if self.check is not None:
            self.check.cancel()
            self.check = None


def not_awaitable(given: object) -> TypeError:
    """Return the error for a function that returned ``given``, which cannot be awaited."""
    if isinstance(given, AsyncGenerator):
        return not_awaited(cast("AsyncGenerator[object]", given))
    return TypeError(
        f"the function returned {shown(given)}, which cannot be awaited; write it as async def, or use the method "
        f"without _async"
    )
