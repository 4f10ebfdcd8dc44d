"""The backend in memory: fast, and lost with the process unless snapshots are stored."""

from __future__ import annotations

from collections.abc import (
    Callable,
    Collection,
    Hashable,
    Iterable,
    Iterator,
    MutableMapping,
    Sequence,
)
from heapq import merge
from itertools import islice
from operator import itemgetter
from typing import Any, Final, TypeVar

from aflow.errors import FlowDefinitionError, OperatorError
from aflow.machines.timer_queue import TimerQueue
from aflow.model.time import MAX_TIMESTAMP, Clock, TimeDomain, Timestamp
from aflow.state.backend import KeyTimerQueue
from aflow.state.cells import ValueCell
from aflow.state.defensive_copies import reader_copy
from aflow.state.gradual_capture import GradualCaptures, WaitingRows, are_many
from aflow.state.key_kinds import KeyKinds
from aflow.state.keyed_entries import (
    CapturedRows,
    GroupReader,
    Keyed,
    KeyedRows,
    KeyGroupCodec,
    KeyRow,
)
from aflow.state.readable_state import ABSENT, KeySelection, scanned
from aflow.state.specs import StateSpec, ValueState
from aflow.state.stored_entries import PIECE
from aflow.state.tables import TOUCHED, Table, Tables, fits
from aflow.state.timed_rows import decode_moment

C = TypeVar("C")
T = TypeVar("T")

#: Up to this number of changed keys, changes are always captured alone.
_FEW: Final = 256

#: Maximal number of noted changed keys; with more the next capture is complete. It bounds the memory of a job that
#: was restored and takes no checkpoints.
MOST: Final = 1 << 20


class NoKey:
    """Stands for the current key while there is none. Its use in a dict raises, so cells need no check."""

    __slots__ = ("_operator",)

    def __init__(self, operator: str) -> None:
        self._operator = operator

    def __hash__(self) -> int:
        raise OperatorError(
            f"step {self._operator!r} used keyed state, a timer or the key outside of its handlers; "
            f"each belongs to the key of the current record: use it before the handler returns",
            operator=self._operator,
        )


