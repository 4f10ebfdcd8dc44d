"""How long a job may keep the event loop before it lets the others have it.

All tasks of a job share one ``LoopBudget``, so the budget holds for the job and not for each task: once it is spent,
every task hands over at its next look, and the budget starts anew in the next pass of the loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final

from aflow.runtime.clock import RuntimeClock, release_gil

#: Seconds. Long enough that handing over costs nothing to speak of, short enough for a host that answers requests.
DEFAULT_BUDGET: Final = 0.002

#: Looks (one a batch) after which a turn is spent whatever the clock says: a virtual clock stands still meanwhile.
_MOST_LOOKS: Final = 256


class WorkerActivity:
    """Whether worker threads have something to do for the job.

    CPython hands its lock to a thread that has waited 5 ms for it, and a thread that was woken in vain begins to wait
    anew. A busy job lets go of the lock once a turn, that is every 2 ms and for a moment only, in which no thread wakes
    up fast enough: without help a worker gets the lock once in seconds, and a checkpoint takes as long as the job.
    """

    def __init__(self) -> None:
        #: How many pieces of work are under way.
        self.at_work = 0

    @contextmanager
    def working(self) -> Generator[None]:
        """Threads have something to do until the block ends."""
        self.at_work += 1
        try:
            yield
        finally:
            self.at_work -= 1


class LoopBudget:
    """The job's share of one pass of the event loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: RuntimeClock,
        budget: float,
        threads: WorkerActivity | None = None,
    ) -> None:
        """``threads`` are given way to, too; without them only the event loop is."""
        self._threads = threads or WorkerActivity()
        self._loop = loop
        self._steady = clock.steady
        self._budget = budget
        self._deadline = 0.0
        self._looks = 0
        #: True while a call to ``_begin`` is on its way, so at most one is.
        self._renewing = False

    def spent(self) -> bool:
        """True if the task should hand over now. Called once for each batch."""
        self._looks += 1
        return self._looks > _MOST_LOOKS or self._steady() >= self._deadline

    async def hand_over(self) -> None:
        """Let everything else that is ready run once."""
        if not self._renewing:
            self._renewing = True
            self._loop.call_soon(self._begin)
        if self._threads.at_work:
            release_gil()
        await asyncio.sleep(0)

    def _begin(self) -> None:
        self._renewing = False
        self._looks = 0
        self._deadline = self._steady() + self._budget
