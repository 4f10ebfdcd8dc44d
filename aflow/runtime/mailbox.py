"""The mailbox of a task: what others want done in the task's own coroutine.

Whoever completes something for a task (a call, a timer, a checkpoint) posts a mail: a plain function that the task runs
between two batches. Mails may be posted from any thread; a post from another thread arrives through the event
loop, in the order in which that thread posted.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeAlias

from aflow.errors import MailboxClosed
from aflow.machines.mail_order import Lane, MailOrder

Mail: TypeAlias = Callable[[], None]


class Mailbox:
    """Mails in their order, and a way to wake the task that waits for them. Belongs to the loop it was made on."""

    def __init__(self, loop: asyncio.AbstractEventLoop, wake: Callable[[], None]) -> None:
        self.order: MailOrder[Mail] = MailOrder()
        self._loop = loop
        self._thread = threading.get_ident()
        self._wake = wake

    def post(self, mail: Mail, lane: Lane = Lane.NORMAL) -> None:
        """Have ``mail`` run by the task.

        Raises ``MailboxClosed`` when the task takes no more mails. A mail that another thread posted while the task was
        closing may be dropped instead, since the thread cannot know.
        """
        # Hot path of asynchronous steps (benchmark `async`).
        if threading.get_ident() == self._thread:
            self.order.put(mail, lane, urgent=lane is Lane.CONTROL)
            self._wake()
            return
        self.order.check_open()
        try:
            self._loop.call_soon_threadsafe(self._deliver_late, mail, lane)
        except RuntimeError as exc:
            raise MailboxClosed("the event loop of this task is closed") from exc

    def _deliver_late(self, mail: Mail, lane: Lane) -> None:
        if self.order.is_open:
            self.post(mail, lane)
