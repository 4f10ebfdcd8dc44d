"""The time for which a job may keep the event loop before it yields.

All tasks of a job share one ``LoopBudget``, so it is a budget of the job and not of each task: once it is spent, every
task yields at its next check, and the budget is renewed in the next pass of the loop.

It is smaller while other code runs between two turns of the job (``machines/host_watch``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from typing import Any, ClassVar, Final

from aflow.machines.host_watch import HostWatch, Observed
from aflow.machines.turns import Turn
from aflow.runtime.clock import RuntimeClock, release_gil
from aflow.runtime.garbage_collection import collections_so_far

#: Seconds. Long enough that yielding costs little, short enough for a host that answers requests.
DEFAULT_BUDGET: Final = 0.002

#: Seconds between the starts of two calls in one pass of the loop if only a call is between them, nearly always.
_BETWEEN_CALLS: Final = 0.00005

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

    #: True if the steps of calls wait for their turn, except for cancellations.
    drives_calls: ClassVar[bool] = False

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: RuntimeClock,
        budget: float,
        threads: WorkerActivity | None = None,
        *,
        has_host: bool = True,
        cpu: Callable[[], float] | None = None,
    ) -> None:
        """``threads`` may run, too, when the job yields; None: only the event loop.

        ``has_host`` is False on a loop that only serves the job: then turns keep their length. ``cpu`` returns the CPU
        time of the thread (s), which tells the work of others from that of other programs.
        """
        self._has_host = has_host
        self._threads = threads or WorkerActivity()
        self._loop = loop
        self.steady = clock.steady
        self._cpu = cpu
        self._host: Final = HostWatch(budget)
        #: The length of the turns, which changes.
        self.turn: Final = self._host.turn
        #: The same for starts of async calls.
        self.call_turn: Turn = self.turn
        #: Seconds in which coroutines of the job ran.
        self.own = 0.0
        #: The time at which a slot started a call or was woken last (s, steady).
        self._called = 0.0
        self._deadline = 0.0
        self._checks = 0
        #: True while a call to ``_renew`` is scheduled, so that there is at most one.
        self._renewing = False

    def spent(self) -> bool:
        """Return True if the task must yield now. Called once for each batch."""
        self._checks += 1
        return self._checks > _MAX_CHECKS or self.steady() >= self._deadline

    async def hand_over(self) -> None:
        """Run everything else that is ready once."""
        self.watch()
        if self._threads.at_work:
            release_gil()
        await asyncio.sleep(0)

    def watch(self) -> None:
        """Renew the budget in the next pass of the loop, and measure how long others run until then."""
        if not self._renewing:
            self._renewing = True
            self._host.on_yielded(self._observed())
            self._loop.call_soon(self._renew)

    def on_call_completed(self) -> None:
        """An async call has completed, the first one since results of its step were emitted."""
        if self._host.expects_call:
            self._host.on_call_completed(self._observed())

    def on_call_started(self) -> float:
        """A slot starts a call, or was woken to start one. Return the time (s, steady).

        Called while the host is active, and after each rest of a slot. The time between two starts is the job's own,
        unless it is so long that others ran.
        """
        now = self.steady()
        if (took := now - self._called) < _BETWEEN_CALLS:
            self.own += took
        self._called = now
        return now

    def driven(self, calls: Callable[[], Coroutine[Any, Any, None]]) -> Coroutine[Any, Any, None]:
        """Return the coroutine of a slot: that of ``calls``, unless the steps of calls are counted."""
        self._host.has_calls = True
        return calls()

    def on_results(self, number: int) -> None:
        """A step has emitted the results of ``number`` calls."""
        self._host.on_results(number)

    def _observed(self) -> Observed:
        cpu = None if self._cpu is None else self._cpu()
        return Observed(self.steady(), self.own, cpu, collections_so_far())

    def _renew(self) -> None:
        self._renewing = False
        self._checks = 0
        observed = self._observed()
        if self._has_host:
            self._host.on_renewed(observed)
        self._deadline = observed.steady + self.turn.seconds
