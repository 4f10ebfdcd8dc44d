"""The mailbox of a task: functions that other coroutines and threads want to run in the coroutine of the task.

A completed call, a timer or a checkpoint posts a mail: a plain function that the task runs between two batches. Mails
may be posted from any thread; mails of another thread arrive through the event loop, in the order in which that thread
posted them.
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
    """Mails in their order, and a callback that wakes the waiting task. Belongs to the loop on which it was created."""

    def __init__(self, loop: asyncio.AbstractEventLoop, wake: Callable[[], None]) -> None:
        self.order: MailOrder[Mail] = MailOrder()
        self._loop = loop
        self._thread = threading.get_ident()
        self._wake = wake

    def post(self, mail: Mail, lane: Lane = Lane.NORMAL) -> None:
        """Let the task run ``mail``.

        Raises ``MailboxClosed`` when the task takes no more mails. A mail that another thread posts while the task is
        being closed may be dropped instead, since that thread cannot know.
        """
        # Hot path of asynchronous steps (benchmark `async`).
        if threading.get_ident() == self._thread:
            self.order.put(mail, lane, urgent=lane is Lane.CONTROL)
            self._wake()
            return
        self.order.check_open()
        try:
            self._loop.call_soon_threadsafe(self._post_from_thread, mail, lane)
        except RuntimeError as exc:
            raise MailboxClosed("the event loop of this task is closed") from exc

    def _post_from_thread(self, mail: Mail, lane: Lane) -> None:
        if self.order.is_open:
            self.post(mail, lane)
