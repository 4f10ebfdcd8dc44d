"""The order of mails in the mailbox of a task, and the life cycle of the mailbox.

Theory. Mails have a *priority* and are taken in the order of arrival. A take names the smallest priority that it
accepts and gets the **first** mail of at least that priority; a higher priority never overtakes an earlier mail that is
sufficient. An *urgent* mail precedes all that are not urgent, and follows the urgent ones that arrived before it.

A *batch* is a cut in time: ``create_batch`` puts all present mails into it, and ``try_take_from_batch`` takes these and
urgent ones only. So a mail that posts itself again runs once in a batch and starves nothing. Mails have ascending
numbers, and the batch is those below a number: creating it moves nothing.

Lanes. A task has three: control before timers before normal, first in first out within each. They are priorities, and a
control mail is *urgent* as well (``Lane.CONTROL``). The main loop creates a batch and then takes, for each mail to
run::

    mail = order.try_take_from_batch(Lane.TIMERS) or order.try_take_from_batch()

So urgent mails run first, on whichever side of the cut they are, then the timers of the batch, then the rest of it. A
timer that registers itself again for a time already passed runs in the next batch. A control mail must not post itself
again, since urgent mails ignore the cut.

Life cycle. OPEN -> QUIESCED (puts fail, takes work: the task drains) -> CLOSED (both fail; ``close`` has returned the
remaining mails, and its caller cancels what waits for them). The first two steps may be one; no step is undone.

One thread only: mails from other threads arrive through the event loop of the task (``runtime/mailbox.py``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from enum import Enum, IntEnum
from typing import Final, Generic, TypeVar

from aflow.errors import MailboxClosed

M = TypeVar("M")

#: A take with this minimum takes any mail.
MIN_PRIORITY: Final = -(2**31)


class Lane(IntEnum):
    """The lanes of a task's mailbox, as priorities."""

    NORMAL = 0
    """Completions of async calls, mails of users."""
    TIMERS = 1
    """Timers that are due."""
    CONTROL = 2
    """Checkpoints, cancellation. Put these with ``urgent=True``."""


class MailState(Enum):
    """State in the life cycle of a mailbox."""

    OPEN = "open"
    QUIESCED = "quiesced"
    CLOSED = "closed"


class MailOrder(Generic[M]):
    """Mails in the order in which to run them. The cost of a put or a take does not depend on their number."""

    __slots__ = ("_batch_end", "_count", "_lanes", "_next", "_urgent", "state")

    def __init__(self) -> None:
        self.state = MailState.OPEN
        self._urgent: _Lanes[M] = _Lanes()
        self._lanes: _Lanes[M] = _Lanes()
        #: The number of the next mail. Numbers ascend within `_urgent` and within `_lanes`.
        self._next = 0
        #: Mails of `_lanes` with a smaller number are the batch.
        self._batch_end = 0
        #: Mails in `_urgent` and `_lanes` together.
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def is_open(self) -> bool:
        """True while mails may be put."""
        return self.state is MailState.OPEN

    def check_open(self) -> None:
        """Raise ``MailboxClosed`` unless mails may be put."""
        if self.state is not MailState.OPEN:
            raise MailboxClosed(
                f"the task accepts no more mails (its mailbox is {self.state.value}): it is draining or has ended"
            )

    def put(self, mail: M, priority: int, *, urgent: bool = False) -> None:
        """Add ``mail`` after the others, or with ``urgent`` before all that are not. Raises ``MailboxClosed``."""
        if self.state is not MailState.OPEN:
            self.check_open()
        (self._urgent if urgent else self._lanes).add(self._next, priority, mail)
        self._next += 1
        self._count += 1

    def has_mail(self) -> bool:
        """Return True if a mail is there, in the batch or not."""
        # Hot path: called between any two batches of a task, nearly always with an empty mailbox.
        return self._count > 0

    def create_batch(self) -> bool:
        """Add all present mails to the batch, after those left in it. Return False if the batch is empty then."""
        self._batch_end = self._next
        return self._count > 0

    def try_take_from_batch(self, min_priority: int = MIN_PRIORITY) -> M | None:
        """Take the first mail of at least ``min_priority`` that is urgent or in the batch.

        Return None if the batch has no (more) such mail. Raises ``MailboxClosed`` when closed.
        """
        if not self._count:
            self._check_not_closed()
            return None
        lane = self._urgent.first(min_priority)
        if lane is None:
            lane = self._lanes.first(min_priority)
            if lane is None or lane[0][0] >= self._batch_end:
                return None
        return self._take(lane)

    def drain(self) -> list[M]:
        """Take all mails: the urgent ones, the batch, the rest. None when closed."""
        mails = [*self._urgent.empty(), *self._lanes.empty()]
        self._count = 0
        return mails

    def quiesce(self) -> None:
        """Refuse further mails; present ones can still be taken. Changes nothing unless open."""
        if self.state is MailState.OPEN:
            self.state = MailState.QUIESCED

    def close(self) -> list[M]:
        """Refuse puts and takes, and return the mails that never ran, in order. Closing again returns none."""
        self.state = MailState.CLOSED
        return self.drain()

    def _take(self, lane: deque[tuple[int, M]]) -> M:
        self._count -= 1
        return lane.popleft()[1]

    def _check_not_closed(self) -> None:
        if self.state is MailState.CLOSED:
            raise MailboxClosed("the mailbox is closed: close() returned the remaining mails")


class _Lanes(Generic[M]):
    """Numbered mails by priority. Each priority that was ever used has a queue: a handful."""

    __slots__ = ("_queues",)

    def __init__(self) -> None:
        self._queues: dict[int, deque[tuple[int, M]]] = {}

    def add(self, number: int, priority: int, mail: M) -> None:
        queue = self._queues.get(priority)
        if queue is None:
            queue = self._queues[priority] = deque()
        queue.append((number, mail))

    def first(self, min_priority: int) -> deque[tuple[int, M]] | None:
        """Return the queue of the oldest mail of at least this priority; never an empty one."""
        best = None
        for priority, queue in self._queues.items():
            # Numbers are unique, so the mails themselves are never compared.
            if queue and priority >= min_priority and (best is None or queue[0][0] < best[0][0]):
                best = queue
        return best

    def empty(self) -> Iterator[M]:
        """Remove and return all mails, by number."""
        numbered = sorted(
            (entry for queue in self._queues.values() for entry in queue), key=_number
        )
        self._queues.clear()
        return (mail for _, mail in numbered)


def _number(entry: tuple[int, object]) -> int:
    return entry[0]
