"""Processing-time timers on the event loop.

A timer has one deadline at a time. The clock of the job and that of the loop round differently, and the clock may be
set back, so a timer that fires compares its deadline with the clock again and never runs its callback early.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from aflow.errors import MailboxClosed
from aflow.machines.mail_order import Lane
from aflow.model.time import Clock, Timestamp
from aflow.runtime.mailbox import Mailbox


class LoopTimer:
    """Calls ``on_due`` with the time once the clock has reached the deadline."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        on_due: Callable[[Timestamp], None],
        post: Callable[[Callable[[], None]], None] | None = None,
    ) -> None:
        """``post`` schedules the callback, for example as a mail; None: it is called directly."""
        self._loop = loop
        self._clock = clock
        self._on_due = on_due
        self._post = post
        #: The deadline (epoch ms), until ``on_due`` is called; None: the timer is not set.
        self._at: Timestamp | None = None
        self._handle: asyncio.TimerHandle | None = None

    def set(self, at: Timestamp | None) -> None:
        """Replace the deadline; None deletes it."""
        if at == self._at:
            return
        self.cancel()
        self._at = at
        if at is not None:
            self._register(at)

    def cancel(self) -> None:
        """Delete the deadline and release the handle of the loop."""
        self._at = None
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _register(self, at: Timestamp) -> None:
        delay = max(0, at - self._clock.now()) / 1000
        self._handle = self._loop.call_later(delay, self._fire)

    def _fire(self) -> None:
        self._handle = None
        at = self._at
        if at is None:
            return
        if self._clock.now() < at:
            self._register(at)
        elif self._post is None:
            self._call()
        else:
            self._post(self._call)

    def _call(self) -> None:
        at, now = self._at, self._clock.now()
        if at is None:
            return
        if now < at:
            # The deadline was replaced, or the clock was set back, after the callback was posted.
            if self._handle is None:
                self._register(at)
            return
        self._at = None
        self._on_due(now)


class TimerService:
    """All timers of one task. Their callbacks run in the coroutine of the task, as mails."""

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock, mailbox: Mailbox) -> None:
        self._loop = loop
        self._clock = clock
        self._mailbox = mailbox
        self._timers: list[LoopTimer] = []

    def timer(self, on_due: Callable[[Timestamp], None], lane: Lane) -> LoopTimer:
        """Create a timer; its callback is posted to ``lane``."""
        timer = LoopTimer(self._loop, self._clock, on_due, partial(self._post, lane))
        self._timers.append(timer)
        return timer

    def close(self) -> None:
        """Cancel all timers."""
        for timer in self._timers:
            timer.cancel()

    def _post(self, lane: Lane, callback: Callable[[], None]) -> None:
        with suppress(MailboxClosed):  # the task has ended, and its timers with it
            self._mailbox.post(callback, lane)
