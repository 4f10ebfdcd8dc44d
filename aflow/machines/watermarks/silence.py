"""Event time of a silent input, advanced by the clock.

Theory. Event time needs records: windows of an input without any wait for the next one. ``SilentAdvance`` replaces the
records while the input is silent: from its begin on, event time advances by the time that passes on the clock. It
continues from the last watermark, so it never goes back, and a later record is late by the one rule of lateness. Time
in which the input cannot be read does not count: records may wait.

There is no advance before the first watermark: nothing relates event time to the clock then.
"""

from __future__ import annotations

from aflow.model.time import MAX_TIMESTAMP, MIN_TIMESTAMP, Timestamp


class SilentAdvance:
    """The watermark of an input since it fell silent. Moments are epoch ms."""

    __slots__ = ("_from", "_paused_at", "_since", "period")

    def __init__(self, period: int) -> None:
        #: Milliseconds of processing time between two watermarks.
        self.period = period
        #: The moment from which the clock counts, moved forward by pauses; None while the input is not silent.
        self._since: Timestamp | None = None
        #: The watermark at that moment.
        self._from: Timestamp = MIN_TIMESTAMP
        #: Start of the present pause; None without one.
        self._paused_at: Timestamp | None = None

    def begin(self, since: Timestamp, watermark: Timestamp) -> None:
        """Count from ``since`` on, which may be in the future, and continue from ``watermark``."""
        self._since, self._from = since, watermark

    def end(self) -> None:
        """Record that the input is not silent any more."""
        self._since = None

    def pause(self, now: Timestamp) -> None:
        """Stop the clock: the input cannot be read. Changes nothing while paused."""
        if self._paused_at is None:
            self._paused_at = now

    def resume(self, now: Timestamp) -> None:
        """Start the clock again. Changes nothing unless paused."""
        if self._paused_at is not None and self._since is not None:
            self._since += now - max(self._paused_at, min(self._since, now))
        self._paused_at = None

    def watermark(self, now: Timestamp) -> Timestamp | None:
        """Return the watermark at ``now``; None if event time does not advance."""
        if self._since is None or self._paused_at is not None or now <= self._since:
            return None
        if not MIN_TIMESTAMP < self._from < MAX_TIMESTAMP:
            return None
        return min(self._from + now - self._since, MAX_TIMESTAMP - 1)

    def due(self, now: Timestamp) -> Timestamp | None:
        """Return the time of the next watermark; None if there will be none."""
        if self._since is None or self._paused_at is not None:
            return None
        if not MIN_TIMESTAMP < self._from < MAX_TIMESTAMP:
            return None
        return max(self._since, now) + self.period
