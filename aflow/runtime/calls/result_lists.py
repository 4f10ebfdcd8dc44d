"""Async generator functions as coroutine functions that return lists."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterable, Awaitable, Callable
from functools import partial, wraps
from typing import Any


def collecting(fn: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    """Return ``fn``, or a coroutine function that returns the list of its results if it is an async generator function.

    The kind of other functions, such as lambdas, is known from their first result only.
    """
    if gives_one_by_one(fn):
        return _like(fn, lambda *arguments: _list_of(fn(*arguments)))
    if _gives_one_result(fn):
        return fn

    def looking(*arguments: Any) -> Any:
        given: Any = fn(*arguments)
        return _list_of(given) if hasattr(given, "__aiter__") else given

    return _like(fn, looking)


def gives_one_by_one(fn: Callable[..., Any]) -> bool:
    """True for async generator functions and methods, and objects whose ``__call__`` is one."""
    return any(map(inspect.isasyncgenfunction, _inside(fn)))


def _gives_one_result(fn: Callable[..., Any]) -> bool:
    return any(map(inspect.iscoroutinefunction, _inside(fn)))


def _inside(fn: Callable[..., Any]) -> tuple[Any, Any]:
    inner = fn.func if isinstance(fn, partial) else fn
    return inner, getattr(inner, "__call__", inner)  # noqa: B004


async def _list_of(results: AsyncIterable[Any]) -> list[Any]:
    try:
        return [result async for result in results]
    finally:
        close: Callable[[], Awaitable[object]] | None = getattr(results, "aclose", None)
        if close is not None:
            await close()


def _like(fn: Callable[..., Any], called: Callable[..., Any]) -> Callable[..., Any]:
    named = fn.func if isinstance(fn, partial) else fn
    return wraps(named, updated=())(called)
