"""The time for which a job may keep the event loop before it yields.

All tasks of a job share one ``LoopBudget``, so it is a budget of the job and not of each task: once it is spent, every
task yields at its next check, and the budget is renewed in the next pass of the loop.

It is smaller while other code runs between two turns of the job (``machines/turns``). That is measured from the moment
at which a task yields to the renewal, without the time of the job's own coroutines, which count it in ``own``, and
without that of the loop to switch to them: a job of many tasks must not take itself for a host. The loop does not sleep
in between, so waits for input or timers do not count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from typing import Any, Final

from aflow.machines.turns import Turns
from aflow.runtime.clock import RuntimeClock, release_gil

#: Seconds. Long enough that yielding costs little, short enough for a host that answers requests.
DEFAULT_BUDGET: Final = 0.002

#: Seconds that the event loop needs at most to switch to a task of the job, nearly always.
SWITCH: Final = 0.00001

#: Checks (one a batch) after which the budget is spent whatever the clock shows: a virtual clock does not advance.
_MAX_CHECKS: Final = 256


class WorkerActivity:
    """The work that worker threads do for the job at the moment.

    CPython gives its lock to a thread that has waited 5 ms for it, and a thread that was woken in vain starts to wait
    anew. A busy job releases the lock once per budget, that is every 2 ms and only for a moment, in which no thread
    wakes up fast enough: without help a worker gets the lock once in seconds, and a checkpoint takes as long as the
    job.
    """

    def __init__(self) -> None:
        #: The number of pieces of work under way.
        self.at_work = 0

    @contextmanager
    def working(self) -> Generator[None]:
        """Count one piece of work until the block ends."""
        self.at_work += 1
        try:
            yield
        finally:
            self.at_work -= 1


class LoopBudget:
    """The share of the job in one pass of the event loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: RuntimeClock,
        budget: float,
        threads: WorkerActivity | None = None,
        *,
        has_host: bool = True,
    ) -> None:
        """``threads`` may run, too, when the job yields; None: only the event loop.

        ``has_host`` is False on a loop that only serves the job: then turns keep their length.
        """
        self._has_host = has_host
        self._threads = threads or WorkerActivity()
        self._loop = loop
        self.steady = clock.steady
        self._turns = Turns(budget)
        #: The length of the turns, which changes.
        self.turn: Final = self._turns.turn
        #: Seconds in which coroutines of the job ran.
        self.own = 0.0
        #: Number of times that a task of the job has yielded or waited.
        self._switches = 0
        #: At the first yield of a task since the last renewal: the time (s, steady), ``own`` and ``_switches``.
        self._yielded = (0.0, 0.0, 0)
        self._deadline = 0.0
        self._checks = 0
        #: True while a call to ``_renew`` is scheduled, so that there is at most one.
        self._renewing = False

    def spent(self) -> bool:
        """Return True if the task must yield now. Called once for each batch."""
        self._checks += 1
        return self._checks > _MAX_CHECKS or self.steady() >= self._deadline

    def worked(self, begun: float) -> None:
        """Count the time of a task since ``begun`` (s, steady) as the job's own; the task yields or waits now."""
        self.own += self.steady() - begun
        self._switches += 1

    async def hand_over(self) -> None:
        """Run everything else that is ready once."""
        if not self._renewing:
            self._renewing = True
            self._yielded = self.steady(), self.own, self._switches
            self._loop.call_soon(self._renew)
        if self._threads.at_work:
            release_gil()
        await asyncio.sleep(0)

    def driven(self, calls: Callable[[], Coroutine[Any, Any, None]]) -> Coroutine[Any, Any, None]:
        """Return the coroutine of a slot: that of ``calls``, unless the steps of calls are counted."""
        return calls()

    def _renew(self) -> None:
        self._renewing = False
        self._checks = 0
        now = self.steady()
        yielded, own, switches = self._yielded
        if self._has_host:
            ours = self.own - own + (self._switches - switches) * SWITCH
            self._turns.passed(now - yielded - ours, now)
        self._deadline = now + self.turn.seconds
