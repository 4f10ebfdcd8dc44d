"""What a piece of code leaves behind: tasks, threads and open files, found by counting them before and after."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

#: Where Linux lists the open files of this process. Elsewhere they are not looked at.
_DESCRIPTORS: Final = Path("/proc/self/fd")

#: Threads that belong to the event loop and wait for the next call; they end with the loop.
_POOLS: Final = ("AnyIO worker thread", "asyncio_", "ThreadPoolExecutor")

#: Real seconds for a thread that is about to end, and for a file that another thread is about to close.
_GRACE: Final = 1.0


@contextmanager
def nothing_left_behind(what: str) -> Generator[None]:
    """Raise ``AssertionError`` if tasks, threads or open files are there after the block that were not before."""
    tasks, threads, files = asyncio.all_tasks(), set(threading.enumerate()), _open_files()
    yield
    left = [f"task {task.get_name()!r}" for task in asyncio.all_tasks() - tasks if not task.done()]
    left += [f"thread {one.name!r}" for one in set(threading.enumerate()) - threads if _lasts(one)]
    left += [f"open file {name}" for _, name in sorted(_lasting(files))]
    if left:
        raise AssertionError(f"{what} leaves behind: {', '.join(left)}")


def _lasting(before: set[tuple[int, str]]) -> set[tuple[int, str]]:
    """Files that were not open before and stay open."""
    until = time.monotonic() + _GRACE
    while (left := _open_files() - before) and time.monotonic() < until:
        time.sleep(0.01)
    return left


def _open_files() -> set[tuple[int, str]]:
    """Descriptors, and what they stand for."""
    found: set[tuple[int, str]] = set()
    if _DESCRIPTORS.is_dir():
        for entry in os.listdir(_DESCRIPTORS):
            try:
                found.add((int(entry), os.readlink(_DESCRIPTORS / entry)))
            except OSError:
                continue  # the descriptor by which the folder was listed
    return found


def _lasts(thread: threading.Thread) -> bool:
    if thread.name.startswith(_POOLS):
        return False
    thread.join(_GRACE)
    return thread.is_alive()
