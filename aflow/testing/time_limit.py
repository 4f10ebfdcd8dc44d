"""Calls of a user's methods in checks: they may never return, or not be ``async``."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from inspect import isawaitable, iscoroutinefunction
from typing import Final, TypeVar

from aflow.errors import FlowDefinitionError, shown

R = TypeVar("R")

#: The default limit of a single call, in loop time.
PATIENCE: Final = timedelta(seconds=60)


class TooSlow(AssertionError):
    """A call did not return in time."""


async def in_time(work: Awaitable[R], patience: timedelta, what: str) -> R:
    """Return the result of ``work``, which ``what`` returned. Raises ``TooSlow`` after ``patience`` of loop time.

    Raises ``AssertionError`` if ``work`` is not awaitable: the user's method is not ``async``.
    """
    if not isawaitable(work):
        raise AssertionError(
            f"{what} returned {shown(work)}, which cannot be awaited; define the method with async def"
        )
    waiting = asyncio.timeout(patience.total_seconds())
    try:
        async with waiting:
            return await work
    except TimeoutError as exc:
        if waiting.expired():
            raise TooSlow(f"{what} did not return within {patience.total_seconds()} s") from exc
        raise


def check_not_async(make: Callable[..., object], name: str) -> None:
    """Raise ``FlowDefinitionError`` if ``make``, the argument ``name`` of a check, is a coroutine function."""
    if iscoroutinefunction(make):
        raise FlowDefinitionError(f"{name} must be a plain function, not a coroutine function")
