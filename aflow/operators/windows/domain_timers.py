"""Timers of a window step in both time domains, their alarm, and their rows in snapshots."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from itertools import chain
from typing import Final, cast

from aflow.errors import RestoreError
from aflow.machines.windows.window_timers import DueWindow, WindowTimers
from aflow.model.codecs import PLAIN, CodecError
from aflow.model.time import TimeDomain, Timestamp
from aflow.model.windows import TimeWindow
from aflow.operators.base import Alarm
from aflow.operators.timer_alarm import TimerAlarm
from aflow.state.key_kinds import KeyKinds
from aflow.state.keyed_entries import Keyed, KeyGroupCodec, KeyRow, LazyRows, Members

#: Names of the timers in snapshots.
TIMER_NAMES: Final = {
    TimeDomain.EVENT: "@event timers",
    TimeDomain.PROCESSING: "@processing timers",
}


class DomainTimers:
    """Timers by window and key; only the earliest processing-time timer is registered with the clock."""

    def __init__(self, alarm: Alarm) -> None:
        self.event: Final = WindowTimers[Hashable]()
        self.processing: Final = WindowTimers[Hashable]()
        self._wake = TimerAlarm(alarm)
        self._kinds = KeyKinds()

    def of(self, domain: TimeDomain) -> WindowTimers[Hashable]:
        """Return the timers of one time domain."""
        return self.event if domain is TimeDomain.EVENT else self.processing

    def due(self, domain: TimeDomain, now: Timestamp) -> Iterator[DueWindow]:
        """Take all timers up to ``now`` in time order, with those that are set meanwhile."""
        return self.of(domain).due(now)

    def arm(self) -> None:
        """Set the alarm to the earliest processing-time timer, unless it is set."""
        self._wake.arm(self.processing.earliest)

    def on_alarm(self) -> None:
        """Mark the alarm as fired."""
        self._wake.on_fired()

    def capture(self, *, changes: bool) -> Mapping[str, Members] | None:
        """Return the timers of single keys; with ``changes`` those added and removed since the last capture.

        None if the changes are not known: then all must be captured.
        """
        members: dict[str, Members] = {}
        for domain, name in TIMER_NAMES.items():
            known = self.of(domain).take_changes()
            if not changes:
                all_timers = list(self.of(domain).key_timers())
                self._kinds.see([key for _, _, key in all_timers])
                rows = [(at, key, window) for at, window, key in all_timers]
                members[name] = Members(LazyRows(rows, _row))
            elif known is None:
                return None
            else:
                added, removed = known.added, known.removed
                self._kinds.see([key for _, key, _ in chain(added, removed)])
                members[name] = Members(LazyRows(added, _row), LazyRows(removed, _row))
        return None if changes and self._kinds.mixed else members

    def begin_changes(self) -> None:
        """Record added and removed timers from here on."""
        for domain in TimeDomain:
            self.of(domain).take_changes()
            self._kinds.see([key for _, _, key in self.of(domain).key_timers()])

    def read(
        self, domain: TimeDomain, key_codec: KeyGroupCodec, keyed: Keyed
    ) -> Iterator[tuple[Hashable, Timestamp, TimeWindow]]:
        """Yield the timers in a snapshot for the keys of this subtask. Raises ``RestoreError`` for bytes that are no
        timer.
        """
        for key, data in key_codec.read(keyed, TIMER_NAMES[domain]):
            try:
                at, start, end = cast("tuple[int, int, int]", PLAIN.decode(data))
            except CodecError as exc:
                raise RestoreError(
                    f"step {key_codec.operator!r} cannot read a stored timer: {exc}"
                ) from exc
            yield key, at, TimeWindow(start, end)


def _row(timer: tuple[Timestamp, Hashable, TimeWindow]) -> KeyRow:
    at, key, window = timer
    return key, PLAIN.encode([at, window.start, window.end])
