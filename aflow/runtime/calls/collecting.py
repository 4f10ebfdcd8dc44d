"""Functions whose results come one by one, as functions that are awaited."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from functools import partial, wraps
from typing import Any


def collecting(fn: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    """``fn``; if it is an async generator function, a coroutine function that gives the list of its results."""
    if not _gives_one_by_one(fn):
        return fn

    async def collected(*arguments: Any) -> list[Any]:
        async with aclosing(fn(*arguments)) as results:
            return [result async for result in results]

    named = fn.func if isinstance(fn, partial) else fn
    return wraps(named, updated=())(collected)


def _gives_one_by_one(fn: Callable[..., Any]) -> bool:
    inner = fn.func if isinstance(fn, partial) else fn
    call = getattr(inner, "__call__", inner)  # noqa: B004
    return inspect.isasyncgenfunction(inner) or inspect.isasyncgenfunction(call)
