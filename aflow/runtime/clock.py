"""The clocks that the runtime reads; the only place that asks the operating system for the time."""

from __future__ import annotations

import time
from typing import Protocol

from aflow.model.time import Clock, Timestamp


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
