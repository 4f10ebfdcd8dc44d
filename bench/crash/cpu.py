"""Time in which a program had no CPU: on a busy machine, a time limit must tell a slow program from one that hangs."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final, TypeVar

T = TypeVar("T")

#: Seconds between two looks at the time limit.
_CHECK_EVERY: Final = 0.5
#: The folder in which Linux describes the processes.
_PROC: Final = "/proc"


def waited_for_cpu(process: int | None) -> float:
    """Return the seconds for which the main thread of a process, that of its event loop, had work and no CPU.

    0 if there is no such process, or the system does not count them.
    """
    try:
        _, nanoseconds, _ = Path(_PROC, str(process), "schedstat").read_text().split()
    except OSError:
        return 0.0
    return int(nanoseconds) / 1e9


class Stopwatch:
    """Measures the time in which the main thread of a process had a CPU, or needed none, from now on."""

    def __init__(self, process: int | None) -> None:
        self._process = process
        self._begin = time.monotonic()
        self._waited = waited_for_cpu(process)

    @property
    def elapsed(self) -> float:
        """All seconds."""
        return time.monotonic() - self._begin

    @property
    def without_cpu(self) -> float:
        """Seconds in which it waited for a CPU."""
        return max(0.0, waited_for_cpu(self._process) - self._waited)

    @property
    def seconds(self) -> float:
        """Seconds in which it did not wait for a CPU."""
        return self.elapsed - self.without_cpu


async def limited(
    work: Coroutine[Any, Any, T], seconds: float, process: Callable[[], int] = os.getpid
) -> T:
    """Return the result of ``work``. Cancel it and raise ``TimeoutError`` after ``seconds``.

    Seconds in which the main thread of ``process`` waited for a CPU do not count. Those of all processes that it
    returns, one after the other, are added.
    """
    task = asyncio.create_task(work)
    try:
        watched = process()
        watch, before, seen = Stopwatch(watched), 0.0, 0.0
        looked = watch.elapsed
        while not task.done():
            if (now := process()) != watched:  # it was started again
                # How long it has waited since the last look is lost with it.
                before += seen + watch.elapsed - looked
                watch, watched = Stopwatch(now), now
            seen, looked = watch.seconds, watch.elapsed
            if before + seen > seconds:
                raise TimeoutError
            await asyncio.wait({task}, timeout=_CHECK_EVERY)
        return task.result()
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task})
