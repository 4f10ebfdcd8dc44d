"""Calls of a connector while its connections are cut."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias, TypeVar

R = TypeVar("R")

Disturb: TypeAlias = Callable[[], object]
"""Cuts the connections of a connector; plain or ``async``."""


async def cut(disturb: Disturb) -> None:
    """Cut the connections now."""
    done = disturb()
    if isinstance(done, Awaitable):
        await done


async def while_cut(work: Awaitable[R], disturb: Disturb) -> R:
    """Return the result of ``work``; connections are cut once it has begun. Raises what ``work`` does."""
    failures: list[Exception] = []

    async def working() -> list[R]:
        try:
            return [await work]
        except Exception as exc:  # not through the group, which would wrap it
            failures.append(exc)
            return []

    async with asyncio.TaskGroup() as group:
        task = group.create_task(working())
        await asyncio.sleep(0)
        await cut(disturb)
    for failure in failures:
        raise failure
    return task.result()[0]
