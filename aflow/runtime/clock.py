"""The clocks that the runtime reads; the only place that asks the operating system for the time."""

from __future__ import annotations

import asyncio
import time
from typing import Final, Protocol, runtime_checkable

from aflow.model.time import Clock, Timestamp

#: Seconds; about 70 µs with the overhead of the system.
_WAKE_UP: Final = 0.00002


class RuntimeClock(Clock, Protocol):
    """Processing time for pipelines (``now``), and a steady clock for measuring how long something took."""

    def steady(self) -> float:
        """Seconds since some fixed moment; never goes back."""
        ...


@runtime_checkable
class ClockedLoop(Protocol):
    """An event loop with a clock of its own, such as one of virtual time."""

    def processing_clock(self) -> RuntimeClock:
        """Return the clock for processing time and for measuring."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now(self) -> Timestamp:
        """Epoch milliseconds."""
        return time.time_ns() // 1_000_000

    #: Seconds, with the best resolution of the machine. Read for each batch, so there is no function call around it.
    steady = staticmethod(time.perf_counter)


def clock_on(loop: asyncio.AbstractEventLoop, clock: RuntimeClock) -> RuntimeClock:
    """Return ``clock``; in place of a ``SystemClock``, the clock of ``loop`` if it has one of its own.

    Timers of the job run on ``loop``. With another clock than that of the loop they would be due at other times.
    """
    if isinstance(clock, SystemClock) and isinstance(loop, ClockedLoop):
        return loop.processing_clock()
    return clock


def release_gil() -> None:
    """Release the interpreter's lock for long enough that a waiting thread wakes up and gets it."""
    time.sleep(_WAKE_UP)
