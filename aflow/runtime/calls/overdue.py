"""Detect a blocked event loop from heartbeats and samples of its stack. No threads, clocks or frames.

Theory. A *heartbeat* runs on the loop repeatedly, and each states when the next one is due. While a heartbeat is
overdue, the stack of the loop's thread is sampled each half limit. Cases:

- Two samples in a row with the same callback at the bottom, and the heartbeat overdue by the limit: that callback
  blocks the loop.
- Another callback in each sample: the loop runs many short callbacks, and none blocks it.
- The loop is not running, or a debugger has stopped it: nothing blocks it.
- The job has released the interpreter's lock for worker threads: there is no callback to name.
- The same callback is found, but the loop's thread has waited for a processor for at least half of the time: other
  programs use the machine. That is reported in place of the callback, and the time until now does not count.
- The sample itself is late. Either the machine was suspended or starved: the time until now does not count. Or a
  function in C held the interpreter's lock. The next heartbeat decides by the processor time of the loop's thread.
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
    waited: float | None = None
    """Seconds for which the loop's thread was ready to run without a processor so far; None if that is not known."""


@dataclass(frozen=True, slots=True)
class StackSample:
    """One sample of the stack."""

    root: object
    """The frame of the callback that the loop is running; compared by identity."""
    step: str | None = None
    where: CodeLocation | None = None
    excused: bool = False
    """True if nothing blocks, whatever the time."""
    resource: str | None = None
    """The resource of the step that is being opened or closed."""
    waited: float | None = None
    """``Heartbeat.waited``, at the time of the sample."""


@dataclass(frozen=True, slots=True)
class BlockedReport:
    """The result of the samples for one overdue heartbeat. Holds no frames: they would keep their variables alive."""

    number: int
    since: float
    """The start of the time that counts (s, steady)."""
    next: float
    """The time of the next sample (s, steady)."""
    step: str | None = None
    where: CodeLocation | None = None
    blocked: bool = False
    excused: bool = False
    late: bool = False
    """True if a sample was late."""
    resource: str | None = None
    starved: bool = False
    """True if the loop's thread has waited for a processor for at least half of some time of the limit or longer."""


class Overdue:
    """The samples for one overdue heartbeat. Used by the sampling thread alone."""

    def __init__(self, beat: Heartbeat, limit: float, slack: float) -> None:
        """``limit`` is the time that the loop may be blocked, ``slack`` the allowed delay of a sample (both s)."""
        self._limit = limit
        self._slack = slack
        #: The root of the last sample that was not late.
        self._root: object = None
        #: ``Heartbeat.waited`` at ``finding.since``, or before it.
        self._waited = beat.waited
        self.finding = BlockedReport(beat.number, beat.due, beat.due + limit / 2)

    def add(self, now: float, sample: StackSample) -> bool:
        """Add a sample. Return True if the loop is blocked and this is to be reported now."""
        found = replace(
            self.finding, step=sample.step, where=sample.where, resource=sample.resource
        )
        before, self._root = self._root, None
        blocked = False
        if sample.excused:
            found = replace(found, excused=True)
        elif now - found.next > self._slack:
            found = replace(found, late=True, since=now)
            self._waited = sample.waited
        elif sample.root is not before or now - found.since < self._limit:
            self._root = sample.root
        elif self._is_starved(sample, now - found.since):
            found = replace(found, starved=True, since=now)
            self._root, self._waited = sample.root, sample.waited
        else:
            blocked = True
        self.finding = replace(found, blocked=blocked, next=now + self._limit / 2)
        return blocked

    def _is_starved(self, sample: StackSample, seconds: float) -> bool:
        """Return True if the thread has waited for a processor for at least half of the last ``seconds``."""
        if sample.waited is None or self._waited is None:
            return False
        return sample.waited - self._waited >= seconds / 2

    @property
    def decided(self) -> bool:
        """True if further samples cannot change the result."""
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
    """Return the report about the time from ``beat`` to ``now``, the next heartbeat; None if nothing blocked."""
    late_by = now - beat.due
    if late_by <= limit:
        return None
    if finding is None or finding.number != beat.number:
        finding = BlockedReport(beat.number, beat.due, beat.due, late=True)  # no sample was taken
    if finding.excused:
        return None
    if finding.blocked:
        return _report(now - finding.since, finding)
    if finding.starved:
        return LoopBlocked(seconds=late_by, starved=True)
    no_sample = finding.late or now - finding.next > slack
    worked = cpu - beat.cpu
    if no_sample and worked >= 1.5 * limit:  # up to half of it may precede the due time
        return _report(min(worked, late_by), finding)
    return None


def _report(seconds: float, finding: BlockedReport) -> LoopBlocked:
    return LoopBlocked(
        seconds=seconds, step=finding.step, where=finding.where, resource=finding.resource
    )
