"""The timers of a step with async handlers: a timer exists until its handler took effect.

Theory. ``KeyTimers`` has all timers, for snapshots. Indexes contain those to look at: *upcoming* ones until the
watermark or the clock reaches them, and then, until they are deleted, *due* ones by key (event time) or *fired* ones
(processing time). Event timers that are due fire in their key's order. Those registered for a moment that the watermark
has passed are due at once, and fire with the next watermark.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Collection, Container, Generator, Hashable, Iterator, Mapping
from typing import Final

from aflow.machines.timer_queue import TimerQueue
from aflow.model.time import MIN_TIMESTAMP, TimeDomain, Timestamp
from aflow.operators.key_timers import KeyTimers
from aflow.operators.pieces import slices
from aflow.state.key_kinds import KeyKinds
from aflow.state.keyed_entries import Keyed, KeyGroupCodec, Members
from aflow.state.stored_entries import batched


class _NoAlarm:
    """No alarm: the step has one for several purposes, and sets it itself."""

    def set(self, at: Timestamp | None) -> None:
        return None


def _in_memory(domain: TimeDomain, kinds: KeyKinds) -> TimerQueue[Hashable, None]:
    return TimerQueue()


class HandlerTimers:
    """Timers by key, in both time domains."""

    def __init__(self) -> None:
        self._all: Final = KeyTimers(_NoAlarm(), _in_memory)
        self._upcoming: Final[dict[TimeDomain, TimerQueue[Hashable, None]]] = {
            domain: TimerQueue() for domain in TimeDomain
        }
        #: The latest watermark that a key may have reached: event timers up to here may be due.
        self._horizon: Timestamp = MIN_TIMESTAMP
        #: By key, in time order; none of the lists is empty.
        self._due: dict[Hashable, list[Timestamp]] = {}
        #: Keys that may have due timers and no queue in which they would fire; as an ordered set.
        self._late: dict[Hashable, None] = {}
        #: Processing timers whose handler waits for its turn, or runs.
        self._fired: set[tuple[Timestamp, Hashable]] = set()

    def count(self, domain: TimeDomain) -> int:
        return len(self._all.queues[domain])

    # ---------------------------------------------------------------------------------- what handlers do

    def set(self, domain: TimeDomain, at: Timestamp, key: Hashable) -> None:
        """Register a timer, unless it exists."""
        if not self._all.queues[domain].register(at, key, None):
            return
        if domain is TimeDomain.EVENT and at <= self._horizon:
            insort(self._due.setdefault(key, []), at)
        else:
            self._upcoming[domain].register(at, key, None)

    def delete(self, domain: TimeDomain, at: Timestamp, key: Hashable) -> None:
        """Delete a timer, if it exists."""
        if not self._all.queues[domain].delete(at, key, None):
            return
        if self._upcoming[domain].delete(at, key, None):
            return
        if domain is TimeDomain.PROCESSING:
            self._fired.discard((at, key))
            return
        due = self._due[key]
        due.remove(at)
        if not due:
            del self._due[key]

    # ------------------------------------------------------------------------------------ what is due

    def due(self, key: Hashable) -> Timestamp | None:
        """Return the earliest event timer of ``key`` that is due; None if there is none."""
        due = self._due.get(key)
        return due[0] if due else None

    def reached(self, watermark: Timestamp) -> Generator[int, None, Collection[Hashable]]:
        """Advance to ``watermark``, in pieces, and return the keys without a queue that may have due timers."""
        self._horizon = max(self._horizon, watermark)
        found, self._late = self._late, {}
        for timers in slices(self._upcoming[TimeDomain.EVENT].due_in_pieces(watermark)):
            for timer in timers:
                if timer is not None:
                    insort(self._due.setdefault(timer.key, []), timer.time)
                    found[timer.key] = None
            yield 0
        return found

    def on_queue_empty(self, key: Hashable) -> None:
        """The queue of ``key`` is empty. Timers that were due when registered fire with the next watermark."""
        if key in self._due:
            self._late[key] = None

    def fired(self, now: Timestamp) -> Iterator[list[tuple[Timestamp, Hashable]]]:
        """Yield lists with time and key of the processing timers that the clock has reached."""
        for timers in slices(self._upcoming[TimeDomain.PROCESSING].due_in_pieces(now)):
            fired = [(timer.time, timer.key) for timer in timers if timer is not None]
            self._fired.update(fired)
            yield fired

    def waits(self, at: Timestamp, key: Hashable) -> bool:
        """Return True if a processing timer that fired still exists."""
        return (at, key) in self._fired

    @property
    def alarm(self) -> Timestamp | None:
        """The time of the next processing timer; None if there is none."""
        return self._upcoming[TimeDomain.PROCESSING].earliest

    # ---------------------------------------------------------------------------------------- snapshots

    def capture(
        self, *, changes: bool, beside: Collection[Hashable]
    ) -> Mapping[str, Members] | None:
        """As ``KeyTimers.capture``."""
        return self._all.capture(changes=changes, beside=beside)

    def restore_in_pieces(
        self,
        key_codec: KeyGroupCodec,
        keyed: Keyed,
        horizon: Timestamp,
        queued: Container[Hashable],
    ) -> Iterator[None]:
        """Restore the timers. Raises ``RestoreError``.

        ``queued`` are keys with restored handlers: their timers up to ``horizon`` are due, those of others upcoming.
        """
        self._horizon = horizon
        yield from self._all.restore_in_pieces(key_codec, keyed)
        for domain, queue in self._all.queues.items():
            upcoming = self._upcoming[domain]
            for some in batched(queue.entries()):
                for at, key, _ in some:
                    if domain is TimeDomain.EVENT and at <= horizon and key in queued:
                        insort(self._due.setdefault(key, []), at)
                    else:
                        upcoming.register(at, key, None)
                yield
