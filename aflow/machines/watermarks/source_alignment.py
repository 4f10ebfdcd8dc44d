"""Alignment of sources by event time: the report of each source, and the watermark up to which it may read.

Theory. Sources of one group that are read at different speeds drift apart, and the lead of the fast one has to be kept
as state downstream. So each source reports its watermark whenever it has changed. The coordinator of the group adds the
tolerated drift to the smallest one and announces the sum to all sources as the *maximum allowed* watermark. A source
beyond it suspends reading until it is raised. ``SourceAlignment`` is the part of one member, ``AlignmentGroup`` that of
the coordinator.

- Before its first watermark a source has nothing to report, and it may read regardless of the maximum: it needs
  records to emit a watermark. The group takes it to be at the beginning of time, so members with a watermark wait
  until all have one. (Flink's coordinator ignores it. Then the source that starts first runs ahead: through months of
  a file of last year in the second in which its partner connects.)
- While idle it reports ``MAX_TIMESTAMP``: no member waits for it.
- Active again it reports its last watermark again (or nothing, if it has none), and may be beyond the maximum.
- A member that leaves (ended, stopped, failed) is ignored. If all members are idle, all is allowed.

A group never deadlocks: the slowest member is at the minimum, which never exceeds the minimum plus a drift of 0 or
more, so one member may always read. This holds for one group; a source in two groups could be the slowest of one and
wait in the other, so a source is in one group at most.

Timestamps are epoch ms of event time.
"""

from __future__ import annotations

from aflow.errors import FlowDefinitionError, InternalError
from aflow.model.time import MAX_TIMESTAMP, MIN_TIMESTAMP, Timestamp


class SourceAlignment:
    """One member of a group."""

    __slots__ = ("_idle", "_max_allowed", "_watermark")

    def __init__(self) -> None:
        #: The newest watermark; None before the first.
        self._watermark: Timestamp | None = None
        self._idle = False
        self._max_allowed: Timestamp = MAX_TIMESTAMP

    @property
    def may_read(self) -> bool:
        """False while the source is beyond the maximum allowed watermark."""
        return self._watermark is None or self._watermark <= self._max_allowed

    def on_watermark(self, timestamp: Timestamp) -> None:
        """Record the watermark of the source."""
        self._watermark = timestamp

    def on_idle(self) -> None:
        """Record that the source is idle."""
        self._idle = True

    def on_active(self) -> None:
        """Record that the source is active again."""
        self._idle = False

    def on_max_allowed(self, timestamp: Timestamp) -> None:
        """Record the maximum allowed watermark of the group."""
        self._max_allowed = timestamp

    def report(self) -> Timestamp | None:
        """Return the report for the group; None without a watermark."""
        return MAX_TIMESTAMP if self._idle else self._watermark


class AlignmentGroup:
    """The maximum allowed watermark of a group: the smallest report plus ``max_drift`` ms of event time.

    The caller numbers the members. Methods return the maximum if it changed, otherwise None.
    Raises ``FlowDefinitionError`` for a negative drift.
    """

    __slots__ = ("_max_drift", "_reports", "max_allowed")

    def __init__(self, max_drift: int) -> None:
        if max_drift < 0:
            raise FlowDefinitionError(f"max_drift must be 0 ms or more, not {max_drift} ms")
        self._max_drift = max_drift
        #: The last report of each member; ``MIN_TIMESTAMP`` before its first.
        self._reports: dict[int, Timestamp] = {}
        #: The largest watermark with which a member may read.
        self.max_allowed: Timestamp = MAX_TIMESTAMP

    def join(self, member: int) -> Timestamp | None:
        """Add ``member``; until its first report no member with a watermark may read."""
        if member in self._reports:
            raise InternalError(f"member {member} is in the group already")
        self._reports[member] = MIN_TIMESTAMP
        return self._update()

    def report(self, member: int, report: Timestamp | None) -> Timestamp | None:
        """Record the report of ``member``; it may be smaller than the last one if an idle member is active again.

        None, from a member without a watermark, is the beginning of time.
        """
        # Hot path: once for each batch of a source.
        before = self._reports.get(member)
        if before is None:
            raise InternalError(f"member {member} is not in the group")
        timestamp = self._reports[member] = MIN_TIMESTAMP if report is None else report
        # The minimum changes only if this member was at it, or is below it now.
        slowest = self.max_allowed - self._max_drift
        return self._update() if before <= slowest or timestamp < slowest else None

    def leave(self, member: int) -> Timestamp | None:
        """Remove ``member``. Does nothing if it has left already."""
        self._reports.pop(member, None)
        return self._update()

    def _update(self) -> Timestamp | None:
        slowest = min(self._reports.values(), default=MAX_TIMESTAMP)
        allowed = min(slowest + self._max_drift, MAX_TIMESTAMP)
        if allowed == self.max_allowed:
            return None
        self.max_allowed = allowed
        return allowed