class MemoryBackend:
    """One dict by key for each state name; see ``KeyedBackend``.

    Key groups are computed for snapshots, never for records. State with a ``ttl`` needs the ``clock``.
    """

    def __init__(self, key_codec: KeyGroupCodec, clock: Clock | None = None) -> None:
        self.key_codec = key_codec
        self._no_key: Final = NoKey(key_codec.operator)
        self.key: Hashable = self._no_key
        self._tables: Final = Tables(key_codec.operator, clock)
        #: Keys touched since the last capture or restore; None: the next capture is complete.
        self._changed: set[Hashable] | None = None
        self._kinds: Final = KeyKinds()
        self._gradual: Final = GradualCaptures()

    def touch(self, keys: Sequence[Hashable]) -> None:
        # Hot path: once for each batch of a keyed step.
        if self._gradual:
            self._gradual.save(keys)
        if self._changed is not None:
            self._changed.update(keys)
            if len(self._changed) > MOST:
                self._changed = None
        if self._tables.timed:
            self._sweep()

    def leave(self) -> None:
        self.key = self._no_key

    def cell(self, spec: StateSpec[C]) -> C:
        return spec.cell(self, self._tables.of(spec).live_rows)

    def stored_cell(self, spec: StateSpec[Any]) -> ValueCell[Any]:
        return ValueCell(self, self._tables.of(spec).live_rows)

    def table(self, spec: ValueState[T]) -> MutableMapping[Hashable, T]:
        return self._untimed(spec).rows

    def timers(self, domain: TimeDomain, kinds: KeyKinds) -> KeyTimerQueue:
        return TimerQueue[Hashable, None]()

    def capture(self, *, changes: bool) -> KeyedRows:
        self._gradual.complete()
        self._sweep()
        changed, self._changed = self._changed, set()
        most = max((len(table.rows) for table in self._tables), default=0)
        if not changes or (changed is not None and len(changed) > max(_FEW, most // 2)):
            changed = None
        if changed is not None:
            # A table may hold an equal key of another type than the changed one; the captured keys count.
            self._kinds.see(changed)
            if self._kinds.mixed:
                changed = None
        if are_many(most if changed is None else len(changed)):
            return self._captured_gradually(changed)
        if changed is None:
            self._see_all()
        return self._captured(changed)

    def snapshot(self) -> Keyed:
        self._sweep()
        return CapturedRows(self.key_codec, self._captured(None)).encoded().keyed

    def restore_in_pieces(self, keyed: Keyed) -> Iterator[None]:
        return self._load(keyed, _nothing)

    def restore_beside(
        self, keyed: Keyed, beside: Callable[[GroupReader], Iterator[None]]
    ) -> Iterator[None]:
        """As ``restore_in_pieces``; ``beside`` restores other data of each key group, and gets the same key objects."""
        return self._load(keyed, beside)

    def _load(
        self, keyed: Keyed, beside: Callable[[GroupReader], Iterator[None]]
    ) -> Iterator[None]:
        self._changed = set()
        for table in self._tables:
            table.clear()
        described, as_declared = self._tables.described(), True
        stored: dict[str, Table] = {}
        for names in self.key_codec.own(keyed):
            stored.update((table.name, table) for table in self._tables.stored(names))
            as_declared = as_declared and fits(names, described)
            yield
        loaded = [_TableLoader(table, self._kinds) for table in stored.values()]
        for group in self.key_codec.own_groups(keyed):
            for one in loaded:
                yield from one.read(group)
            yield from beside(group)
        for one in loaded:
            for changed in one.finish():
                self._note(changed)
                yield
        if not as_declared:
            self._changed = None  # otherwise one description would cover rows of both types

    def restore(self, keyed: Keyed) -> None:
        for _ in self.restore_in_pieces(keyed):
            pass

    def get(self, name: str, key: Hashable) -> object | None:
        found = self.read(name, key)
        return None if found is ABSENT else found

    def read(self, name: str, key: Hashable) -> object:
        """As ``ReadableState.read``."""
        table = self._tables.known(name)
        if not table.has_row(key):
            return ABSENT
        return reader_copy(table.spec.view(table.rows[key]))

    def scan(self, name: str, wanted: KeySelection) -> Iterator[Sequence[Hashable]]:
        """As ``ReadableState.scan``."""
        return scanned(list(self._tables.known(name).rows))

    def keys(self, name: str) -> list[Hashable]:
        table = self._tables.known(name)
        return list(table.rows) if table.timed is None else list(filter(table.has_row, table.rows))

    def close(self) -> None:
        try:
            self._gradual.complete()
        finally:
            for table in self._tables:
                table.clear()

    def _untimed(self, spec: StateSpec[object]) -> Table:
        table = self._tables.of(spec)
        if table.timed is not None:
            raise FlowDefinitionError(
                f"{table.what} has a ttl, which only cells support; use cell() in place of table()"
            )
        return table

    def _see_all(self) -> None:
        """Record the kinds of all keys."""
        for table in self._tables:
            self._kinds.see(table.rows)

    def _sweep(self) -> None:
        self._note(self._tables.sweep())

    def _captured(self, changed: Collection[Hashable] | None) -> KeyedRows:
        rows: dict[str, Iterable[KeyRow]] = {}
        for table in self._tables:
            rows.update(table.captured(changed))
        return KeyedRows(rows, changed, self._tables.described())

    def _captured_gradually(self, changed: Collection[Hashable] | None) -> KeyedRows:
        """Capture the rows of ``changed`` keys, or of all keys; they are collected in pieces."""
        parts = [
            WaitingRows(list(table.rows if changed is None else changed), table.captured)
            for table in self._tables
        ]
        capture = self._gradual.begin(parts, self._kinds, changed)
        return KeyedRows(dict(capture.rows), changed, self._tables.described(), capture.gather)

    def _note(self, changed: Iterable[Hashable]) -> None:
        if self._changed is not None:
            self._changed.update(changed)


def _nothing(group: GroupReader) -> Iterator[None]:
    return iter(())


class _TableLoader:
    """Loads the rows of one table, in pieces."""

    def __init__(self, table: Table, kinds: KeyKinds) -> None:
        self._table = table
        self._kinds = kinds
        #: Sorted runs of keys with the last touches of their rows, as stored; MAX_TIMESTAMP for an unknown one.
        self._runs: list[list[tuple[Hashable, Timestamp]]] = []

    def read(self, group: GroupReader) -> Iterator[None]:
        """Add the rows of a key group. Raises ``RestoreError``."""
        table, timed = self._table, self._table.timed is not None
        touched: dict[Hashable, Timestamp] = {}
        if timed:
            for keys, data in group.read(f"{TOUCHED}{table.name}"):
                touched.update(zip(keys, map(decode_moment, data), strict=True))
                yield
        for keys, data in group.read(table.name):
            table.rows.update(zip(keys, table.decoded_all(keys, data), strict=True))
            self._kinds.see(keys)
            if timed:
                moments = [touched.get(key, MAX_TIMESTAMP) for key in keys]
                self._runs.append(sorted(zip(keys, moments, strict=True), key=itemgetter(1)))
            yield

    def finish(self) -> Iterator[list[Hashable]]:
        """Complete the table, and yield keys whose rows differ from the snapshot.

        A last touch in the future (by another clock), or an unknown one, counts as now. Expired rows are forgotten.
        """
        if self._table.timed is None:
            return
        timed, now = self._table.timed, self._table.timed.now()
        merged = merge(*self._runs, key=itemgetter(1))
        while some := list(islice(merged, PIECE)):
            timed.hold_next((key, min(moment, now)) for key, moment in some)
            yield [key for key, moment in some if moment > now]
        while gone := timed.sweep(PIECE):
            yield gone
