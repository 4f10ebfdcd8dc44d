"""Sources that wait for each other: what one source reports about its event time, and whether it may go on.

Theory. Sources of one group that are read at different speeds drift apart, and what the fast one is ahead has to be
kept as state downstream. So each source reports its watermark at intervals; whoever coordinates the group takes the
smallest, adds the drift that is tolerated, and tells all of them this *maximum allowed* watermark. A source beyond
it stops reading until it is raised.

- Before its first watermark a source reports nothing, since it knows nothing.
- While idle it reports ``MAX_TIMESTAMP``: nobody has to wait for it.
- Active again it reports its last watermark again, and may find that it is ahead of what is allowed now.

Timestamps are epoch ms of event time; ``now`` is processing time in ms.
"""

from __future__ import annotations

from aflow.errors import FlowDefinitionError
from aflow.model.time import MAX_TIMESTAMP, Timestamp


class SourceAlignment:
    """One source's part in its group. Raises ``FlowDefinitionError`` unless ``report_every`` (ms) is above 0."""

    __slots__ = ("_due", "_idle", "_max_allowed", "_report_every", "_watermark")

    def __init__(self, report_every: int, now: Timestamp) -> None:
        if report_every <= 0:
            raise FlowDefinitionError(
                f"the interval of watermark reports must be longer than 0 ms, not {report_every} ms"
            )
        self._report_every = report_every
        #: When the next report is due.
        self._due = now + report_every
        #: The newest watermark; None before the first.
        self._watermark: Timestamp | None = None
        self._idle = False
        self._max_allowed: Timestamp = MAX_TIMESTAMP

    @property
    def may_read(self) -> bool:
        """False while the source is beyond what the group allows."""
        return self._watermark is None or self._watermark <= self._max_allowed

    @property
    def due(self) -> Timestamp:
        """When ``report`` wants to be called next."""
        return self._due

    def on_watermark(self, timestamp: Timestamp) -> None:
        """Take note of how far the source is."""
        self._watermark = timestamp

    def on_idle(self) -> None:
        """Take note that the source is silent."""
        self._idle = True

    def on_active(self) -> None:
        """Take note that the source speaks again."""
        self._idle = False

    def on_max_allowed(self, timestamp: Timestamp) -> None:
        """Take note of how far the group lets its sources go."""
        self._max_allowed = timestamp

    def report(self, now: Timestamp) -> Timestamp | None:
        """What to tell the group now; None before the interval is over, and while there is nothing to tell.

        Late calls do not pile up: the next interval begins now.
        """
        if now < self._due:
            return None
        self._due = now + self._report_every
        return MAX_TIMESTAMP if self._idle else self._watermark
