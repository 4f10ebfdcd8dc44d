"""A time limit for calls that may never return."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from datetime import timedelta
from typing import Final, TypeVar

R = TypeVar("R")

#: The default limit of a single call, in loop time.
PATIENCE: Final = timedelta(seconds=10)


class TooSlow(AssertionError):
    """A call did not return in time."""


async def in_time(work: Awaitable[R], patience: timedelta, what: str) -> R:
    """Return the result of ``work``. Raises ``TooSlow``, which names ``what``, after ``patience`` of loop time."""
    waiting = asyncio.timeout(patience.total_seconds())
    try:
        async with waiting:
            return await work
    except TimeoutError as exc:
        if waiting.expired():
            raise TooSlow(f"{what} did not return within {patience.total_seconds()} s") from exc
        raise
