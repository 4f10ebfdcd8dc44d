"""Watermark alignment of the sources of a job.

All members are on one event loop, so a report reaches the group, and the new bound the members, in the same call. There
is no interval, and a member never acts on an old bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from aflow.errors import FlowDefinitionError
from aflow.machines.watermarks.source_alignment import AlignmentGroup, SourceAlignment
from aflow.model.time import MAX_TIMESTAMP, Timestamp, short, to_millis
from aflow.operators.alignment import Alignment
from aflow.operators.base import Operator
from aflow.operators.event_time import EventTimeOperator


class AlignedMember:
    """One source subtask in its group; reports to the group what the ``event_time`` of its chain observes."""

    def __init__(self, group: AlignedGroup, number: int, resume: Callable[[], None]) -> None:
        self._group = group
        self._number = number
        self._machine = SourceAlignment()
        self._resume = resume
        #: True while the source waits for slower ones. Read once for each batch.
        self.ahead = False

    def on_watermark(self, watermark: Timestamp) -> None:
        """Report a watermark (epoch ms)."""
        self._machine.on_watermark(watermark)
        self._report()

    def on_idle(self) -> None:
        """Report that this source is idle, so that no other source waits for it."""
        self._machine.on_idle()
        self._report()

    def on_active(self) -> None:
        """Report that the source is active, where it was before."""
        self._machine.on_active()
        self._report()

    def allow(self, timestamp: Timestamp) -> None:
        """Let the source read up to watermark ``timestamp``, and resume it if it was waiting for that."""
        self._machine.on_max_allowed(timestamp)
        self._update()

    def leave(self) -> None:
        """Leave the group: neither wait nor be waited for. Does nothing the second time."""
        self._group.leave(self._number)
        self.allow(MAX_TIMESTAMP)

    def _report(self) -> None:
        # Hot path: once for each batch of an aligned source.
        self._group.report(self._number, self._machine.report())
        self._update()

    def _update(self) -> None:
        was, self.ahead = self.ahead, not self._machine.may_read
        if was and not self.ahead:
            self._resume()


class AlignedGroup:
    """The members of one group in one job."""

    def __init__(self, max_drift: int) -> None:
        #: In ms.
        self.max_drift = max_drift
        self._machine = AlignmentGroup(max_drift)
        #: Members that have not left.
        self._members: dict[int, AlignedMember] = {}
        self._next = 0

    def join(self, resume: Callable[[], None]) -> AlignedMember:
        """Return a new member, which the others wait for; ``resume`` is called when it need not wait any longer."""
        number = self._next
        self._next += 1
        member = self._members[number] = AlignedMember(self, number, resume)
        member.allow(self._machine.max_allowed)
        self._broadcast(self._machine.join(number))
        return member

    def report(self, number: int, timestamp: Timestamp | None) -> None:
        """Handle the report of a member; ignore one that has left."""
        if number in self._members:
            self._broadcast(self._machine.report(number, timestamp))

    def leave(self, number: int) -> None:
        """Remove a member."""
        if self._members.pop(number, None) is not None:
            self._broadcast(self._machine.leave(number))

    def _broadcast(self, allowed: Timestamp | None) -> None:
        if allowed is not None:
            for member in self._members.values():
                member.allow(allowed)


class AlignedGroups:
    """The groups of one job, by name."""

    def __init__(self) -> None:
        self._groups: dict[str, AlignedGroup] = {}

    def place(
        self, operators: Iterable[Operator], source: str | None, resume: Callable[[], None]
    ) -> AlignedMember | None:
        """Make a subtask a member if an ``event_time`` of its chain is to be aligned; ``source`` names its source.

        Raises ``FlowDefinitionError`` if nothing in the chain could wait, if a source would be in two groups (it could
        be the slowest of one while it waits in the other), and for two drifts of one group.
        """
        aligned = [
            (one, one.alignment)
            for one in operators
            if isinstance(one, EventTimeOperator) and one.alignment is not None
        ]
        if not aligned:
            return None
        step, alignment = aligned[0]
        if source is None:
            raise FlowDefinitionError(
                f"step {step.name!r} is aligned with other sources and has no source in its task that could wait; put "
                f".event_time(…, align=…) directly after the source, with no exchange, union or change of "
                f"parallelism between them, and run with Options(chaining=True)"
            )
        if len(aligned) > 1:
            raise FlowDefinitionError(
                f"source {source!r} would be aligned by two steps, {step.name!r} and {aligned[1][0].name!r}, and might "
                f"wait for itself; give align= to one of them"
            )
        member = step.aligned = self._join(step.name, alignment, resume)
        return member

    def _join(self, step: str, alignment: Alignment, resume: Callable[[], None]) -> AlignedMember:
        drift = to_millis(alignment.max_drift, what="max_drift")
        group = self._groups.setdefault(alignment.group, AlignedGroup(drift))
        if group.max_drift != drift:
            raise FlowDefinitionError(
                f"step {step!r} joins alignment group {alignment.group!r} with a max_drift of {short(drift)}, and "
                f"others joined it with {short(group.max_drift)}; give one Alignment object to all of them"
            )
        return group.join(resume)
