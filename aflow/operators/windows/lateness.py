"""Where records go that came too late.

How long windows are kept: until event time, or the clock, has passed their end by the allowed lateness.
"""

from __future__ import annotations

from typing import Final

from aflow.model.time import MAX_TIMESTAMP, MIN_TIMESTAMP, TimeDomain, Timestamp
from aflow.model.windows import GLOBAL_WINDOW, TimeWindow

#: Side output of the records that came too late for all their windows.
LATE: Final = "late"


class Horizon:
    """What is too late in one subtask, by the watermark; ``lateness`` in ms, heeded in event time only."""

    __slots__ = ("_lateness", "domain", "watermark")

    watermark: Timestamp
    """How far event time has come in this subtask."""

    def __init__(self, domain: TimeDomain, lateness: int) -> None:
        self.domain = domain
        self.watermark = MIN_TIMESTAMP
        self._lateness = lateness if domain is TimeDomain.EVENT else 0

    @property
    def late(self) -> Timestamp:
        """A record of this timestamp, or of an earlier one, is late if it has no window."""
        if self.domain is TimeDomain.PROCESSING:
            return MIN_TIMESTAMP - 1
        return self.watermark - self._lateness

    def cleanup(self, window: TimeWindow) -> Timestamp | None:
        """Return when ``window`` is cleaned up; None for never: a global one, or one kept beyond the end of time.

        The watermark reaches the last timestamp of a window once no record can be in it. The clock does so one
        millisecond later, at the window's end: records may still arrive in the last millisecond. A window that ends
        beyond the largest timestamp is cleaned up when event time ends, whatever the allowed lateness.
        """
        if self.domain is TimeDomain.PROCESSING:
            return window.end if window.end < MAX_TIMESTAMP else None
        last = window.max_timestamp
        if last == MAX_TIMESTAMP:
            return None if window == GLOBAL_WINDOW else MAX_TIMESTAMP
        at = last + self._lateness
        return at if at < MAX_TIMESTAMP else None

    def gone(self, cleanup: Timestamp | None) -> bool:
        """True if a window with that clean-up time has been cleaned up, so that a record comes too late for it."""
        event = self.domain is TimeDomain.EVENT
        return event and cleanup is not None and cleanup <= self.watermark
