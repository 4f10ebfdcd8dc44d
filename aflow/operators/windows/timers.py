"""The timers of a window step in both domains: the alarm for them, and how they are filed in a snapshot."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Final, cast

from aflow.errors import RestoreError
from aflow.machines.timers import Timer
from aflow.machines.windows.window_timers import DueWindow, WindowTimers
from aflow.model.codecs import PLAIN, CodecError
from aflow.model.time import TimeDomain, Timestamp
from aflow.model.windows import TimeWindow
from aflow.operators.base import Alarm
from aflow.operators.wake import Wake
from aflow.state.filing import EncodedLater, Keyed, KeyedFiling, KeyRow, Members

#: Under which names of a snapshot timers are filed.
TIMER_NAMES: Final = {
    TimeDomain.EVENT: "@event timers",
    TimeDomain.PROCESSING: "@processing timers",
}


class DomainTimers:
    """Timers by window and key; only the earliest processing timer is on the clock."""

    def __init__(self, alarm: Alarm) -> None:
        self.event: Final = WindowTimers[Hashable]()
        self.processing: Final = WindowTimers[Hashable]()
        self._wake = Wake(alarm)

    def of(self, domain: TimeDomain) -> WindowTimers[Hashable]:
        """The timers of one domain."""
        return self.event if domain is TimeDomain.EVENT else self.processing

    def due(self, domain: TimeDomain, now: Timestamp) -> Iterator[DueWindow]:
        """Take all timers up to ``now``, in time order, those that are set meanwhile included."""
        return self.of(domain).due(now)

    def arm(self) -> None:
        """Set the alarm to the earliest processing timer, if it is not."""
        self._wake.arm(self.processing.earliest)

    def rang(self) -> None:
        """The alarm rang, so it is set to nothing."""
        self._wake.rang()

    def entries(self, domain: TimeDomain) -> Iterator[KeyRow]:
        """The timers of single keys, encoded; those of whole windows follow from the windows there are."""
        return map(_row, _timers(self.of(domain)))

    def capture(self, *, changes: bool) -> Mapping[str, Members]:
        """The timers of single keys; with ``changes`` those that have come and gone since the last capture."""
        return {
            name: _captured(self.of(domain), changes=changes)
            for domain, name in TIMER_NAMES.items()
        }

    def begin_changes(self) -> None:
        """Note which timers come and go from here on."""
        for domain in TimeDomain:
            self.of(domain).take_changes()

    def read(
        self, domain: TimeDomain, filing: KeyedFiling, keyed: Keyed
    ) -> Iterator[tuple[Hashable, Timestamp, TimeWindow]]:
        """The timers in a snapshot for this subtask's keys. Raises ``RestoreError`` for bytes that are no timer."""
        for key, data in filing.read(keyed, TIMER_NAMES[domain]):
            try:
                at, start, end = cast("tuple[int, int, int]", PLAIN.decode(data))
            except CodecError as exc:
                raise RestoreError(
                    f"step {filing.operator!r} cannot read a stored timer: {exc}"
                ) from exc
            yield key, at, TimeWindow(start, end)


def _captured(timers: WindowTimers[Hashable], *, changes: bool) -> Members:
    """Timers never change, so they are encoded later."""
    known = timers.take_changes()
    if known is None or not changes:
        return Members(EncodedLater(list(_timers(timers)), _row))
    return Members(EncodedLater(known.added, _row), EncodedLater(known.removed, _row))


def _timers(timers: WindowTimers[Hashable]) -> Iterator[Timer[Hashable, TimeWindow]]:
    return (Timer(at, key, window) for at, window, key in timers.of_keys())


def _row(timer: Timer[Hashable, TimeWindow]) -> KeyRow:
    window = timer.namespace
    return timer.key, PLAIN.encode([timer.time, window.start, window.end])
