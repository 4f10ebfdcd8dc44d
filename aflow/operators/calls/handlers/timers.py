"""The timers of a step with async handlers: a timer exists until its handler took effect.

Theory. *Upcoming* timers are in a queue, which the backend keeps on disk with ``OnDisk``, until the watermark or the
clock reaches them. Then they are *reached* until they are deleted: in memory, by key. Event timers that are reached
fire in their key's order. Those registered for a moment that the watermark has passed are reached at once, and fire
with the next watermark. A snapshot has both kinds.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import (
    Callable,
    Collection,
    Container,
    Generator,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
)
from dataclasses import dataclass
from itertools import chain
from typing import Final, cast

from aflow.machines.timer_changes import ChangeRecord, Changes
from aflow.machines.timer_copy import CompleteCopy, TimerCopy
from aflow.machines.timer_queue import TimerQueue
from aflow.model.time import MIN_TIMESTAMP, TimeDomain, Timestamp
from aflow.operators.key_timers import DomainTimers, key_timer_row
from aflow.operators.pieces import slices
from aflow.state.backend import KeyTimerQueue
from aflow.state.key_kinds import KeyKinds
from aflow.state.keyed_entries import Keyed, KeyGroupCodec, Members

_Identity = tuple[Timestamp, Hashable, None]


class _NoAlarm:
    """No alarm: the step has one for several purposes, and sets it itself."""

    def set(self, at: Timestamp | None) -> None:
        return None


class UnhandledTimers:
    """The timers of one domain whose handlers did not take effect; ``upcoming`` is empty."""

    def __init__(self, upcoming: KeyTimerQueue) -> None:
        self._upcoming = upcoming
        #: Reached timers by key, in time order; none of the lists is empty.
        self._reached: dict[Hashable, list[Timestamp]] = {}
        #: False for a queue on disk, which does not know if a timer is registered.
        self._is_exact = isinstance(upcoming, TimerQueue)
        #: True for each timer added since changes were taken, False for each removed one; None: not recorded. Net if
        #: the queue is exact.
        self._changes: ChangeRecord[Hashable, None] | None = None

    def __len__(self) -> int:
        """Return the number of timers. Reads those on disk."""
        return len(self._upcoming) + sum(map(len, self._reached.values()))

    @property
    def earliest(self) -> Timestamp | None:
        """The time of the earliest upcoming timer (epoch ms); None without one."""
        return self._upcoming.earliest

    def first_reached(self, key: Hashable) -> Timestamp | None:
        """Return the earliest reached timer of ``key``; None without one."""
        reached = self._reached.get(key)
        return reached[0] if reached else None

    def is_reached(self, at: Timestamp, key: Hashable) -> bool:
        """Return True if a timer is registered, and reached."""
        reached = self._reached.get(key)
        if not reached:
            return False
        index = bisect_left(reached, at)
        return index < len(reached) and reached[index] == at

    def set(self, at: Timestamp, key: Hashable, *, reached: bool) -> None:
        """Register a timer, which is ``reached`` or upcoming, unless it exists."""
        if self.is_reached(at, key):
            return
        if reached:
            # After a restore a timer may be upcoming that the watermark of its former subtask has passed.
            is_new = self._upcoming.delete(at, key, None) is not True
            self._reach(at, key)
        else:
            is_new = self._upcoming.register(at, key, None) is not False
        if is_new:
            self._note(at, key, there=True)

    def delete(self, at: Timestamp, key: Hashable) -> None:
        """Delete a timer, if it exists."""
        if self.is_reached(at, key):
            reached = self._reached[key]
            reached.remove(at)
            if not reached:
                del self._reached[key]
        elif self._upcoming.delete(at, key, None) is False:
            return
        self._note(at, key, there=False)

    def reach(self, until: Timestamp) -> Iterator[list[tuple[Timestamp, Hashable]]]:
        """Make the upcoming timers up to ``until`` reached, and yield them in time order, in pieces."""
        for timers in slices(self._upcoming.due_in_pieces(until)):
            some = [(timer.time, timer.key) for timer in timers if timer is not None]
            for at, key in some:
                self._reach(at, key)
            yield some

    def keys(self) -> list[Hashable]:
        """Return the key of each timer, except those that the queue has observed."""
        return [*self._upcoming.keys(), *self._reached]

    def copied(self) -> CopiedHandlerTimers:
        """Return all present timers, to iterate over later, also in another thread."""
        reached = [(at, key, None) for key, several in self._reached.items() for at in several]
        return CopiedHandlerTimers(self._upcoming.copied(), reached)

    def copied_in_pieces(self) -> TimerCopy[Hashable, None]:
        """Return all present timers, which are copied at once."""
        return CompleteCopy(self.copied(), self.keys())

    def take_changes(self) -> Changes[Hashable, None] | None:
        """Return added and removed timers since the last call. The first call starts recording and returns None.

        With a queue on disk, an added timer may have been there before, and a removed one may not.
        """
        changes, self._changes = self._changes, ChangeRecord()
        return None if changes is None else changes.net()

    def _reach(self, at: Timestamp, key: Hashable) -> None:
        insort(self._reached.setdefault(key, []), at)

    def _note(self, at: Timestamp, key: Hashable, *, there: bool) -> None:
        if self._changes is None:
            return
        if self._is_exact:
            self._changes.note((at, key, None), there=there)
        else:
            self._changes.replace((at, key, None), there=there)


@dataclass(frozen=True, slots=True)
class CopiedHandlerTimers:
    """All timers of one domain at one point in time."""

    upcoming: Iterable[_Identity]
    reached: Iterable[_Identity]

    def __iter__(self) -> Iterator[_Identity]:
        return chain(self.upcoming, self.reached)


class HandlerTimers:
    """Timers by key, in both time domains, in queues that ``create`` returns."""

    def __init__(self, create: Callable[[TimeDomain, KeyKinds], KeyTimerQueue]) -> None:
        self._timers: Final = DomainTimers(
            _NoAlarm(), lambda domain, kinds: UnhandledTimers(create(domain, kinds)), key_timer_row
        )
        self._queues: Final = self._timers.queues
        self._event: Final = self._queues[TimeDomain.EVENT]
        self._processing: Final = self._queues[TimeDomain.PROCESSING]
        #: The latest watermark that a key may have reached: event timers up to here are reached.
        self._horizon: Timestamp = MIN_TIMESTAMP
        #: Keys that may have reached event timers and no queue in which they would fire; as an ordered set.
        self._late: dict[Hashable, None] = {}

    def count(self, domain: TimeDomain) -> int:
        """Return the number of timers. Reads those on disk."""
        return len(self._queues[domain])

    # ---------------------------------------------------------------------------------- what handlers do

    def set(self, domain: TimeDomain, at: Timestamp, key: Hashable) -> None:
        """Register a timer, unless it exists."""
        reached = domain is TimeDomain.EVENT and at <= self._horizon
        self._queues[domain].set(at, key, reached=reached)

    def delete(self, domain: TimeDomain, at: Timestamp, key: Hashable) -> None:
        """Delete a timer, if it exists."""
        self._queues[domain].delete(at, key)

    # ------------------------------------------------------------------------------------ what is due

    def due(self, key: Hashable) -> Timestamp | None:
        """Return the earliest event timer of ``key`` that is reached; None if there is none."""
        return self._event.first_reached(key)

    def reached(self, watermark: Timestamp) -> Generator[int, None, Collection[Hashable]]:
        """Advance to ``watermark``, in pieces, and return the keys without a queue that may have due timers."""
        self._horizon = max(self._horizon, watermark)
        found, self._late = self._late, {}
        for some in self._event.reach(watermark):
            found.update((key, None) for _, key in some)
            yield 0
        return found

    def on_queue_empty(self, key: Hashable) -> None:
        """The queue of ``key`` is empty. Timers that were reached when registered fire with the next watermark."""
        if self.due(key) is not None:
            self._late[key] = None

    def fired(self, now: Timestamp) -> Iterator[list[tuple[Timestamp, Hashable]]]:
        """Yield lists with time and key of the processing timers that the clock has reached."""
        return self._processing.reach(now)

    def waits(self, at: Timestamp, key: Hashable) -> bool:
        """Return True if a processing timer that fired still exists."""
        return self._processing.is_reached(at, key)

    @property
    def alarm(self) -> Timestamp | None:
        """The time of the next processing timer; None if there is none."""
        return self._processing.earliest

    # ---------------------------------------------------------------------------------------- snapshots

    def capture(
        self, *, changes: bool, beside: Collection[Hashable]
    ) -> Mapping[str, Members] | None:
        """As ``DomainTimers.capture``."""
        return self._timers.capture(changes=changes, beside=beside)

    def gather(self) -> Iterator[None]:
        """As ``DomainTimers.gather``."""
        return self._timers.gather()

    def restore_in_pieces(
        self,
        key_codec: KeyGroupCodec,
        keyed: Keyed,
        horizon: Timestamp,
        queued: Container[Hashable],
    ) -> Iterator[None]:
        """Restore the timers. Raises ``RestoreError``.

        ``queued`` are keys with restored handlers: their timers up to ``horizon`` are reached, those of other keys
        upcoming.
        """
        self._horizon = horizon
        for domain, queue in self._queues.items():
            is_event = domain is TimeDomain.EVENT
            for some in self._timers.stored(domain, key_codec, keyed):
                for key, stored in some:
                    at = cast("Timestamp", stored)  # written by key_timer_row
                    queue.set(at, key, reached=is_event and at <= horizon and key in queued)
                yield
        self._timers.on_restored()
