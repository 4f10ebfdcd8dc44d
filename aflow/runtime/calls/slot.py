"""A coroutine that makes calls of an async step, as ``slots.py`` sees it."""

from __future__ import annotations

import asyncio
from contextvars import Context

from aflow.machines.calls.call import Call


class Slot:
    """One coroutine that makes calls."""

    __slots__ = ("begun", "call", "cancelled", "check", "context", "reported", "task")

    def __init__(self, context: Context) -> None:
        #: The context variables of its calls.
        self.context = context
        #: Set when the slot is made.
        self.task: asyncio.Task[None]
        #: True from the first step of its task.
        self.begun = False
        #: The call that it awaits; None while it rests.
        self.call: Call | None = None
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
