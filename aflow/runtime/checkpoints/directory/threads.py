"""Work that is completed although it is cancelled: the cancellation is raised after its end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from anyio import (
    CancelScope,
    CapacityLimiter,
    create_task_group,
    get_cancelled_exc_class,
    to_thread,
)

T = TypeVar("T")


async def to_its_end(work: Callable[[], T], limiter: CapacityLimiter) -> T:
    """Do ``work`` in a thread; once it has begun, a cancellation waits for its end."""
    return await in_a_task(lambda: to_thread.run_sync(work, limiter=limiter))


async def in_a_task(work: Callable[[], Awaitable[T]], *, shielded: bool = False) -> T:
    """Do ``work`` in a task of its own, so that its shields hold against any cancellation; or shield all of it.

    A shield of anyio (``to_thread.run_sync`` has one) protects from the cancellation of an enclosing scope, but not
    from that of the task it runs in. A task of a group is cancelled by the scope of the group, and by nothing else.
    """
    results: list[T] = []
    failures: list[BaseException] = []

    async def do() -> None:
        try:
            with CancelScope(shield=shielded):
                results.append(await work())
        except get_cancelled_exc_class():
            raise
        except BaseException as exc:  # raised below: a group would wrap it
            failures.append(exc)

    async with create_task_group() as group:
        group.start_soon(do)
    if failures:
        raise failures[0]
    return results[0]
