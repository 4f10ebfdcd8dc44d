"""The timers of a keyed step in both domains, their alarm, and their form in snapshots."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, Generic, Protocol, TypeVar, cast

from aflow.errors import RestoreError
from aflow.machines.alarm import CancelAlarm, EarliestAlarm, SetAlarm
from aflow.machines.timer_changes import Changes
from aflow.machines.timer_copy import TimerCopy
from aflow.machines.timer_queue import Timer
from aflow.model.codecs import PLAIN, CodecError, decode_all
from aflow.model.time import TimeDomain, Timestamp
from aflow.operators.base import Alarm
from aflow.state.backend import KeyTimerQueue
from aflow.state.key_kinds import KeyKinds
from aflow.state.keyed_entries import GroupReader, Keyed, KeyGroupCodec, KeyRow, LazyRows, Members

#: Names of the timers in a snapshot, where they are sets.
TIMER_NAMES: Final = {
    TimeDomain.EVENT: "@event timers",
    TimeDomain.PROCESSING: "@processing timers",
}


class StoredTimers(Protocol):
    """Timers of one domain, as (time, key, namespace)."""

    @property
    def earliest(self) -> Timestamp | None: ...
    def copied_in_pieces(self) -> TimerCopy[Hashable, Any]: ...
    def take_changes(self) -> Changes[Hashable, Any] | None: ...


Q = TypeVar("Q", bound=StoredTimers)
KQ = TypeVar("KQ", bound=KeyTimerQueue)


class DomainTimers(Generic[Q]):
    """Timers in both domains; the alarm is set to the earliest processing timer. ``row`` encodes a timer."""

    def __init__(
        self,
        alarm: Alarm,
        create: Callable[[TimeDomain, KeyKinds], Q],
        row: Callable[[Any], KeyRow],
    ) -> None:
        self._kinds = KeyKinds()
        self.queues: Final[dict[TimeDomain, Q]] = {
            domain: create(domain, self._kinds) for domain in TimeDomain
        }
        self._row = row
        self._alarm = alarm
        self._earliest = EarliestAlarm()
        #: Completes the last complete capture, in pieces.
        self._gathering: Iterator[None] = iter(())

    def arm(self) -> None:
        """Set the alarm to the earliest processing timer, if it is not."""
        match self._earliest.update(self.queues[TimeDomain.PROCESSING].earliest):
            case SetAlarm(at):
                self._alarm.set(at)
            case CancelAlarm():
                self._alarm.set(None)
            case None:
                pass

    def on_alarm(self) -> None:
        """Record that the alarm went off: it is not set any more."""
        self._earliest.on_fired()

    def capture(
        self, *, changes: bool, beside: Collection[Hashable] = ()
    ) -> Mapping[str, Members] | None:
        """Capture all timers, or with ``changes`` those added and removed since the last capture or the restore.

        ``beside`` are the keys of the state that is stored with them. Returns None if the changes are unknown, as
        before the first capture, or not identified by key: then capture all.
        """
        for _ in self._gathering:
            pass
        found = {TIMER_NAMES[domain]: queue.take_changes() for domain, queue in self.queues.items()}
        self._kinds.see(beside)
        if not changes:
            copies = {domain: queue.copied_in_pieces() for domain, queue in self.queues.items()}
            self._gathering = gathering = self._gather(copies.values())
            return {
                TIMER_NAMES[domain]: Members(LazyRows(_Gathered(gathering, copy), self._row))
                for domain, copy in copies.items()
            }
        members: dict[str, Members] = {}
        for name, known in found.items():
            if known is None:
                return None
            added, removed = known.added, known.removed
            self._kinds.see([key for _, key, _ in chain(added, removed)])
            members[name] = Members(LazyRows(added, self._row), LazyRows(removed, self._row))
        return None if self._kinds.mixed else members

    def gather(self) -> Iterator[None]:
        """Complete the last complete capture, in pieces; the next capture does it otherwise.

        It must be complete before many timers fire: the timers that fire meanwhile are listed at once.
        """
        return self._gathering

    def gather_slices(self) -> Iterator[int]:
        """Do as ``gather``, for work of an operator in pieces without results."""
        for _ in self._gathering:
            yield 0

    def stored(
        self, domain: TimeDomain, key_codec: KeyGroupCodec, keyed: Keyed
    ) -> Iterator[Iterable[tuple[Hashable, object]]]:
        """Yield keys and stored values of the timers of this subtask, in pieces.

        Raises ``RestoreError`` for bytes without one.
        """
        for group in key_codec.own_groups(keyed):
            yield from self.stored_in(domain, group, key_codec.operator)

    def stored_in(
        self, domain: TimeDomain, group: GroupReader, step: str
    ) -> Iterator[Iterable[tuple[Hashable, object]]]:
        """Yield keys and stored values of the timers of a key group, in pieces; raises as ``stored``."""
        for keys, stored in group.read(TIMER_NAMES[domain]):
            self._kinds.see(keys)
            try:
                yield zip(keys, decode_all(PLAIN, stored), strict=True)
            except CodecError as exc:
                raise RestoreError(f"step {step!r} cannot read a stored timer: {exc}") from exc

    def on_restored(self) -> None:
        """Record changes from here on, and set the alarm."""
        for queue in self.queues.values():
            queue.take_changes()
        self.arm()

    def _gather(self, copies: Iterable[TimerCopy[Hashable, Any]]) -> Iterator[None]:
        for copy in copies:
            for keys in copy.gather():
                self._kinds.see(keys)
                yield


@dataclass(frozen=True, slots=True)
class _Gathered:
    """The timers of ``copy``, after ``gathering`` has ended."""

    gathering: Iterator[None]
    copy: TimerCopy[Hashable, Any]

    def __iter__(self) -> Iterator[tuple[Timestamp, Hashable, Any]]:
        for _ in self.gathering:
            pass
        return iter(self.copy)


class KeyTimers(DomainTimers[KQ], Generic[KQ]):
    """Timers by key, in queues that ``create`` returns."""

    def __init__(self, alarm: Alarm, create: Callable[[TimeDomain, KeyKinds], KQ]) -> None:
        super().__init__(alarm, create, key_timer_row)

    def is_due(self, domain: TimeDomain, now: Timestamp) -> bool:
        """Return True if a timer is registered for ``now`` or an earlier time."""
        earliest = self.queues[domain].earliest
        return earliest is not None and earliest <= now

    def due(self, domain: TimeDomain, now: Timestamp) -> Iterator[Timer[Hashable, None] | None]:
        """Remove and yield all timers up to ``now``, in time order, with those registered meanwhile.

        Yields None from time to time, as ``TimerQueue.due_in_pieces``.
        """
        return self.queues[domain].due_in_pieces(now)

    def restore_in_pieces(self, key_codec: KeyGroupCodec, keyed: Keyed) -> Iterator[None]:
        """Set the timers of this subtask's key groups. Raises ``RestoreError`` for bytes that are no timer."""
        for group in key_codec.own_groups(keyed):
            yield from self.restore_group(group, key_codec.operator)
        self.on_restored()

    def restore_group(self, group: GroupReader, step: str) -> Iterator[None]:
        """Set the timers of a key group, in pieces. Raises ``RestoreError`` for bytes that are no timer.

        After the last group ``on_restored`` must be called.
        """
        for domain, queue in self.queues.items():
            register = queue.register
            for some in self.stored_in(domain, group, step):
                for key, at in some:
                    register(cast("Timestamp", at), key, None)  # written by key_timer_row
                yield


def time_of_row(data: bytes) -> tuple[Timestamp]:
    """Return the time of a timer that ``key_timer_row`` has encoded."""
    return (cast("Timestamp", PLAIN.decode(data)),)


def key_timer_row(timer: tuple[Timestamp, Hashable, None]) -> KeyRow:
    """Return a timer as it is stored."""
    time, key, _ = timer
    return key, PLAIN.encode(time)
