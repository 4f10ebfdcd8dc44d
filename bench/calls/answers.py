"""A service on the event loop that answers each call exactly so long after it was asked.

``asyncio.sleep`` is not that: uvloop counts whole milliseconds, from wherever within one of them it looks at the clock,
and the kernel adds 50 µs to spare power. A timer that is read as a socket is (``timerfd_create(2)``) does neither; see
docs/decisions/023.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
import time
from collections import deque
from collections.abc import Awaitable
from contextlib import suppress
from typing import Final, Self

_CLOCK_MONOTONIC: Final = 1
_TFD_TIMER_ABSTIME: Final = 1
_SECOND: Final = 1_000_000_000


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanos", ctypes.c_long))


class _Setting(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


class Answers:
    """For one loop at a time: it is free for another one when all calls are answered. To be closed, by ``with``."""

    def __init__(self, seconds: float) -> None:
        """Answers ``seconds`` after it was asked. Not on Linux, that is as exact as ``asyncio.sleep``."""
        self._seconds, self._nanos = seconds, round(seconds * _SECOND)
        self._timer = -1
        if sys.platform == "linux":
            self._libc = ctypes.CDLL(None, use_errno=True)
            self._timer = self._checked(
                self._libc.timerfd_create(_CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
            )
        #: Times (ns) of answers and their futures, in order, since all answers take as long.
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer >= 0:
            os.close(self._timer)

    def answer(self) -> Awaitable[None]:
        """Ask, and await the answer."""
        if self._timer < 0:
            return asyncio.sleep(self._seconds)
        loop = asyncio.get_running_loop()
        due = time.monotonic_ns() + self._nanos
        if not self._waiting:
            loop.add_reader(self._timer, self._ring, loop)
            self._set(due)
        answer: asyncio.Future[None] = loop.create_future()
        self._waiting.append((due, answer))
        return answer

    def _ring(self, loop: asyncio.AbstractEventLoop) -> None:
        with suppress(BlockingIOError):
            os.read(self._timer, 8)
        now, waiting = time.monotonic_ns(), self._waiting
        while waiting and waiting[0][0] <= now:
            _, answer = waiting.popleft()
            if not answer.done():
                answer.set_result(None)
        if waiting:
            self._set(waiting[0][0])
        else:
            loop.remove_reader(self._timer)

    def _set(self, due: int) -> None:
        setting = _Setting(value=_Timespec(*divmod(due, _SECOND)))
        self._checked(
            self._libc.timerfd_settime(self._timer, _TFD_TIMER_ABSTIME, ctypes.byref(setting), None)
        )

    def _checked(self, result: int) -> int:
        if result < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return result
