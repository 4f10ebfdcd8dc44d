"""Timers that ring in time: what a call sleeps instead of asking a service is to take as long as it says."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

# Of Linux: prctl(2).
_SET_TIMERSLACK: Final = 29
_GET_TIMERSLACK: Final = 30

#: Nanoseconds; 0 would stand for the default.
_LEAST: Final = 1


@contextmanager
def without_slack() -> Generator[None]:
    """Have the kernel wake this thread when its timers are due, as it does when a service answers.

    Linux lets timers be late by a *slack*, 50 µs unless told otherwise, to wake up for several of them at once. Does
    nothing where there is none, or where it cannot be changed.
    """
    before = _prctl(_GET_TIMERSLACK) if sys.platform == "linux" else -1
    if before < 0:
        yield
        return
    _prctl(_SET_TIMERSLACK, _LEAST)
    try:
        yield
    finally:
        _prctl(_SET_TIMERSLACK, before)


def _prctl(option: int, argument: int = 0) -> int:
    """Below 0 if the kernel refuses."""
    result: int = ctypes.CDLL(None).prctl(option, *map(ctypes.c_ulong, (argument, 0, 0, 0)))
    return result
