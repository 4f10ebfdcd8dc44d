"""A timer that is more precise than those of event loops.

Timers of asyncio and uvloop are late by up to a millisecond, since ``epoll`` waits for whole milliseconds. At 5,000
records a second that would be most of the latency of a fast pipeline. A *timerfd* of Linux is a file that becomes
readable at a time given in nanoseconds, so the loop wakes up some 0.05 ms after it, without a thread or polling.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from aflow.runtime.clock import ClockedLoop

_CLOCK_MONOTONIC: Final = 1

#: ``TFD_NONBLOCK | TFD_CLOEXEC``, which are the flags of ``open``.
_FLAGS: Final = os.O_NONBLOCK | os.O_CLOEXEC

#: Seconds; a shorter wait only lets everything else on the loop run once.
_AT_ONCE: Final = 2e-6


class _Time(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _TimerSetting(ctypes.Structure):
    _fields_ = (("interval", _Time), ("value", _Time))


class PreciseTimer:
    """One wait at a time on the running event loop; that of the loop itself where there is no timerfd.

    A loop of virtual time has precise timers of its own.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiter: asyncio.Future[None] | None = None
        #: The file; -1 without one.
        self._fd = -1 if isinstance(self._loop, ClockedLoop) else _create()
        if self._fd >= 0:
            self._loop.add_reader(self._fd, self._on_due)

    async def wait(self, seconds: float) -> None:
        """Wait for ``seconds``."""
        if self._fd < 0:
            await asyncio.sleep(max(seconds, _AT_ONCE))
        elif seconds <= _AT_ONCE:
            await asyncio.sleep(0)
        else:
            self._waiter = self._loop.create_future()
            _set(self._fd, seconds)
            try:
                await self._waiter
            finally:
                self._waiter = None

    def close(self) -> None:
        """Remove the timer from the loop. Can be repeated."""
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _on_due(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._fd, 8)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


def _functions() -> tuple[Callable[..., int], Callable[..., int]] | None:
    if not sys.platform.startswith("linux"):
        return None
    try:
        library = ctypes.CDLL(None, use_errno=True)
        return library.timerfd_create, library.timerfd_settime
    except (AttributeError, OSError):
        return None


_TIMERFD: Final = _functions()


def _create() -> int:
    return -1 if _TIMERFD is None else _TIMERFD[0](_CLOCK_MONOTONIC, _FLAGS)


def _set(fd: int, seconds: float) -> None:
    assert _TIMERFD is not None
    whole, nanoseconds = divmod(max(1, int(seconds * 1e9)), 1_000_000_000)
    setting = _TimerSetting(_Time(0, 0), _Time(whole, nanoseconds))
    if _TIMERFD[1](fd, 0, ctypes.byref(setting), None):
        raise OSError(ctypes.get_errno(), "timerfd_settime failed")
