"""The loop of a task: mails, and the default action between them.

Theory. The *default action* is the task's work (take a batch, process it). Before each run of it the mails that are
there are run: control, then timers, then the others. A mail that posts itself again waits for the next round, so it
never starves the default action. An action without work *suspends* itself with a reason; the loop then runs mails only,
and sleeps when there are none, until ``resume`` is called. Everything runs on one event loop, so an action that found
no work and suspended cannot miss a wake-up in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum

from aflow.errors import InternalError
from aflow.machines.mail_order import Lane
from aflow.runtime.clock import RuntimeClock
from aflow.runtime.loop_budget import LoopBudget
from aflow.runtime.mailbox import Mailbox


class SuspendReason(Enum):
    """The condition that a suspended task waits for."""

    IDLE = "idle"
    """Input."""
    BACKPRESSURED = "backpressured"
    """Room downstream, or in a sink."""
    CALLING = "calling"
    """Calls: the maximum is under way."""
    ALIGNING = "aligning"
    """Slower sources of the alignment group."""


class MailboxLoop:
    """Runs mails and a default action until ``complete`` is called."""

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        loop_budget: LoopBudget,
        clock: RuntimeClock,
    ) -> None:
        self.mailbox = Mailbox(loop, self._wake)
        self._loop = loop
        self._loop_budget = loop_budget
        self._steady = clock.steady
        #: The reason for the suspension of the default action; None while it runs.
        self.suspended: SuspendReason | None = None
        self._suspended_at = 0.0
        self._completed = False
        #: Set while the coroutine sleeps; ``_wake`` resolves it.
        self._sleep: asyncio.Future[None] | None = None
        #: Seconds spent suspended, by reason, without the present suspension.
        self.waited = dict.fromkeys(SuspendReason, 0.0)
        self._on_blocked: Callable[[bool], None] | None = None

    @property
    def completed(self) -> bool:
        """True once ``complete`` was called."""
        return self._completed

    @property
    def idle(self) -> bool:
        """True while there is neither a mail nor a default action to run."""
        order = self.mailbox.order
        return self.suspended is not None and order.is_open and not order.has_mail()

    def complete(self) -> None:
        """End the loop before its next action or mail. Harmless when it has ended."""
        self._completed = True
        self._wake()

    def suspend(self, why: SuspendReason) -> None:
        """Suspend the default action until ``resume``; only the default action may call it."""
        if self.suspended is not None:
            raise InternalError(f"the default action is suspended already ({self.suspended.value})")
        self.suspended = why
        self._suspended_at = self._steady()
        if why is not SuspendReason.IDLE and self._on_blocked is not None:
            self._on_blocked(True)

    def resume(self) -> None:
        """Resume the default action. Does nothing unless it is suspended."""
        why = self.suspended
        if why is None:
            return
        self.suspended = None
        self.waited[why] += self._steady() - self._suspended_at
        if why is not SuspendReason.IDLE and self._on_blocked is not None:
            self._on_blocked(False)
        self._wake()

    def waited_so_far(self, why: SuspendReason) -> float:
        """Seconds spent suspended for ``why``, including the present suspension."""
        now = self._steady() - self._suspended_at if self.suspended is why else 0.0
        return self.waited[why] + now

    async def run(
        self, action: Callable[[], None], on_blocked: Callable[[bool], None] | None = None
    ) -> None:
        """Run mails and ``action`` until ``complete``. Raises what a mail or the action raises.

        ``on_blocked`` is called with True when the action is suspended although there may be input, and with False when
        it is resumed.
        """
        self._on_blocked = on_blocked
        has_mail = self.mailbox.order.has_mail
        budget, steady = self._loop_budget, self._steady
        spent = budget.spent
        begun = steady()
        while not self._completed:
            if has_mail():
                self.run_mails()
            elif self.suspended is not None:
                sleep = self._sleep = self._loop.create_future()
                # uvloop counts the time to its next timer from its last look at the clock, which this call causes.
                # Otherwise all timers of the program (calls that sleep, retries, …) are late by the work done since.
                self._loop.time()
                budget.worked(begun)
                try:
                    await sleep
                finally:
                    self._sleep = None
                    begun = steady()
            if self.suspended is None and not self._completed:
                action()
            if spent():
                budget.worked(begun)
                await budget.hand_over()
                begun = steady()

    def run_mails(self) -> None:
        """Run the mails that are there now, and control mails posted meanwhile."""
        order = self.mailbox.order
        order.create_batch()
        while not self._completed and order.has_mail():
            mail = order.try_take_from_batch(Lane.TIMERS) or order.try_take_from_batch()
            if mail is None:
                return
            mail()

    def _wake(self) -> None:
        sleep = self._sleep
        if sleep is not None and not sleep.done():
            sleep.set_result(None)
