"""Sources that wait for each other: what one source reports about its event time, and whether it may go on.

Theory. Sources of one group that are read at different speeds drift apart, and what the fast one is ahead has to be
kept as state downstream. So each source reports its watermark (at intervals, or whenever it has advanced); whoever
coordinates the group takes the smallest, adds the drift that is tolerated, and tells all of them this *maximum
allowed* watermark. A source beyond it stops reading until it is raised. ``SourceAlignment`` is one member's part,
``AlignmentGroup`` the coordinator's.

- Before its first watermark a source has nothing to report, since it knows nothing, and it may read whatever is
  allowed: how else would it come to a watermark? The group takes it to be at the beginning of time, so whoever has a
  watermark waits until all have. (Flink's coordinator leaves it out. Then what happens to start first runs away:
  from a file of last year, months in the second that the connection to its partner takes.)
- While idle it reports ``MAX_TIMESTAMP``: nobody has to wait for it.
- Active again it reports its last watermark again (or nothing, if it never had one), and may find that it is ahead of
  what is allowed now.
- One that leaves (ended, stopped, failed) is waited for no more. With no member but idle ones all is allowed.

Nobody waits for ever for a member that waits: the slowest is at the minimum, which is never beyond the minimum plus
a drift of 0 or more, so there is always one that may read. This holds for one group; a source that is in two could
be the slowest of one and wait in the other, so nothing is in two.

Timestamps are epoch ms of event time; ``now`` is processing time in ms.
"""

from __future__ import annotations

from aflow.errors import FlowDefinitionError, InternalError
from aflow.model.time import MAX_TIMESTAMP, MIN_TIMESTAMP, Timestamp


class SourceAlignment:
    """One source's part in its group, which reports every ``report_every`` ms; 0: whenever it is asked.

    Raises ``FlowDefinitionError`` if that is below 0.
    """

    __slots__ = ("_due", "_idle", "_max_allowed", "_report_every", "_watermark")

    def __init__(self, report_every: int = 0, now: Timestamp = 0) -> None:
        if report_every < 0:
            raise FlowDefinitionError(
                f"the interval of watermark reports must be 0 ms or longer, not {report_every} ms"
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
        """When ``report`` wants to be called next; says nothing with an interval of 0."""
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

    def report(self, now: Timestamp = 0) -> Timestamp | None:
        """What to tell the group now; None before the interval is over, and while there is nothing to tell.

        Late calls do not pile up: the next interval begins now. With an interval of 0 ``now`` plays no part.
        """
        if self._report_every:
            if now < self._due:
                return None
            self._due = now + self._report_every
        return MAX_TIMESTAMP if self._idle else self._watermark


class AlignmentGroup:
    """How far the members of a group may go: the smallest of their reports, and ``max_drift`` ms of event time more.

    Members are numbers that the caller gives out. What changes the maximum returns it, or None where it is as before.
    Raises ``FlowDefinitionError`` for a negative drift.
    """

    __slots__ = ("_max_drift", "_reports", "max_allowed")

    def __init__(self, max_drift: int) -> None:
        if max_drift < 0:
            raise FlowDefinitionError(f"max_drift must be 0 ms or more, not {max_drift} ms")
        self._max_drift = max_drift
        #: The last report of each member; ``MIN_TIMESTAMP`` before its first.
        self._reports: dict[int, Timestamp] = {}
        #: The largest watermark with which a member may read on.
        self.max_allowed: Timestamp = MAX_TIMESTAMP

    def join(self, member: int) -> Timestamp | None:
        """Wait for ``member`` from now on; until its first report nobody else may read who has a watermark."""
        if member in self._reports:
            raise InternalError(f"member {member} is in the group already")
        self._reports[member] = MIN_TIMESTAMP
        return self._settle()

    def report(self, member: int, report: Timestamp | None) -> Timestamp | None:
        """Take what ``member`` says of itself; it may go back, when an idle member is active again.

        None, from a member that knows nothing, is the beginning of time.
        """
        # Hot path: once for each batch of a source.
        before = self._reports.get(member)
        if before is None:
            raise InternalError(f"member {member} is not in the group")
        timestamp = self._reports[member] = MIN_TIMESTAMP if report is None else report
        # The others hold the minimum where it is, unless it was this one that did, or it is below it now.
        slowest = self.max_allowed - self._max_drift
        return self._settle() if before <= slowest or timestamp < slowest else None

    def leave(self, member: int) -> Timestamp | None:
        """Wait for ``member`` no more. Does nothing if it has left already."""
        self._reports.pop(member, None)
        return self._settle()

    def _settle(self) -> Timestamp | None:
        slowest = min(self._reports.values(), default=MAX_TIMESTAMP)
        allowed = min(slowest + self._max_drift, MAX_TIMESTAMP)
        if allowed == self.max_allowed:
            return None
        self.max_allowed = allowed
        return allowed
