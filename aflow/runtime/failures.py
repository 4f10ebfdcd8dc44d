"""The choice of the one failure that a host sees, and the closing of everything after a failure."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Iterable
from contextlib import asynccontextmanager, contextmanager
from typing import cast

from aflow.errors import AflowError, described


def first_cause(error: BaseException) -> BaseException:
    """Return the failure to report: the first error of aflow's own in the group, else the first of all.

    Further failures are named in a note, since they are usually consequences of the first.
    """
    leaves = _leaves(error)
    chosen = next((leaf for leaf in leaves if isinstance(leaf, AflowError)), leaves[0])
    others = [leaf for leaf in leaves if leaf is not chosen]
    if others:
        kinds = ", ".join(described(leaf) for leaf in others[:3])
        chosen.add_note(f"{len(others)} more failed while the job was being stopped: {kinds}")
    return chosen


@contextmanager
def closing(closers: Iterable[Callable[[], None]]) -> Generator[None]:
    """Call every closer after the block, even if one of them fails.

    The failure of the block has precedence: those of closing become notes of it. Without one, the first is raised.
    """
    try:
        yield
    except BaseException as exc:
        _add_notes(exc, _close(closers))
        raise
    _raise_first(_close(closers))


@asynccontextmanager
async def closing_async(closers: Iterable[Callable[[], Awaitable[None]]]) -> AsyncGenerator[None]:
    """``closing`` for closers that must be awaited; ``closers`` may grow while the block runs."""
    try:
        yield
    except BaseException as exc:
        _add_notes(exc, await _close_async(closers))
        raise
    _raise_first(await _close_async(closers))


def _close(closers: Iterable[Callable[[], None]]) -> list[BaseException]:
    failures: list[BaseException] = []
    for close in closers:
        try:
            close()
        except BaseException as exc:  # of any class: the others are closed before it is raised
            failures.append(exc)
    return failures


async def _close_async(closers: Iterable[Callable[[], Awaitable[None]]]) -> list[BaseException]:
    failures: list[BaseException] = await _pending_cancellation()
    for close in closers:
        try:
            await close()
        except BaseException as exc:
            failures.append(exc)
    return failures


async def _pending_cancellation() -> list[BaseException]:
    """Return the cancellation that is about to reach this task, if any, so that it does not reach the first closer.

    A task group that fails while its parent is being cancelled cancels it again on exit (since Python 3.13).
    """
    try:
        await asyncio.sleep(0)
    except asyncio.CancelledError as exc:
        return [exc]
    return []


def _add_notes(error: BaseException, failures: Iterable[BaseException]) -> None:
    for failure in failures:
        if isinstance(failure, asyncio.CancelledError):
            continue  # the end of the task, which is under way
        first_cause(error).add_note(f"closing failed as well: {described(failure)}")


def _raise_first(failures: list[BaseException]) -> None:
    # A cancellation before the others: the end of the task waits for it.
    failures.sort(key=lambda failure: isinstance(failure, Exception))
    if failures:
        raise failures[0]


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return [leaf for inner in group.exceptions for leaf in _leaves(inner)]
    return [error]
