"""What an asynchronous step counts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class CallCounters:
    """Counted while the job runs, by one subtask of one step."""

    calls: int = 0
    """Calls made, each attempt by itself."""
    retries: int = 0
    timeouts: int = 0
    """Records whose time was up."""
    dropped: int = 0
    dead_letters: int = 0
    fallbacks: int = 0
    abandoned: int = 0
    """Calls that did not end when they were cancelled."""
    cache_hits: int = 0
    cache_misses: int = 0
    merged: int = 0
    """Records that got the result of another one's call, as it was under way."""
    in_flight: int = 0
    """Calls under way now."""
    waiting: int = 0
    """Records now whose results have not left, and that are not being called for."""
    limit: int = 0
    """How many calls may be under way now."""
