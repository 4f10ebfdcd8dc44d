"""The backend for keyed state larger than memory.

Theory. The dicts of a ``MemoryBackend`` hold the *resident* keys, on which its cells work at full speed. ``touch``
makes the keys of a batch resident, with one read of the database for missing ones, and evicts others. A capture encodes
the rows of resident keys at once, or many of them in pieces, and reads the others later, from a view of the database at
the time of the capture. A restore writes directly into the database.
"""

from __future__ import annotations

from collections.abc import (
    Callable,
    Collection,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    Sequence,
)
from functools import partial
from typing import Any, Final, TypeVar

from aflow.model.time import Clock, TimeDomain
from aflow.state.backend import KeyTimerQueue
from aflow.state.disk.buckets import BUCKETS, BUCKETS_END, decode_bucket
from aflow.state.disk.residents import Residents
from aflow.state.disk.scratch import Scratch
from aflow.state.disk.snapshot_loader import MANY, GroupLoader
from aflow.state.disk.stored_rows import AllBuckets, AwayBuckets, SomeBuckets, stored_rows
from aflow.state.disk.timer_database import NEAR
from aflow.state.disk.timers import DiskTimerQueue
from aflow.state.gradual_capture import WaitingRows, are_many
from aflow.state.key_kinds import KeyKinds
from aflow.state.keyed_entries import (
    CombinedRows,
    GroupReader,
    Keyed,
    KeyedRows,
    KeyGroupCodec,
    KeyRow,
)
from aflow.state.memory import MemoryBackend
from aflow.state.readable_state import ABSENT, SCANNED, KeySelection, scanned
from aflow.state.specs import ValueState
from aflow.state.tables import Table, fits

T = TypeVar("T")

#: Restored entries written at once, which takes some milliseconds.
_AT_ONCE: Final = 1024


