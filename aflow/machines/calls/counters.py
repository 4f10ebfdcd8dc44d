"""The counters of an async step."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class CallCounters:
    """Counted while the job runs, by one subtask of one step."""

    calls: int = 0
    """Calls made; each attempt counts."""
    retries: int = 0
    timeouts: int = 0
    """Records whose time was over."""
    dropped: int = 0
    dead_letters: int = 0
    fallbacks: int = 0
    abandoned: int = 0
    """Calls that did not end when they were cancelled."""
    cache_hits: int = 0
    cache_misses: int = 0
    merged: int = 0
    """Records that shared the running call of another one."""
    in_flight: int = 0
    """Running calls."""
    waiting: int = 0
    """Records whose results were not emitted, and that no call runs for."""
    limit: int = 0
    """The number of calls that may run now."""
