"""The timers that a keyed step has set, in both domains: what is due, and how they are filed in a snapshot."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Final, cast

from aflow.errors import RestoreError
from aflow.machines.timers import TimerQueue
from aflow.model.codecs import PLAIN, CodecError
from aflow.model.time import TimeDomain, Timestamp
from aflow.operators.base import Alarm
from aflow.operators.wake import Wake
from aflow.state.filing import Keyed, KeyedFiling

#: Under which names of a snapshot timers are filed.
_NAMES: Final = {
    TimeDomain.EVENT: "@event timers",
    TimeDomain.PROCESSING: "@processing timers",
}


class KeyTimers:
    """Timers by key; only the earliest processing timer is on the clock."""

    def __init__(self, alarm: Alarm) -> None:
        self.queues: Final[dict[TimeDomain, TimerQueue[Hashable, None]]] = {
            domain: TimerQueue() for domain in TimeDomain
        }
        self._wake = Wake(alarm)

    def due(self, domain: TimeDomain, now: Timestamp) -> Iterator[tuple[Timestamp, Hashable]]:
        """Time and key of all timers up to ``now``, in time order, those that are set meanwhile included."""
        for timer in self.queues[domain].due(now):
            yield timer.time, timer.key

    def arm(self) -> None:
        """Set the alarm to the earliest processing timer, if it is not."""
        self._wake.arm(self.queues[TimeDomain.PROCESSING].earliest)

    def rang(self) -> None:
        """The alarm rang, so it is set to nothing."""
        self._wake.rang()

    def snapshot(self, filing: KeyedFiling) -> Keyed:
        """All timers by key group. Raises ``CheckpointError`` for a key without encoding."""
        return filing.file({_NAMES[domain]: _encoded(self.queues[domain]) for domain in TimeDomain})

    def restore(self, filing: KeyedFiling, keyed: Keyed) -> None:
        """Set the timers of this subtask's key groups. Raises ``RestoreError`` for bytes that are no timer."""
        for domain in TimeDomain:
            for key, data in filing.read(keyed, _NAMES[domain]):
                self.queues[domain].register(_moment(data, filing.operator), key, None)
        self.arm()


def _encoded(queue: TimerQueue[Hashable, None]) -> Iterator[tuple[Hashable, bytes]]:
    return ((timer.key, PLAIN.encode(timer.time)) for timer in queue.entries())


def _moment(data: bytes, operator: str) -> Timestamp:
    try:
        moment = PLAIN.decode(data)
    except CodecError as exc:
        raise RestoreError(f"step {operator!r} cannot read a stored timer: {exc}") from exc
    return cast("Timestamp", moment)  # written by _encoded
