"""The clocks that the runtime reads; the only place that asks the operating system for the time."""

from __future__ import annotations

import time
from typing import Final, Protocol

from aflow.model.time import Clock, Timestamp

#: Seconds; with what the system adds to it, some 70 µs.
_WAKE_UP: Final = 0.00002


class RuntimeClock(Clock, Protocol):
    """Processing time for pipelines (``now``), and a steady clock for measuring how long something took."""

    def steady(self) -> float:
        """Seconds since some fixed moment; never goes back."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now(self) -> Timestamp:
        """Epoch milliseconds."""
        return time.time_ns() // 1_000_000

    #: Seconds, with the best resolution that the machine has. Asked for each batch, so there is no call around it.
    steady = staticmethod(time.perf_counter)


def let_threads_run() -> None:
    """Let go of the interpreter's lock for long enough that a thread which waits for it wakes up and gets it."""
    time.sleep(_WAKE_UP)
