"""Deciding whether the event loop is blocked, and by whom; without threads, clocks and frames, which come in.

A *heartbeat* runs on the loop again and again. It says when the next one is due. A *look* at the stack of the loop's
thread is taken when a beat is overdue by half of the limit, and again each half limit. What can be seen then:

- Twice the same callback (or step of a coroutine) at the bottom, and the beat overdue by the limit: that one blocks.
- Another one each time: the loop is busy with many short callbacks, and none of them blocks.
- The loop does not run, it is waiting for something, or a debugger has stopped it: nothing blocks.
- The job is just handing over: a busy job lets go of the interpreter's lock for worker threads and gets it back when
  they let it. Nothing is to be named, as with short callbacks.
- The look itself comes late. Then the whole machine stood still (suspended, stopped, starved), and the time until now
  does not count: looking begins anew as if the beat had become due just now. Or a function in C never let go of the
  interpreter's lock. The two are told apart when the beat comes at last: has the loop's thread used the processor?
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from aflow.runtime.calls.reports import CodeLocation, LoopBlocked


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """One heartbeat."""

    number: int
    due: float
    """The due time of the next one (s, steady)."""
    cpu: float
    """Seconds for which the loop's thread has used the processor so far."""
    thread: int
    """The thread in which the loop runs."""
    depth: int
    """The number of frames below the callbacks of the loop."""


@dataclass(frozen=True, slots=True)
class StackSample:
    """The stack at one look."""

    root: object
    """The frame of the callback that the loop is running; compared by identity."""
    step: str | None = None
    where: CodeLocation | None = None
    excused: bool = False
    """True if nothing blocks, whatever the time."""


@dataclass(frozen=True, slots=True)
class BlockedReport:
    """The findings about one overdue beat. Without frames, which would keep their variables alive."""

    number: int
    since: float
    """From when the time counts (s, steady)."""
    next: float
    """The time of the next look."""
    step: str | None = None
    where: CodeLocation | None = None
    blocked: bool = False
    excused: bool = False
    late: bool = False
    """True if a look was late."""


class Overdue:
    """The looks that are taken while one beat is waited for. All in the thread that looks."""

    def __init__(self, beat: Heartbeat, limit: float, slack: float) -> None:
        """``limit`` and ``slack`` in seconds: how long the loop may be blocked, and how late a look may be."""
        self._limit = limit
        self._slack = slack
        #: At the bottom in the last look that was in time.
        self._root: object = None
        self.finding = BlockedReport(beat.number, beat.due, beat.due + limit / 2)

    def look(self, now: float, glance: StackSample) -> bool:
        """Take in what was seen; True if that is the moment to say that the loop is blocked."""
        found = replace(self.finding, step=glance.step, where=glance.where)
        before, self._root = self._root, None
        blocked = False
        if glance.excused:
            found = replace(found, excused=True)
        elif now - found.next > self._slack:
            found = replace(found, late=True, since=now)
        elif glance.root is before and now - found.since >= self._limit:
            blocked = True
        else:
            self._root = glance.root
        self.finding = replace(found, blocked=blocked, next=now + self._limit / 2)
        return blocked

    @property
    def decided(self) -> bool:
        """True if no further look can change what was found."""
        return self.finding.blocked or self.finding.excused


def verdict(
    beat: Heartbeat,
    finding: BlockedReport | None,
    now: float,
    cpu: float,
    *,
    limit: float,
    slack: float,
) -> LoopBlocked | None:
    """Return the report about the time until the beat after ``beat``, at ``now``; None for none."""
    late_by = now - beat.due
    if late_by <= limit:
        return None
    if finding is None or finding.number != beat.number:
        finding = BlockedReport(
            beat.number, beat.due, beat.due, late=True
        )  # there was no look at all
    if finding.excused:
        return None
    if finding.blocked:
        return LoopBlocked(seconds=now - finding.since, step=finding.step, where=finding.where)
    no_sample = finding.late or now - finding.next > slack
    worked = cpu - beat.cpu
    if no_sample and worked >= 1.5 * limit:  # half of which may be from before the beat was due
        return LoopBlocked(seconds=min(worked, late_by), step=finding.step, where=finding.where)
    return None
