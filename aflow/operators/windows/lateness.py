"""Allowed lateness: when a record is late, and when a window is cleaned up."""

from __future__ import annotations

from typing import Final

from aflow.model.time import MAX_TIMESTAMP, MIN_TIMESTAMP, TimeDomain, Timestamp
from aflow.model.windows import GLOBAL_WINDOW, TimeWindow

#: Side output of the records that were late for all their windows.
LATE: Final = "late"


class WindowLifetime:
    """Lateness of records and clean-up times of windows in one subtask; ``lateness`` in ms, used in event time only."""

    __slots__ = ("_lateness", "domain", "watermark")

    watermark: Timestamp
    """The watermark of the subtask, or of the current key after a restore."""

    def __init__(self, domain: TimeDomain, lateness: int) -> None:
        self.domain = domain
        self.watermark = MIN_TIMESTAMP
        self._lateness = lateness if domain is TimeDomain.EVENT else 0

    @property
    def late(self) -> Timestamp:
        """Return the largest timestamp of a record that is late if it has no window."""
        if self.domain is TimeDomain.PROCESSING:
            return MIN_TIMESTAMP - 1
        return self.watermark - self._lateness

    def cleanup(self, window: TimeWindow) -> Timestamp | None:
        """Return the clean-up time of ``window``; None for a global window, or one kept beyond the end of time.

        The watermark reaches the last timestamp of a window when no further record can be in it. The clock reaches the
        window's end one millisecond later: records may arrive in the last millisecond. A window that ends beyond the
        largest timestamp is cleaned up at the end of event time, whatever the allowed lateness.
        """
        if self.domain is TimeDomain.PROCESSING:
            return window.end if window.end < MAX_TIMESTAMP else None
        last = window.max_timestamp
        if last == MAX_TIMESTAMP:
            return None if window == GLOBAL_WINDOW else MAX_TIMESTAMP
        at = last + self._lateness
        return at if at < MAX_TIMESTAMP else None

    def is_cleaned_up(self, cleanup: Timestamp | None) -> bool:
        """Return True if a window with this clean-up time has been cleaned up."""
        event = self.domain is TimeDomain.EVENT
        return event and cleanup is not None and cleanup <= self.watermark
