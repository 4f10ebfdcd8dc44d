"""The time that the readers and writers of a job have to close, once it is limited.

A close is not cancelled with its job, since it releases what the job holds. So one that waits for a broker that does
not answer holds up the end of the job without a limit, and with it the end of the process. ``Job.cancel`` with
``close_within``, and the deadline of ``Job.stop``, limit it. Calls and resources have grace times of their own.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from datetime import timedelta
from typing import Final

from aflow.model.time import positive_millis

#: The time for all closes after the deadline of a stop.
GRACE: Final = timedelta(seconds=5)

#: Seconds for each close that begins when the time of all of them is over.
_LEAST: Final = 1.0


class CloseLimit:
    """The limit of one job; none until ``start``."""

    def __init__(self) -> None:
        #: The moment (s, of the loop) from which closes are cancelled.
        self._until = math.inf
        self._under_way: set[asyncio.Timeout] = set()
        #: The number of closes that were cancelled.
        self._cancelled = 0

    @property
    def left(self) -> str:
        """The closes that were cancelled, as the end of a phrase; empty if there are none."""
        what = "reader or writer" if self._cancelled == 1 else "readers or writers"
        return f", {self._cancelled} {what} that did not close" if self._cancelled else ""

    def enter(self) -> None:
        """Apply to all closes in the current task, and in those that it creates from now on."""
        _LIMIT.set(self)

    def start(self, within: timedelta) -> None:
        """Cancel each close that has not ended within this time. An earlier end that was set before remains.

        Raises ``FlowDefinitionError`` if the time is not positive.
        """
        seconds = positive_millis(within, what="close_within of cancel()") / 1000
        self._until = min(self._until, asyncio.get_running_loop().time() + seconds)
        for timeout in self._under_way:
            timeout.reschedule(self._end())

    async def run(self, close: Callable[[], Awaitable[None]]) -> None:
        """Call ``close``. Raises ``CancelledError`` if its time was over, as a part of the cancelled job, and its
        errors."""
        timeout = asyncio.timeout_at(self._end())
        try:
            async with timeout:
                self._under_way.add(timeout)
                await close()
        except TimeoutError:
            if timeout.expired():
                raise asyncio.CancelledError from None
            raise
        finally:
            self._under_way.discard(timeout)
            self._cancelled += timeout.expired()

    def _end(self) -> float | None:
        """Return the end of a close that is under way or begins now."""
        if self._until == math.inf:
            return None
        return max(self._until, asyncio.get_running_loop().time() + _LEAST)


_LIMIT: Final[ContextVar[CloseLimit | None]] = ContextVar("aflow_close_limit", default=None)


async def close_in_time(close: Callable[[], Awaitable[None]]) -> None:
    """Call ``close`` within the limit of the current job, as ``CloseLimit.run``."""
    limit = _LIMIT.get()
    if limit is None:
        await close()
    else:
        await limit.run(close)
