"""The timers that a keyed step has set, in both domains: what is due, and how they are filed in a snapshot."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Final, cast

from aflow.errors import RestoreError
from aflow.machines.timers import Timer, TimerQueue
from aflow.model.codecs import PLAIN, CodecError
from aflow.model.time import TimeDomain, Timestamp
from aflow.operators.base import Alarm
from aflow.operators.wake import Wake
from aflow.state.filing import EncodedLater, Keyed, KeyedFiling, KeyRow, Members

#: Under which names of a snapshot timers are filed, as sets.
TIMER_NAMES: Final = {
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
        return filing.file(
            {name: map(_row, self.queues[domain].entries()) for domain, name in TIMER_NAMES.items()}
        )

    @property
    def noted(self) -> bool:
        """Whether it is known which timers have come and gone since the last capture."""
        return all(queue.noting for queue in self.queues.values())

    def capture(self, *, changes: bool) -> Mapping[str, Members]:
        """All timers, or with ``changes`` those that have come and gone since the last capture or the restore."""
        return {
            name: _captured(self.queues[domain], changes=changes)
            for domain, name in TIMER_NAMES.items()
        }

    def restore(self, filing: KeyedFiling, keyed: Keyed) -> None:
        """Set the timers of this subtask's key groups. Raises ``RestoreError`` for bytes that are no timer."""
        for domain in TimeDomain:
            queue = self.queues[domain]
            for key, data in filing.read(keyed, TIMER_NAMES[domain]):
                queue.register(_moment(data, filing.operator), key, None)
            queue.take_changes()  # what comes and goes from here on is news
        self.arm()


def _captured(queue: TimerQueue[Hashable, None], *, changes: bool) -> Members:
    """Timers never change, so they are encoded later."""
    known = queue.take_changes()
    if known is None or not changes:
        return Members(EncodedLater(queue.copied(), _row))
    return Members(EncodedLater(known.added, _row), EncodedLater(known.removed, _row))


def _row(timer: Timer[Hashable, None]) -> KeyRow:
    return timer.key, PLAIN.encode(timer.time)


def _moment(data: bytes, operator: str) -> Timestamp:
    try:
        moment = PLAIN.decode(data)
    except CodecError as exc:
        raise RestoreError(f"step {operator!r} cannot read a stored timer: {exc}") from exc
    return cast("Timestamp", moment)  # written by _row
