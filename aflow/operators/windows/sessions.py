"""Event-time sessions that keep one accumulator: a fixed gap, the default trigger, accumulations that can be merged.

Theory. A record creates a session from its timestamp until the gap after it; sessions of a key that touch merge. A
session fires when the watermark reaches its last timestamp, and is then kept for the allowed lateness: a record that
touches it in that time is merged into it. If the watermark has passed the end of the merged session, it fires again at
once, else when the watermark reaches its new end. So a record may merge a session that has fired and one that has not:
the merged session fires once, at its end, and continues the greater count of firings. A record is late if it touches no
session and its own would have been cleaned up.

Nearly every record falls into the newest session of its key and at most moves its end. Such a record costs one lookup
in a dict, and no timer is changed: a session has one timer, which is checked when it is due, and set again if the
session has grown since.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from heapq import heappop, heappush
from itertools import chain
from operator import attrgetter
from typing import Any, Final, cast

from aflow.errors import FlowDefinitionError
from aflow.machines.calls.on_error import Fail
from aflow.model.batch import Batch
from aflow.model.keys import check_key
from aflow.model.time import MAX_TIMESTAMP, TimeDomain, Timestamp
from aflow.model.windows import TimeWindow
from aflow.operators.accumulation import Accumulation
from aflow.operators.base import RAISED, OperatorContext, RowTimes, StateSize, unsupported
from aflow.operators.pieces import drained
from aflow.operators.windows.disk_panes import distinct_keys
from aflow.operators.windows.disk_sessions import (
    NEWEST,
    OTHERS,
    OpenSession,
    SessionRows,
    SessionTimers,
)
from aflow.operators.windows.incremental_windows import IncrementalWindows, StoredRow
from aflow.operators.windows.lateness import LATE
from aflow.operators.windows.open_windows import OpenContents
from aflow.state.disk.ranged_rows import Numbered, RangedRows
from aflow.state.gradual_capture import WaitingRows, waiting_rows
from aflow.state.keyed_entries import Keyed, KeyRow
from aflow.state.readable_state import ABSENT, scanned

#: Keyed state: an accumulator with start and end of its session, its firings, and 1 if it has fired in its present
#: form.
_SESSIONS: Final = "@sessions"


_Result = tuple[TimeWindow, Hashable, Any, int]
"""Window, key, accumulator and firing."""


#: Types of which equal keys have equal bytes, if all keys are of one of them.
_ALIKE: Final[tuple[set[type], ...]] = ({int}, {str}, {bytes})


class SessionAggregateOperator(IncrementalWindows):
    """Fold the records of each session, and emit a ``Windowed`` for each when the watermark passes its end.

    ``gap`` in ms. Raises ``FlowDefinitionError`` for an accumulation without ``merge``.
    """

    def __init__(
        self,
        gap: int,
        accumulation: Accumulation,
        *,
        lateness: int = 0,
        of: type[Any] | None = None,
        key_type: type[Hashable] | None = None,
    ) -> None:
        if accumulation.merge is None:
            raise FlowDefinitionError(
                "sessions need accumulators that can be merged, since a record may merge two; give the fold a merge="
            )
        if gap <= 0:
            raise FlowDefinitionError(f"gap of sessions must be longer than 0 ms, not {gap} ms")
        super().__init__(
            accumulation,
            windows="session",
            state_name=_SESSIONS,
            lateness=lateness,
            of=of,
            key_type=key_type,
        )
        self._gap = gap
        #: The newest session of a key, if it has not fired. Later records can touch no other session of the key.
        self._newest: dict[Hashable, OpenSession] = {}
        #: The other sessions of a key in time order: older ones, and those that have fired; never empty.
        self._others: dict[Hashable, list[OpenSession]] = {}
        #: Sessions by the time of their timer: not after the session fires, or is cleaned up if it has fired. Many
        #: share a time, so only the times are a heap.
        self._timers: dict[Timestamp, list[OpenSession]] = {}
        self._timer_times: list[Timestamp] = []
        #: The timers with ``OnDisk``, which then replace those above.
        self._timers_on_disk: SessionTimers | None = None
        self._session_rows = SessionRows(self._codec)
        #: Results of this batch for sessions that fired again.
        self._fired_again: list[_Result] = []

    def open(self, context: OperatorContext) -> None:
        super().open(context)
        #: The sessions in memory with ``OnDisk``.
        self._recent: Numbered = {NEWEST: self._newest, OTHERS: self._others}
        self._on_disk = self._ranged_rows(self._recent, self._session_rows)
        if self._on_disk is not None:
            self._timers_on_disk = SessionTimers(self._on_disk.timers(TimeDomain.EVENT))

    def process(self, batch: Batch[Any]) -> None:
        keys, times = self.keys_of(batch), self.event_times_of(batch)
        if self._gradual:
            self._save(keys)
        if self._on_disk is not None:
            self._load(keys)
        newest, add, gap = self._newest, self._accumulation.add, self._gap
        late: list[int] = []
        left = iter(batch.values)
        records = zip(keys, times, left, strict=False)
        try:
            while True:
                try:
                    # Hot path (benchmark `session`).
                    for key, time, value in records:
                        session = newest.get(key)
                        if session is not None and session.start <= time <= session.end:
                            session.held = add(session.held, value)
                            if time + gap > session.end:
                                session.end = time + gap
                        elif not self._add_to_sessions(key, time, value):
                            late.append(self.index_of(batch, left))
                    break
                except RAISED as exc:
                    self.settle(exc, batch, self.index_of(batch, left))
        finally:
            if self._fired_again:
                fired_again, self._fired_again = self._fired_again, []
                self._emit_firings(fired_again)
        self._changed.add(keys)
        self._evict()
        self.emit_side(LATE, batch, late)

    def on_watermark(self, timestamp: Timestamp) -> None:
        if timestamp <= self.watermark:
            return  # after a restore the inputs repeat watermarks
        self._advance(timestamp)
        if self._is_due(timestamp):
            self.pieces.run(self._fire_sessions(timestamp))
        else:
            self.output.watermark(timestamp)

    def _restore_rows(self, keyed: Keyed) -> Iterator[None]:
        for some in self._stored_rows(keyed):
            rows = list(some)
            if self._on_disk is not None:
                self._load([key for key, _, _ in rows])
            for key, held, (start, end, firings, fired) in rows:
                self._insert(OpenSession(key, start, end, held, firings, bool(fired)))
            self._evict()
            yield

    def row_times(self) -> RowTimes:
        def of_session(data: bytes) -> tuple[Timestamp]:
            stored = cast("tuple[object, int, Timestamp, int, int]", self._read(data))
            _, _, end, _, fired = stored
            return (self._due_at(end, fired=bool(fired)),)

        return {_SESSIONS: of_session}

    def size(self) -> StateSize:
        """Count sessions as entries; each has one timer. On disk, all of them are read."""
        if self._on_disk is not None:
            others = sum(len(some) for _, some in self._on_disk.items(OTHERS))
            entries = others + sum(1 for _ in self._on_disk.items(NEWEST))
            return StateSize(entries, event_timers=entries)
        timers = sum(not session.retired for some in self._timers.values() for session in some)
        return StateSize(sum(1 for _ in self._all()), event_timers=timers)

    def open_windows(self, key: Hashable) -> Iterator[OpenContents]:
        for one in self._of((key,)) if self._on_disk is None else self._peek(self._on_disk, key):
            yield OpenContents(TimeWindow(one.start, one.end), one.held, one.firings)

    def _peek(self, rows: RangedRows, key: Hashable) -> Iterator[OpenSession]:
        """Yield the sessions of ``key``, wherever they are, without moving them."""
        newest, others = rows.peek(NEWEST, key), rows.peek(OTHERS, key)
        if others is not ABSENT:
            yield from others
        if newest is not ABSENT:
            yield newest

    def window_keys(self) -> Iterator[Sequence[Hashable]]:
        if self._on_disk is None:
            return scanned([*self._newest, *self._others])
        # A session that fires moves to the others, and a key may get a new one when its others end.
        return self._on_disk.scan((NEWEST, OTHERS, NEWEST))

    def _rows(self, keys: set[Hashable] | None) -> list[StoredRow]:
        return list(map(_row, self._in_memory(keys)))

    def _memory_parts(self) -> Iterable[WaitingRows]:
        def collect(rows: list[tuple[Hashable, Any]]) -> Mapping[str, Iterable[KeyRow]]:
            # Under the keys of the dicts, which are observed, and not under equal ones of other types.
            return self._collected([(key, *_row(one)[1:]) for key, one in rows])

        def collect_others(rows: list[tuple[Hashable, Any]]) -> Mapping[str, Iterable[KeyRow]]:
            return collect([(key, one) for key, some in rows for one in some])

        return waiting_rows(self._newest, collect), waiting_rows(self._others, collect_others)

    def _entries_of(self, number: int, key: Hashable, data: bytes) -> Iterable[KeyRow]:
        return self._session_rows.entries(number, key, data)

    def _row_count(self) -> int:
        if self._on_disk is not None:
            return len(self._on_disk)
        return len(self._newest) + len(self._others)

    def _in_memory(self, keys: set[Hashable] | None) -> Iterator[OpenSession]:
        """Yield the sessions of ``keys``, or of all keys, that are in memory."""
        if self._on_disk is None:
            yield from self._all() if keys is None else self._of(keys)
            return
        for number, _, row in self._on_disk.resident(keys):
            yield from (row,) if number == NEWEST else row

    def _load(self, keys: Sequence[Hashable]) -> None:
        """Make the sessions of ``keys`` those that lookups find."""
        assert self._on_disk is not None
        if set(map(type, keys)) not in _ALIKE:
            # Sessions of equal keys have rows of their own as long as their kinds are not known to be mixed.
            self._changed.observe([key for key in keys if unsupported(key) is None])
        wanted = distinct_keys(keys)
        self._on_disk.load({NEWEST: wanted, OTHERS: wanted})

    def _evict(self) -> None:
        if self._on_disk is not None:
            self._on_disk.evict()
            self._newest, self._others = self._recent[NEWEST], self._recent[OTHERS]

    # --------------------------------------------------------------------------------------- records

    def _add_to_sessions(self, key: Hashable, time: Timestamp, value: object) -> bool:
        """Fold a record into the sessions that it touches, or into a new one; return False if it is late."""
        end = time + self._gap
        watermark = self._watermark_for(key)
        touched = self._touched(key, time, end)
        if not touched:
            if min(end - 1 + self._lateness, MAX_TIMESTAMP) <= watermark:
                return False
            check_key(key)
            key = self._known_key(key)
            session = OpenSession(key, time, end, self._accumulation.first(value))
            self._store(session, watermark)
        elif len(touched) == 1 and (not touched[0].fired or end - 1 <= watermark):
            session = touched[0]  # kept with its timer
            self._fold(session, time, end, value)
            if session.fired:
                self._fired_again.append(self._fire(session))
        else:
            session = self._merged(touched, time, end, value)
            self._store(session, watermark)
        return True

    def _known_key(self, key: Hashable) -> Hashable:
        """Return the key by which a row is found that a database may have for ``key``: that of its other sessions."""
        if self._on_disk is None:
            return key
        newest = self._newest.get(key)
        if newest is not None:
            return newest.key
        return self._others[key][0].key if key in self._others else key

    def _fold(self, session: OpenSession, time: Timestamp, end: Timestamp, value: object) -> None:
        session.held = self._accumulation.add(session.held, value)
        session.start = min(session.start, time)
        session.end = max(session.end, end)

    def _merged(
        self, former: list[OpenSession], time: Timestamp, end: Timestamp, value: object
    ) -> OpenSession:
        """Return one session with a further record in place of several, or of one that has fired and fires again.

        If the accumulation raises, the former sessions remain; with a policy other than ``Fail`` they are unchanged.
        """
        first, last = former[0], former[-1]
        held = first.held
        if not isinstance(self.on_error, Fail):
            held = self._accumulation.copy(held)
        for session in former[1:]:
            held = self._accumulation.merged(held, session.held)
        merged = OpenSession(
            first.key, first.start, last.end, held, max(session.firings for session in former)
        )
        self._fold(merged, time, end, value)
        for session in former:
            session.retired = True
            self._remove(session)
        return merged

    def _store(self, session: OpenSession, watermark: Timestamp) -> None:
        """Store a session; it fires at once if the watermark has passed its end."""
        if min(session.end - 1, MAX_TIMESTAMP) <= watermark:
            self._fired_again.append(self._fire(session))
        self._insert(session)

    def _insert(self, session: OpenSession) -> None:
        """Store a session as the newest or an older one of its key, with a timer."""
        key = session.key
        self._set_timer(session, self._due(session))
        older: OpenSession | None = session
        if not session.fired:
            newest = self._newest.get(key)
            if newest is None or newest.start < session.start:
                self._newest[key] = session
                older = newest
        if older is not None:
            insort(self._others.setdefault(key, []), older, key=_start)

    def _due(self, session: OpenSession) -> Timestamp:
        """Return the time at which a session fires, or is cleaned up if it has fired: at the end of
        time at the latest.
        """
        return self._due_at(session.end, fired=session.fired)

    def _due_at(self, end: Timestamp, *, fired: bool) -> Timestamp:
        return min(end - 1 + (self._lateness if fired else 0), MAX_TIMESTAMP)

    def _set_timer(self, session: OpenSession, due: Timestamp) -> None:
        if self._timers_on_disk is not None:
            self._timers_on_disk.set(due, session.key)
            return
        some = self._timers.get(due)
        if some is None:
            self._timers[due] = [session]
            heappush(self._timer_times, due)
        else:
            some.append(session)

    def _remove(self, session: OpenSession) -> None:
        key = session.key
        if self._newest.get(key) is session:
            del self._newest[key]
            if self._on_disk is not None:
                self._on_disk.remove(NEWEST, key)
            return
        others = self._others[key]
        others.remove(session)
        if not others:
            del self._others[key]
            if self._on_disk is not None:
                self._on_disk.remove(OTHERS, key)

    def _touched(self, key: Hashable, start: Timestamp, end: Timestamp) -> list[OpenSession]:
        """Return the sessions of a key that touch an interval, in time order."""
        newest, others = self._newest.get(key), self._others.get(key)
        touched = [] if others is None else [s for s in others if s.start <= end and start <= s.end]
        if newest is not None and newest.start <= end and start <= newest.end:
            touched.append(newest)
        return touched

    def _all(self) -> Iterator[OpenSession]:
        return chain(self._newest.values(), chain.from_iterable(self._others.values()))

    def _of(self, keys: Iterable[Hashable]) -> Iterator[OpenSession]:
        newest, others = self._newest, self._others
        for key in keys:
            if key in newest:
                yield newest[key]
            if key in others:
                yield from others[key]

    # --------------------------------------------------------------------------------------- firings

    def _fire_sessions(self, timestamp: Timestamp) -> Iterator[int]:
        """Fire or clean up the sessions that are due, in pieces, and emit the watermark ``timestamp``."""
        yield from self._save_all()
        results: list[_Result] = []
        changed: list[Hashable] = []
        limit = self.pieces.limit
        for at, session in self._take_due(timestamp):
            if not session.retired:
                due = self._due(session)
                if due > at:
                    self._set_timer(session, due)  # it has grown
                else:
                    self._remove(session)
                    changed.append(session.key)
                    if not session.fired:
                        results.append(self._fire_due(session))
            limit -= 1
            if not limit:
                yield self._emit_fired(results, changed)
                results, changed = [], []
                limit = self.pieces.limit
        self._emit_fired(results, changed)
        self.output.watermark(timestamp)

    def _is_due(self, timestamp: Timestamp) -> bool:
        """Return True if a timer is set for ``timestamp`` or an earlier time."""
        if self._timers_on_disk is not None:
            return self._timers_on_disk.is_due(timestamp)
        return bool(self._timer_times) and self._timer_times[0] <= timestamp

    def _take_due(self, timestamp: Timestamp) -> Iterator[tuple[Timestamp, OpenSession]]:
        """Remove and yield the sessions whose timers are due, with their time. Timers may be set meanwhile."""
        if self._timers_on_disk is not None:
            for at, key in self._timers_on_disk.due(timestamp, self._on_due_keys):
                for session in list(self._of((key,))):
                    yield at, session
            self._evict()
            return
        times = self._timer_times
        while times and times[0] <= timestamp:
            at = heappop(times)
            for session in drained(self._timers.pop(at)):
                yield at, session

    def _on_due_keys(self, keys: Sequence[Hashable]) -> None:
        self._evict()
        self._load(keys)

    def _emit_fired(self, results: list[_Result], changed: list[Hashable]) -> int:
        """Emit ``results`` and return their number; the sessions of the keys ``changed`` have fired or ended."""
        self._changed.add(changed)
        if results:
            self._emit_firings(results)
        return len(results)

    def _fire_due(self, session: OpenSession) -> _Result:
        """Fire a session at its time, and store it again if it is kept for late records."""
        try:
            result = self._fire(session)
        except RAISED as exc:
            window = TimeWindow(session.start, session.end)
            raise self._failed(exc, session.key, window) from exc
        if self._lateness:
            self._insert(session)
        return result

    def _fire(self, session: OpenSession) -> _Result:
        session.firings += 1
        session.fired = True
        window = TimeWindow(session.start, session.end)
        held = self._accumulation.copy(session.held) if self._lateness else session.held
        return window, session.key, held, session.firings


_start = attrgetter("start")


def _row(session: OpenSession) -> StoredRow:
    return (
        session.key,
        session.held,
        session.start,
        session.end,
        session.firings,
        int(session.fired),
    )
