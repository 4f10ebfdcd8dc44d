"""Checks for tasks, threads and open files that a block of code does not end or close.

``no_leftovers`` compares all tasks of the event loop. ``no_leftovers_of_block`` compares only tasks that its block has
created, directly or indirectly: a test server on the same loop may create tasks meanwhile. It identifies them by a
context variable, which each task inherits from the code that creates it.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from contextvars import Context, ContextVar
from pathlib import Path
from typing import Any, Final

#: The folder in which Linux lists the open files of this process. On other systems they are not checked.
_DESCRIPTORS: Final = Path("/proc/self/fd")

#: Prefixes of names of pooled threads, which end with the event loop.
_POOLS: Final = ("AnyIO worker thread", "asyncio_", "ThreadPoolExecutor")

#: The grace period in real seconds for a thread to end, and for another thread to close a file.
_GRACE: Final = 1.0

#: The tasks created in the block of ``no_leftovers_of_block`` to which the current code belongs.
_CREATED: Final = ContextVar[list[asyncio.Task[Any]]]("_CREATED")


@contextmanager
def no_leftovers(what: str) -> Generator[None]:
    """Raise ``AssertionError`` if tasks, threads or open files exist after the block that did not exist before."""
    tasks, threads, files = asyncio.all_tasks(), set(threading.enumerate()), _open_files()
    yield
    _raise_for(what, asyncio.all_tasks() - tasks, threads, _leaked_files(files))


@asynccontextmanager
async def no_leftovers_of_block(what: str) -> AsyncGenerator[None]:
    """Raise ``AssertionError`` if tasks of the block, or new threads or open files, exist after it.

    Tasks that other code of the loop creates meanwhile do not count. Files of other code count only if they are open
    for a second of real time: a server closes a connection shortly after its client.
    """
    loop = asyncio.get_running_loop()
    threads, files = set(threading.enumerate()), _open_files()
    created: list[asyncio.Task[Any]] = []
    before = loop.get_task_factory()
    loop.set_task_factory(_recording(before, created))
    token = _CREATED.set(created)
    try:
        yield
    finally:
        _CREATED.reset(token)
        loop.set_task_factory(before)
    tasks = set(created)
    until = time.monotonic() + _GRACE
    while (left := _open_files() - files) and time.monotonic() < until:
        await asyncio.sleep(0)  # lets other code of the loop close its files
        _pause()
    _raise_for(what, tasks, threads, left)


def _pause() -> None:
    """Wait for a millisecond of real time: that of the loop may be virtual."""
    time.sleep(0.001)


def _recording(
    factory: Callable[..., Any] | None, created: list[asyncio.Task[Any]]
) -> Callable[..., Any]:
    """Return a task factory that adds to ``created`` the tasks of the block that ``created`` belongs to."""

    def create(
        loop: asyncio.AbstractEventLoop,
        work: Any,
        *,
        context: Context | None = None,
        **more: Any,  # later versions of Python pass more
    ) -> Any:
        if context is not None:
            more["context"] = context
        task = factory(loop, work, **more) if factory else asyncio.Task(work, loop=loop, **more)
        block = _CREATED.get(None) if context is None else context.get(_CREATED)
        if block is created:
            created.append(task)
        return task

    return create


def _raise_for(
    what: str,
    tasks: set[asyncio.Task[Any]],
    threads: set[threading.Thread],
    files: set[tuple[int, str]],
) -> None:
    """Raise ``AssertionError`` for running ``tasks``, threads that are not in ``threads``, and ``files``."""
    left = [f"task {task.get_name()!r}" for task in tasks if not task.done()]
    left += [
        f"thread {one.name!r}"
        for one in set(threading.enumerate()) - threads
        if _outlives_grace_period(one)
    ]
    left += [f"open file {name}" for _, name in sorted(files)]
    if left:
        raise AssertionError(f"{what} leaks: {', '.join(left)}")


def _leaked_files(before: set[tuple[int, str]]) -> set[tuple[int, str]]:
    """Return files that were not open before and are still open after the grace period."""
    until = time.monotonic() + _GRACE
    while (left := _open_files() - before) and time.monotonic() < until:
        time.sleep(0.01)
    return left


def _open_files() -> set[tuple[int, str]]:
    """Return the open descriptors with the names of their files."""
    found: set[tuple[int, str]] = set()
    if _DESCRIPTORS.is_dir():
        for entry in os.listdir(_DESCRIPTORS):
            try:
                found.add((int(entry), os.readlink(_DESCRIPTORS / entry)))
            except OSError:
                continue  # the descriptor of the listing itself
    return found


def _outlives_grace_period(thread: threading.Thread) -> bool:
    if thread.name.startswith(_POOLS):
        return False
    thread.join(_GRACE)
    return thread.is_alive()
