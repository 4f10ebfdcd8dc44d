"""The processing-time alarm of an operator, on the event loop: one handle, however many timers the operator has."""

from __future__ import annotations

import asyncio

from aflow.errors import AflowError, MailboxClosed, OperatorError
from aflow.machines.mail_order import Lane
from aflow.model.time import Clock, Timestamp
from aflow.operators.base import Operator
from aflow.runtime.mailbox import Mailbox


class LoopAlarm:
    """Rings once, at the time it was last set to, as a mail in the timers lane."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock, mailbox: Mailbox) -> None:
        self._loop = loop
        self._clock = clock
        self._mailbox = mailbox
        self._operator: Operator | None = None
        #: When it is to ring (epoch ms); None: never.
        self._at: Timestamp | None = None
        self._handle: asyncio.TimerHandle | None = None

    def attach(self, operator: Operator) -> None:
        """Wake ``operator`` when the alarm rings."""
        self._operator = operator

    def set(self, at: Timestamp | None) -> None:
        if at == self._at:
            return
        self.cancel()
        self._at = at
        if at is not None:
            self._arm(at)

    def cancel(self) -> None:
        """Ring no more, and give back the loop's handle."""
        self._at = None
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _arm(self, at: Timestamp) -> None:
        delay = max(0, at - self._clock.now()) / 1000
        self._handle = self._loop.call_later(delay, self._ring)

    def _ring(self) -> None:
        self._handle = None
        at = self._at
        if at is None:
            return
        if self._clock.now() < at:
            # The loop's clock and ours round differently: never ring early, timers compare with ``now``.
            self._arm(at)
            return
        try:
            self._mailbox.post(self._deliver, Lane.TIMERS)
        except MailboxClosed:
            self._at = None  # the task has ended; nobody waits for its timers

    def _deliver(self) -> None:
        at, now = self._at, self._clock.now()
        if at is None or self._operator is None:
            return
        if now < at:
            # Set to another time while the mail was on its way; or the clock was set back.
            if self._handle is None:
                self._arm(at)
            return
        self._at = None
        operator = self._operator
        try:
            operator.on_processing_time(now)
        except AflowError:
            raise
        except (Exception, asyncio.CancelledError) as exc:
            # Synchronous, so a CancelledError comes from a user function and cancels nobody.
            raise OperatorError.of(operator.name, exc) from exc
