"""Decide from the time between two turns of a job whether its host is active.

Theory. A *pass* of the event loop is observed from the moment at which a task of the job yields. What runs from then on
is the work of others, except for what the job counts as its own. The observation ends when the budget is renewed in the
next pass. The loop does not sleep in between.

Async calls run between two turns, too. Those of slots that were woken are counted as the job's own, others are not. So
the observation ends with the first call that completes. The task of a request that arrived in the preceding pass runs
before it: the loop queues it before the timers and answers that complete calls. If no call completes before the
renewal, the time may contain these timers. So it is judged when the number of calls that completed next is known.

A collection of garbage in between says nothing about the host. The work of others takes CPU time: the rest of the time
is that of other programs of the machine.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from aflow.machines.turns import Turn, Turns

#: Seconds that the loop takes for the timer of a call.
_TIMER: Final = 0.000002

#: Renewals after which an observation is judged although no results were emitted.
_PATIENCE: Final = 2


class Observed(NamedTuple):
    """The state of clocks and counters at one end of an observation."""

    steady: float
    """The time (s, of a steady clock)."""
    own: float
    """Seconds in which coroutines of the job ran."""
    cpu: float | None
    """CPU time of the thread (s); None if it is not measured."""
    collections: tuple[int, ...]
    """The number of collections of garbage, or some other value that each of them changes."""

    def others(self, until: Observed) -> float | None:
        """Return the seconds in which others worked ``until`` then; None if garbage was collected meanwhile."""
        if self.collections != until.collections:
            return None
        elapsed = until.steady - self.steady
        if self.cpu is not None and until.cpu is not None:
            elapsed = min(elapsed, until.cpu - self.cpu)
        return elapsed - (until.own - self.own)


class HostWatch:
    """Adapts the turns of one job to the work of others."""

    def __init__(self, budget: float) -> None:
        """``budget`` is the length of turns that nothing waits for (s)."""
        self._turns: Final = Turns(budget)
        #: True if there are calls that the job does not count as its own.
        self.has_calls = False
        #: The beginning of the observation; None while there is none.
        self._begun: Observed | None = None
        #: The first call that completed in it; None before it.
        self._completed: Observed | None = None
        #: The work of others (s) in a pass that may contain timers of calls, and the time (s, steady).
        self._unjudged: tuple[float, float] | None = None
        #: Renewals since then.
        self._renewals = 0

    @property
    def turn(self) -> Turn:
        """The length of the turns, which changes."""
        return self._turns.turn

    @property
    def expects_call(self) -> bool:
        """True while the first completed call would end an observation."""
        return self._begun is not None and self._completed is None

    def on_yielded(self, at: Observed) -> None:
        """A task yields, and the budget will be renewed in the next pass."""
        self._begun, self._completed = at, None

    def on_call_completed(self, at: Observed) -> None:
        """A call has completed, the first one of the observation."""
        self._completed = at

    def on_renewed(self, at: Observed) -> None:
        """The budget is renewed."""
        begun, self._begun = self._begun, None
        self._renewals += 1
        if self._unjudged is not None and self._renewals >= _PATIENCE:
            self._judge(0)
        if begun is None or (others := begun.others(self._completed or at)) is None:
            return
        if self._completed is not None or not self.has_calls:
            self._turns.passed(others, at.steady)
        elif self._unjudged is None:
            self._unjudged, self._renewals = (others, at.steady), 0

    def passed(self, others: float, now: float) -> None:
        """Others worked for ``others`` seconds in a pass in which each call was counted; ``now`` is a steady time."""
        self._turns.passed(others, now)

    def on_results(self, number: int) -> None:
        """The results of ``number`` calls were emitted."""
        self._judge(number)

    def _judge(self, calls: int) -> None:
        """Adapt the turns to the work of others in a pass that contains the timers of ``calls`` calls, or of fewer."""
        if self._unjudged is not None:
            (others, now), self._unjudged = self._unjudged, None
            self._turns.passed(others - calls * _TIMER, now)