class DiskBackend(MemoryBackend):
    """Up to ``resident`` keys in memory and the others in a database in ``scratch``; see ``KeyedBackend``.

    All keys of the current batch are in memory, in any number.
    """

    def __init__(
        self, key_codec: KeyGroupCodec, clock: Clock | None, scratch: Scratch, resident: int
    ) -> None:
        super().__init__(key_codec, clock)
        self._scratch: Final = scratch
        self._residents: Final = Residents(key_codec, self._tables, scratch, resident, self._kinds)
        self._residents.before_eviction = self._gradual.save

    def touch(self, keys: Sequence[Hashable]) -> None:
        super().touch(keys)
        if self._tables:
            self._residents.touch(keys)

    def table(self, spec: ValueState[T]) -> MutableMapping[Hashable, T]:
        table = self._untimed(spec)
        return _DiskTable(table.rows, self._admit, lambda: self._stored_keys(table))

    def timers(self, domain: TimeDomain, kinds: KeyKinds) -> KeyTimerQueue:
        return DiskTimerQueue(domain, self.key_codec, self._scratch, kinds, NEAR)

    def capture(self, *, changes: bool) -> KeyedRows:
        self._gradual.complete()
        self._sweep()
        changed, self._changed = self._changed, set()
        self._kinds.see(changed or ())
        if not changes or self._kinds.mixed:
            changed = None
        many = are_many(len(self._residents) if changed is None else len(changed))
        if many and self._scratch.exists and not self._kinds.mixed:
            return self._captured_gradually(changed)
        return self._captured(changed)

    def restore_beside(
        self, keyed: Keyed, beside: Callable[[GroupReader], Iterator[None]]
    ) -> Iterator[None]:
        yield from self.restore_in_pieces(keyed)
        for group in self.key_codec.own_groups(keyed):
            yield from beside(group)

    def restore_in_pieces(self, keyed: Keyed) -> Iterator[None]:
        yield from super().restore_in_pieces({})
        self._residents.clear()
        self._scratch.clear()
        described, as_declared = self._tables.described(), True
        changed: set[Hashable] = set()
        waiting: list[tuple[bytes, bytes]] = []
        for group in self.key_codec.own_groups(keyed):
            loader = GroupLoader(group, self.key_codec, self._tables)
            for entries in loader.entries():
                waiting += entries
                if len(waiting) >= _AT_ONCE:
                    self._scratch.store.write(waiting)
                    waiting.clear()
                yield
            self._kinds.see(loader.held)
            as_declared = as_declared and fits(group.names, described)
            if len(changed) < MANY:
                changed |= loader.changed
        if waiting:
            self._scratch.store.write(waiting)
        # The next capture holds them; it is complete if they are too many, or rows were stored as other types.
        self._changed = changed if as_declared and len(changed) < MANY else None

    def read(self, name: str, key: Hashable) -> object:
        table = self._tables.known(name)
        if key in self._residents or not self._scratch.exists:
            return super().read(name, key)
        place = self._residents.place(key)
        found = SomeBuckets(self._scratch.store, (place,), frozenset((key,)), self.key_codec.key)
        for _, data in stored_rows(table, found, self.key_codec.key)[name]:
            return table.spec.view(table.decoded(key, data))
        return ABSENT

    def scan(self, name: str, wanted: KeySelection) -> Iterator[Sequence[Hashable]]:
        self._tables.known(name)
        if not self._scratch.exists:
            return
        yield from scanned(self._residents.keys())
        # A page is one read: no iterator of the database is open between two pieces. Buckets are in the order of keys.
        start = BUCKETS + wanted.start
        stop = BUCKETS_END if wanted.stop is None else BUCKETS + wanted.stop
        found = 0
        while found < wanted.most:
            page = self._scratch.store.page(start, stop, SCANNED)
            if not page:
                return
            start = page[-1][0] + b"\0"
            held = (one for _, data in page for one in decode_bucket(data))
            keys = self.key_codec.keys([one[0] or b"" for one in held])
            found += len(wanted.matching(keys))
            yield keys

    def keys(self, name: str) -> list[Hashable]:
        return list(self._stored_keys(self._tables.known(name)))

    def close(self) -> None:
        try:
            super().close()
        finally:
            self._residents.clear()
            self._scratch.clear()

    def _admit(self, key: Hashable) -> None:
        if self._gradual:
            self._gradual.save((key,))
        if self._residents.admit(key) and self._changed is not None:
            self._changed.add(key)

    def _sweep(self) -> None:
        self._note(self._residents.sweep())

    def _stored_keys(self, table: Table) -> Iterator[Hashable]:
        """Yield the keys that have a row in ``table`` now."""
        if not self._scratch.exists:
            return
        self._residents.write()
        view = self._scratch.store.view()
        try:
            rows = stored_rows(table, AllBuckets(view), self.key_codec.key)[table.name]
            for key, _ in rows:
                yield key
        finally:
            view.close()

    def _captured(self, changed: Collection[Hashable] | None) -> KeyedRows:
        if not self._scratch.exists:
            return super()._captured(changed)  # without rows
        return self._captured_all() if changed is None else self._captured_some(changed)

    def _captured_gradually(self, changed: Collection[Hashable] | None) -> KeyedRows:
        """Capture ``changed`` keys, or all: the rows of resident keys in pieces, others from a view of the database."""
        residents = self._residents
        view, places = self._scratch.store.view(), residents.places()
        wanted = None if changed is None else frozenset(changed)
        buckets = AwayBuckets(view, places, wanted, residents.place, self.key_codec.key)
        parts = [
            WaitingRows(
                residents.keys() if changed is None else list(changed),
                partial(self._collected, table),
            )
            for table in self._tables
        ]
        capture = self._gradual.begin(parts, self._kinds, wanted)
        rows: dict[str, Iterable[KeyRow]] = {}
        for table in self._tables:
            for name, stored in stored_rows(table, buckets, self.key_codec.key).items():
                rows[name] = CombinedRows(capture.rows[name], stored)
        return KeyedRows(rows, wanted, self._tables.described(), capture.gather)

    def _collected(self, table: Table, keys: list[Hashable]) -> Mapping[str, Iterable[KeyRow]]:
        """Capture the rows of those of ``keys`` that are resident."""
        here = [key for key in keys if key in table.rows]
        if table.timed is not None:
            self._residents.index_expiries(here)
            here = list(filter(table.has_row, here))
        return table.captured(here)

    def _captured_all(self) -> KeyedRows:
        self._residents.write()
        buckets = AllBuckets(self._scratch.store.view())
        rows: dict[str, Iterable[KeyRow]] = {}
        for table in self._tables:
            rows.update(stored_rows(table, buckets, self.key_codec.key))
        return KeyedRows(rows, None, self._tables.described())

    def _captured_some(self, changed: Collection[Hashable]) -> KeyedRows:
        """Capture the rows of ``changed`` keys: of resident keys now, of evicted ones later."""
        residents = self._residents
        here = [key for key in changed if key in residents]
        residents.index_expiries(here)
        for table in self._tables.timed:
            for key in here:
                if not table.has_row(key):
                    table.forget(key)
        captured = super()._captured(here)
        away = frozenset(changed).difference(here)
        if not away:
            return KeyedRows(captured.rows, changed, captured.described)
        places = list(dict.fromkeys(map(residents.place, away)))
        buckets = SomeBuckets(self._scratch.store.view(), places, away, self.key_codec.key)
        rows: dict[str, Iterable[KeyRow]] = {}
        for table in self._tables:
            for name, stored in stored_rows(table, buckets, self.key_codec.key).items():
                rows[name] = CombinedRows(captured.rows[name], stored)
        return KeyedRows(rows, changed, captured.described)


# Not a subclass of dict: callers may use a dict directly, without its methods.
class _DiskTable(MutableMapping[Hashable, T]):
    """The values of all keys: access to a key makes it resident. ``rows`` are those of resident keys.

    Iteration is over a view of the database, so the loop may replace values and remove keys.
    """

    __slots__ = ("_admit", "_all", "_rows")

    def __init__(
        self,
        rows: dict[Hashable, T],
        admit: Callable[[Hashable], None],
        all_keys: Callable[[], Iterator[Hashable]],
    ) -> None:
        self._rows = rows
        self._admit = admit
        self._all = all_keys

    def __getitem__(self, key: Hashable) -> T:
        self._admit(key)
        return self._rows[key]

    def __setitem__(self, key: Hashable, value: T) -> None:
        self._admit(key)
        self._rows[key] = value

    def __delitem__(self, key: Hashable) -> None:
        self._admit(key)
        del self._rows[key]

    def __contains__(self, key: Any) -> bool:
        self._admit(key)
        return key in self._rows

    def __iter__(self) -> Iterator[Hashable]:
        return self._all()

    def __len__(self) -> int:
        return sum(1 for _ in self._all())
