"""The timers of a keyed step in both domains, and their form in snapshots."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping
from itertools import chain
from typing import Final, cast

from aflow.errors import RestoreError
from aflow.machines.timer_queue import TimerQueue
from aflow.model.codecs import PLAIN, CodecError
from aflow.model.time import TimeDomain, Timestamp
from aflow.operators.base import Alarm
from aflow.operators.timer_alarm import TimerAlarm
from aflow.state.key_kinds import KeyKinds
from aflow.state.keyed_entries import Keyed, KeyGroupCodec, KeyRow, LazyRows, Members

#: Names of the timers in a snapshot, where they are sets.
TIMER_NAMES: Final = {
    TimeDomain.EVENT: "@event timers",
    TimeDomain.PROCESSING: "@processing timers",
}


class KeyTimers:
    """Timers by key; the alarm is set to the earliest processing timer."""

    def __init__(self, alarm: Alarm) -> None:
        self.queues: Final[dict[TimeDomain, TimerQueue[Hashable, None]]] = {
            domain: TimerQueue() for domain in TimeDomain
        }
        self._alarm = TimerAlarm(alarm)
        self._kinds = KeyKinds()

    def due(self, domain: TimeDomain, now: Timestamp) -> Iterator[tuple[Timestamp, Hashable]]:
        """Remove and yield time and key of all timers up to ``now``, in time order, with those registered meanwhile."""
        for timer in self.queues[domain].due(now):
            yield timer.time, timer.key

    def arm(self) -> None:
        """Set the alarm to the earliest processing timer, if it is not."""
        self._alarm.arm(self.queues[TimeDomain.PROCESSING].earliest)

    def on_alarm(self) -> None:
        """Record that the alarm went off: it is not set any more."""
        self._alarm.on_fired()

    def capture(
        self, *, changes: bool, beside: Collection[Hashable] = ()
    ) -> Mapping[str, Members] | None:
        """Capture all timers, or with ``changes`` those added and removed since the last capture or the restore.

        ``beside`` are the keys of the state that is stored with them. Returns None if the changes are unknown, as
        before the first capture, or not identified by key: then capture all.
        """
        found = {name: queue.take_changes() for name, queue in self._named()}
        self._kinds.see(beside)
        if not changes:
            self._see_all()
            return {name: Members(LazyRows(queue.copied(), _row)) for name, queue in self._named()}
        members: dict[str, Members] = {}
        for name, known in found.items():
            if known is None:
                return None
            added, removed = known.added, known.removed
            self._kinds.see([key for _, key, _ in chain(added, removed)])
            members[name] = Members(LazyRows(added, _row), LazyRows(removed, _row))
        return None if self._kinds.mixed else members

    def _named(self) -> Iterator[tuple[str, TimerQueue[Hashable, None]]]:
        return ((name, self.queues[domain]) for domain, name in TIMER_NAMES.items())

    def _see_all(self) -> None:
        for queue in self.queues.values():
            self._kinds.see(queue.keys())

    def restore(self, key_codec: KeyGroupCodec, keyed: Keyed) -> None:
        """Set the timers of this subtask's key groups. Raises ``RestoreError`` for bytes that are no timer."""
        for domain in TimeDomain:
            queue = self.queues[domain]
            for key, data in key_codec.read(keyed, TIMER_NAMES[domain]):
                queue.register(_moment(data, key_codec.operator), key, None)
            queue.take_changes()  # what comes and goes from here on is news
        self._see_all()
        self.arm()


def _row(timer: tuple[Timestamp, Hashable, None]) -> KeyRow:
    time, key, _ = timer
    return key, PLAIN.encode(time)


def _moment(data: bytes, operator: str) -> Timestamp:
    try:
        moment = PLAIN.decode(data)
    except CodecError as exc:
        raise RestoreError(f"step {operator!r} cannot read a stored timer: {exc}") from exc
    return cast("Timestamp", moment)  # written by _row
