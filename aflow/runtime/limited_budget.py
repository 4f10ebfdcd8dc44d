"""A loop budget with a ceiling on the job's share of the time: ``Options(share=…)``.

Counted are the turns of tasks, reads of sources that do not wait, and the steps of async calls with their slots. When
they have taken more than the share, tasks sleep at their next check, and calls whose awaited result is there wait for
their turn. The loop sleeps meanwhile if it has nothing else to do.

A call is driven step by step in order to count it, and to let it wait. This is done in jobs with a share only, as each
step costs about half a microsecond more.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Final

from aflow.machines.loop_share import LoopShare
from aflow.runtime.clock import RuntimeClock
from aflow.runtime.loop_budget import LoopBudget, WorkerActivity
from aflow.runtime.options import Options

#: Waiting calls that continue in one pass: few enough for a short turn, and enough that the pass itself costs little.
_TOGETHER: Final = 32


class LimitedBudget(LoopBudget):
    """The share of the job in one pass of the event loop, and in the time."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: RuntimeClock,
        budget: float,
        share: float,
        threads: WorkerActivity | None = None,
        *,
        has_host: bool = True,
    ) -> None:
        super().__init__(loop, clock, budget, threads, has_host=has_host)
        self._share = LoopShare(share, self.steady())
        #: The part of ``own`` that the share knows.
        self._paid = 0.0
        #: Calls that wait for their turn, oldest first.
        self._waiting: deque[asyncio.Future[None]] = deque()
        #: The timer for the end of a rest; None without one.
        self._timer: asyncio.TimerHandle | None = None
        #: The time of the first call in this pass of the loop (s, steady), and ``own`` then; None before it.
        self._pass: tuple[float, float] | None = None
        #: Calls may make steps in this pass while ``own`` is smaller.
        self.calls_until = 0.0

    def rest(self) -> float:
        """Return the seconds for which the job has to rest now."""
        now = self.steady()
        if self.own > self._paid:
            self._share.worked(self.own - self._paid, now)
            self._paid = self.own
        return self._share.rest(now)

    def spent(self) -> bool:
        return super().spent() or self._share.rest(self.steady()) > 0

    async def hand_over(self) -> None:
        if (rest := self.rest()) > 0:
            await asyncio.sleep(rest)
        await super().hand_over()

    def driven(self, calls: Callable[[], Coroutine[Any, Any, None]]) -> Coroutine[Any, Any, None]:
        return _drive(calls, self)

    def call_must_wait(self) -> bool:
        """Return True if calls have used the turn of this pass, or the job has to rest. Begins a pass."""
        self._begin_pass()
        return self.own >= self.calls_until

    def turn_of_call(self) -> asyncio.Future[None]:
        """Return a future for the moment at which another call may continue. Called after ``call_must_wait``."""
        turn: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append(turn)
        return turn

    def _begin_pass(self) -> None:
        if self._pass is None:
            self._pass = self.steady(), self.own
            self.calls_until = self.own + (0.0 if self.rest() > 0 else self.turn.seconds)
            self._loop.call_soon(self._next_pass)

    def _next_pass(self) -> None:
        assert self._pass is not None
        begun, own = self._pass
        self._pass, self.calls_until = None, 0.0
        now = self.steady()
        if self._has_host:
            self._turns.passed(now - begun - (self.own - own), now)
        self._admit()

    def _admit(self) -> None:
        """Let some calls continue in the next pass, or when the job has rested."""
        if not self._waiting or self._timer is not None:
            return
        if (rest := self.rest()) > 0:
            self._timer = self._loop.call_later(rest, self._on_rested)
            return
        most = _TOGETHER
        while most and self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():  # its call was cancelled
                turn.set_result(None)
                most -= 1
        if self._waiting:  # the others, also if those that continue are cancelled first
            self._begin_pass()

    def _on_rested(self) -> None:
        self._timer = None
        self._admit()


class _Steps:
    """Awaits a coroutine step by step: each waits until the job need not rest, and is counted.

    A cancellation does not wait: it ends work, and calls that time out must free their places.
    """

    def __init__(self, calls: Coroutine[Any, Any, None], budget: LimitedBudget) -> None:
        self._calls = calls
        self._budget = budget

    def __await__(self) -> Generator[Any, Any, None]:
        budget, steady = self._budget, self._budget.steady
        send, throw = self._calls.send, self._calls.throw
        step: Callable[[Any], Any] = send
        given: Any = None
        while True:
            try:
                # Hot path: once for each step of a call.
                while (
                    budget.own >= budget.calls_until
                    and not isinstance(given, asyncio.CancelledError)
                    and budget.call_must_wait()
                ):
                    yield from budget.turn_of_call()
            except GeneratorExit:
                self._calls.close()
                raise
            except BaseException as exc:
                step, given = throw, exc
            begun = steady()
            try:
                awaited = step(given)
            except StopIteration:
                return
            finally:
                budget.own += steady() - begun
            try:
                given = yield awaited
                step = send
            except GeneratorExit:
                self._calls.close()
                raise
            except BaseException as exc:
                step, given = throw, exc


async def _drive(calls: Callable[[], Coroutine[Any, Any, None]], budget: LimitedBudget) -> None:
    await _Steps(calls(), budget)


def loop_budget(
    options: Options,
    loop: asyncio.AbstractEventLoop,
    threads: WorkerActivity | None = None,
    *,
    has_host: bool = True,
) -> LoopBudget:
    """Return the budget of a job with these options."""
    clock, seconds = options.clock, options.loop_budget.total_seconds()
    if options.share == 1:
        return LoopBudget(loop, clock, seconds, threads, has_host=has_host)
    return LimitedBudget(loop, clock, seconds, options.share, threads, has_host=has_host)
