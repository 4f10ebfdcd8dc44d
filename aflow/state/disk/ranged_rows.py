"""Rows of keys in numbered ranges, for windows: those of a number (a pane, say) are read and deleted together.

Theory. Resident rows are in dicts by number, in two generations, so that the loops of an operator work on plain dicts.
``load`` moves the rows of a batch to the *recent* generation, with one read of the database for missing ones.
``evict`` writes rows of the *older* generation until there is room. When that is empty, the recent generation becomes
the older one. Recent rows may differ from the database; older ones are equal to it after ``flush``.

Rows of a number that are only in the database are *away*. They are counted, so a number without them is not looked up.

Equal keys may have different stored bytes (``1`` and ``True``). When the keys of a step become mixed like that, all
rows are written again with other database keys (see ``row_places``), among which equal keys are searched.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from heapq import merge
from itertools import groupby, islice, repeat
from operator import itemgetter
from typing import Any, Final, Protocol, TypeAlias

from aflow.model.codecs import CodecError
from aflow.model.keys import UnsupportedKey
from aflow.model.time import TimeDomain
from aflow.model.windows import TimeWindow
from aflow.state.backend import KeyTimerQueue
from aflow.state.disk.away_rows import AwayRows
from aflow.state.disk.row_places import HEAD, RowPlaces
from aflow.state.disk.scratch import Scratch
from aflow.state.disk.stored_keys import StoredKeys, keys_of, read_sorted, slot_length
from aflow.state.disk.timer_database import NEAR
from aflow.state.disk.timers import DiskTimerQueue
from aflow.state.disk.window_timers import DiskWindowTimers
from aflow.state.key_kinds import KeyKinds
from aflow.state.keyed_entries import KeyGroupCodec, KeyRow
from aflow.state.readable_state import ABSENT, SCANNED, in_time_order, scanned

#: Rows that are read, and written, at once.
_AT_ONCE: Final = 1024

#: Rows that are written at once by ``flush``, which takes less than a millisecond.
_FLUSHED: Final = 256

#: Rows that are read in a scan in the time of a lookup.
_ROWS_A_LOOKUP: Final = 4

_TailRow: TypeAlias = tuple[bytes, int, bytes]
"""A database key without its head, the index of its number, and a row."""

Numbered: TypeAlias = dict[int, dict[Hashable, Any]]
"""Rows by number and key."""


class RowCodec(Protocol):
    """Encodes the rows."""

    def encode(self, row: Any, /) -> bytes:
        """Return the bytes of a row. Raises ``CodecError``."""
        ...

    def encode_all(self, rows: Sequence[Any], /) -> list[bytes]:
        """Return the bytes of rows. Raises ``CodecError``."""
        ...

    def decode_all(self, keys: Sequence[Hashable], stored: Sequence[bytes]) -> list[Any]:
        """Return the rows of ``keys``."""
        ...


class RangedRows:
    """The rows of one operator: up to ``limit`` and those of the last load in memory, the others in ``scratch``.

    ``recent`` has an entry for each number with rows. The owner loads rows, changes them there, and adds and removes
    numbers. ``kinds`` observes all keys. Raises ``OperatorError`` for keys and rows that cannot be encoded.
    """

    def __init__(
        self,
        recent: Numbered,
        codec: RowCodec,
        key_codec: KeyGroupCodec,
        scratch: Scratch,
        limit: int,
        kinds: KeyKinds,
    ) -> None:
        self._recent = recent
        self._codec = codec
        self._key_codec = key_codec
        self._scratch = scratch
        self._limit = limit
        self._kinds = kinds
        self._stored_keys = StoredKeys(key_codec, "windows")
        self._places = RowPlaces(self._stored_keys)
        self._older: Numbered = {}
        #: True if all older rows are equal to those in the database.
        self._older_written = False
        #: The number of rows that are away, by each number of which rows were written.
        self._away: dict[int, int] = {}
        #: Removed rows that may be in the database, by number and key.
        self._removed: set[tuple[int, Hashable]] = set()
        #: Called with the keys of rows before these are evicted.
        self.before_eviction: Callable[[list[Hashable]], None] | None = None

    def __len__(self) -> int:
        """Return the number of rows."""
        return self._resident_count() + sum(self._away.values())

    def count(self, number: int) -> int:
        """Return the number of rows of a number."""
        resident = len(self._recent.get(number, ())) + len(self._older.get(number, ()))
        return resident + self._away.get(number, 0)

    def load(self, wanted: Mapping[int, Iterable[Hashable]]) -> None:
        """Make the existing rows of keys recent. The owner may change all recent rows until it calls ``evict``."""
        # Hot path (benchmark `state_windows`): once for each batch.
        absent: dict[int, list[Hashable]] = {}
        for number, keys in wanted.items():
            # Not `self._recent[number]`, which may add the number.
            recent = self._recent.get(number)
            missing = list(keys) if recent is None else [key for key in keys if key not in recent]
            if not missing:
                continue
            self._kinds.see(missing)
            if recent is None:
                continue
            if older := self._older.get(number):
                missing = self._refreshed(recent, older, missing)
            if missing and self._away.get(number):
                absent[number] = missing
        if absent:
            self._prepare()
            if self._places.slotted:
                self._read_slots(absent)
            else:
                self._read(absent)

    def evict(self) -> bool:
        """Write and evict rows of the older generation until there is room.

        Return True if there are new dicts of recent rows.
        """
        rotated = False
        count = self._resident_count()
        if count <= self._limit:
            return rotated
        self._prepare()
        surplus = count - self._limit + min(_AT_ONCE, self._limit // 8)
        while surplus > 0:
            if not self._older:
                self._rotate()
                rotated = True
            number, rows = next(iter(self._older.items()))
            count = min(len(rows), surplus)
            if self.before_eviction is not None:
                self.before_eviction(list(islice(reversed(rows), count)))
            evicted = [rows.popitem() for _ in range(count)]
            if not rows:
                del self._older[number]
            if not self._older_written:
                self._put(number, evicted)
            self._away[number] += count
            surplus -= count
        return rotated

    def flush(self) -> Iterator[None]:
        """Write all rows that may differ from the database, in pieces. Nothing else may be called meanwhile."""
        self._prepare()
        for rows_by_number in (
            (self._recent,) if self._older_written else (self._older, self._recent)
        ):
            for number, rows in rows_by_number.items():
                items = list(rows.items())
                for start in range(0, len(items), _FLUSHED):
                    self._put(number, items[start : start + _FLUSHED])
                    yield
        for number, rows in self._recent.items():
            if rows:
                self._older.setdefault(number, {}).update(rows)
                self._recent[number] = {}
        self._older_written = True

    def key_slices(self, number: int) -> Iterator[list[Hashable]]:
        """Yield the keys of a number, some hundred at a time. Rows may be loaded, removed and evicted meanwhile."""
        resident = {*self._older.get(number, ()), *self._recent.get(number, ())}
        for some in scanned(list(resident)):
            yield list(some)
        self._prepare()  # it may move all rows to other places; no key of another kind is observed after that
        start, stop = self._places.bounds(number)
        while self._away.get(number):
            self._prepare()
            page = self._scratch.store.page(start, stop, _FLUSHED)
            if not page:
                return
            start = page[-1][0] + b"\0"
            yield [key for key in self._keys_at(page) if key not in resident]

    def items(self, number: int) -> Iterator[tuple[Hashable, Any]]:
        """Yield keys and rows of a number, first those in memory. Nothing else may be called meanwhile."""
        recent = self._recent.get(number, {})
        older = self._older.get(number, {})
        yield from older.items()
        yield from recent.items()
        if self._away.get(number):
            self._prepare()
            for page in self._pages(number, _AT_ONCE):
                keys = self._keys_at(page)
                found = self._codec.decode_all(keys, [data for _, data in page])
                for key, row in zip(keys, found, strict=True):
                    if key not in recent and key not in older:
                        yield key, row

    def merged(self, numbers: Sequence[int]) -> Iterator[tuple[Hashable, list[Any]]]:
        """Yield each key with its rows of ``numbers`` in their order. Call ``flush`` before."""
        size = max(16, 8 * _AT_ONCE // max(1, len(numbers)))
        streams = [
            self._tails(index, number, size)
            for index, number in enumerate(numbers)
            if number in self._away
        ]
        decode_all, key_of, slotted = (
            self._codec.decode_all,
            self._key_codec.key,
            self._places.slotted,
        )
        tail: Callable[[_TailRow], bytes] = itemgetter(0)
        for _, some in groupby(
            merge(*streams), (lambda row: row[0][: slot_length(row[0])]) if slotted else tail
        ):
            rows = list(some)
            if slotted:
                yield from self._merged_slot(rows)
            else:
                key = key_of(rows[0][0])
                yield key, decode_all([key] * len(rows), [data for _, _, data in rows])

    def drop(
        self, number: int, has_changed: Callable[[Sequence[Hashable]], bool]
    ) -> Iterator[None]:
        """Remove the rows of a number that are not recent, in pieces.

        ``has_changed`` is called with their keys, until it returns False.
        """
        wanted = has_changed(list(self._older.pop(number, ())))
        if number not in self._away:
            return
        self._prepare()
        del self._away[number]
        pages = self._pages(number, _AT_ONCE)
        while wanted and (page := next(pages, None)) is not None:
            wanted = has_changed(self._keys_at(page))
            yield
        yield from self._scratch.store.delete_in_pieces(*self._places.bounds(number))

    def remove(self, number: int, key: Hashable) -> None:
        """Remove the row of a loaded key, which the owner has removed from the recent rows."""
        if number in self._away:
            self._removed.add((number, key))

    def resident(self, keys: set[Hashable] | None) -> Iterator[tuple[int, Hashable, Any]]:
        """Yield number, key and row of the rows in memory: of ``keys``, or of all keys."""
        for generation in (self._older, self._recent):
            for number, rows in generation.items():
                for key in rows if keys is None else keys & rows.keys():
                    yield number, key, rows[key]

    def peek(self, number: int, key: Hashable) -> Any:
        """Return the row of a key, which the caller does not change, without moving any row; ``ABSENT`` without one."""
        for generation in (self._recent, self._older):
            if (rows := generation.get(number)) and key in rows:
                return rows[key]
        if not self._away.get(number) or (number, key) in self._removed:
            return ABSENT
        found = self._scratch.store.get(self._places_of([(number, key)]))
        data = next(filter(None, found), None)
        return ABSENT if data is None else self._codec.decode_all([key], [data])[0]

    def scan(self, numbers: Iterable[int] | None = None) -> Iterator[Sequence[Hashable]]:
        """Yield the keys of all rows for ``ReadableState.scan``; rows may change and move between two lists.

        ``numbers`` is the order of the numbers; by default it is ascending, with those that are added meanwhile.
        """
        for number in numbers or in_time_order(lambda: {*self._recent, *self._older, *self._away}):
            yield from scanned([*self._older.get(number, ()), *self._recent.get(number, ())])
            places, start, stop = None, b"", b""
            # Rows that were loaded meanwhile are still in the database.
            while number in self._away:
                if places is not self._places:  # all rows were written again, at other places
                    places = self._places
                    start, stop = places.bounds(number)
                page = self._scratch.store.page(start, stop, SCANNED)
                if not page:
                    break
                start = page[-1][0] + b"\0"
                yield self._keys_at(page)

    def resident_row(self, number: int, key: Hashable) -> Any:
        """Return the row of a key that is in memory."""
        recent = self._recent.get(number, {})
        return recent[key] if key in recent else self._older[number][key]

    def resident_keys(self) -> set[Hashable]:
        """Return the keys of all rows in memory."""
        return set[Hashable]().union(*self._older.values(), *self._recent.values())

    def stored(
        self,
        keys: set[Hashable] | None,
        rows_of: Callable[[int, Hashable, bytes], Iterable[KeyRow]],
    ) -> AwayRows | None:
        """Return the rows that are away, of ``keys`` or of all keys, as they are now; None if there are none.

        They are read on iteration, also in another thread. ``rows_of`` returns the entries of a row for a snapshot.
        """
        self._prepare()
        count = sum(self._away.values())
        if not count:
            return None
        resident = {
            number: frozenset(self._recent.get(number, ())) | self._older.get(number, {}).keys()
            for number in self._away
        }
        lookups = 0 if keys is None else len(keys) * len(resident)
        return AwayRows(
            self._scratch.store.view(),
            resident,
            keys,
            keys is None or lookups > count // _ROWS_A_LOOKUP,
            self._places,
            rows_of,
        )

    def timers(self, domain: TimeDomain) -> KeyTimerQueue:
        """Return an empty queue of timers by key in the same database."""
        return DiskTimerQueue(domain, self._key_codec, self._scratch, self._kinds)

    def window_timers(
        self, domain: TimeDomain, kinds: KeyKinds, is_exact: Callable[[TimeWindow], bool]
    ) -> DiskWindowTimers:
        """Return an empty queue of timers by window and key in the same database; see ``DiskWindowTimers``."""
        return DiskWindowTimers(domain, self._key_codec, self._scratch, kinds, is_exact, NEAR)

    def close(self) -> None:
        """Remove the database. Rows that ``stored`` returned remain valid."""
        self._older.clear()
        self._away.clear()
        self._removed.clear()
        self._scratch.clear()

    # --------------------------------------------------------------------------------------- memory

    def _resident_count(self) -> int:
        return sum(map(len, self._recent.values())) + sum(map(len, self._older.values()))

    def _refreshed(
        self, recent: dict[Hashable, Any], older: dict[Hashable, Any], keys: list[Hashable]
    ) -> list[Hashable]:
        """Move older rows of ``keys`` to the recent ones, and return the other keys."""
        if self._kinds.mixed:
            # The first one of equal keys remains, as in any dict: a row has one place in the database.
            recent.update(older)
            older.clear()
            return [key for key in keys if key not in recent]
        missing: list[Hashable] = []
        for key in keys:
            if key in older:
                recent[key] = older.pop(key)
            else:
                missing.append(key)
        return missing

    def _rotate(self) -> None:
        """Make the recent rows the older ones."""
        recent = self._recent
        self._older = {number: rows for number, rows in recent.items() if rows}
        for number in self._older:
            recent[number] = {}
        self._older_written = False

    # ------------------------------------------------------------------------------------- database

    def _prepare(self) -> None:
        """Bring the database up to date before it is used: add slots if keys are mixed, and delete removed rows."""
        if self._kinds.mixed and not self._places.slotted:
            self._add_slots()
        if self._removed:
            removed, self._removed = self._removed, set()
            self._scratch.store.write((), self._places_of(removed))

    def _places_of(self, rows: Iterable[tuple[int, Hashable]]) -> list[bytes]:
        """Return the database keys of rows. With slots they are looked up: an equal key may have been stored."""
        places = self._places
        if not places.slotted:
            return [places.head(number) + places.tails((key,))[0] for number, key in rows]
        found: list[bytes] = []
        for number, key in rows:
            page = self._scratch.store.page(*places.slot(number, key), _AT_ONCE)
            stored = self._keys_at(page)
            found += [place for one, (place, _) in zip(stored, page, strict=True) if one == key]
        return found

    def _add_slots(self) -> None:
        """Write all rows again with slots."""
        store, former = self._scratch.store if self._away else None, self._places
        self._places = RowPlaces(self._stored_keys, slotted=True)
        for number in self._away:
            assert store is not None
            start, stop = former.bounds(number)
            head = self._places.head(number)
            while page := store.page(start, stop, _AT_ONCE):
                keys = self._key_codec.keys([place[HEAD:] for place, _ in page])
                tails = self._places.tails(keys)
                store.write(
                    [(head + tail, data) for tail, (_, data) in zip(tails, page, strict=True)],
                    [place for place, _ in page],
                )

    def _read(self, absent: Mapping[int, list[Hashable]]) -> None:
        """Read the rows of keys."""
        owners: dict[bytes, tuple[int, Hashable]] = {}
        for number, keys in absent.items():
            head = self._places.head(number)
            try:
                tails = self._places.tails(keys)
            except UnsupportedKey:
                keys = keys_of(keys)  # the use of the others reports them
                tails = self._places.tails(keys)
            places = [head + tail for tail in tails]
            owners.update(zip(places, zip(repeat(number), keys, strict=False), strict=True))
        found: list[tuple[int, Hashable]] = []
        stored: list[bytes] = []
        for place, data in read_sorted(self._scratch.store, owners):
            if data is not None:
                found.append(owners[place])
                stored.append(data)
        rows = self._codec.decode_all([key for _, key in found], stored)
        recent, away = self._recent, self._away
        for (number, key), row in zip(found, rows, strict=True):
            recent[number][key] = row
            away[number] -= 1

    def _read_slots(self, absent: Mapping[int, list[Hashable]]) -> None:
        """Read the rows of keys that may be stored with other bytes."""
        for number, keys in absent.items():
            recent = self._recent[number]
            for key in keys_of(keys):
                page = self._scratch.store.page(*self._places.slot(number, key), _AT_ONCE)
                for stored, (_, data) in zip(self._keys_at(page), page, strict=True):
                    if stored == key and stored not in recent:
                        recent[stored] = self._codec.decode_all([stored], [data])[0]
                        self._away[number] -= 1

    def _put(self, number: int, rows: list[tuple[Hashable, Any]]) -> None:
        """Write rows."""
        self._away.setdefault(number, 0)
        head = self._places.head(number)
        tails = self._places.tails([key for key, _ in rows])
        try:
            data = self._codec.encode_all([row for _, row in rows])
        except CodecError:
            data = [self._encoded(key, row) for key, row in rows]
        puts = [(head + tail, stored) for tail, stored in zip(tails, data, strict=True)]
        puts.sort(key=itemgetter(0))
        for start in range(0, len(puts), _AT_ONCE):
            self._scratch.store.write(puts[start : start + _AT_ONCE])

    def _encoded(self, key: Hashable, row: Any) -> bytes:
        try:
            return self._codec.encode(row)
        except CodecError as exc:
            raise self._stored_keys.unstorable(key, exc) from exc

    def _pages(self, number: int, size: int) -> Iterator[list[tuple[bytes, bytes]]]:
        """Yield the entries of a number in the database."""
        start, stop = self._places.bounds(number)
        while page := self._scratch.store.page(start, stop, size):
            yield page
            if len(page) < size:
                return
            start = page[-1][0] + b"\0"

    def _tails(self, index: int, number: int, size: int) -> Iterator[_TailRow]:
        """Yield the database keys of a number without the number, with ``index`` and their rows."""
        for page in self._pages(number, size):
            for place, data in page:
                yield place[HEAD:], index, data

    def _merged_slot(self, rows: list[_TailRow]) -> Iterator[tuple[Hashable, list[Any]]]:
        """Yield the keys of a slot with their rows."""
        found: dict[Hashable, list[bytes]] = {}
        for tail, _, data in sorted(rows, key=itemgetter(1)):
            key = self._key_codec.key(self._places.stored_key(tail))
            found.setdefault(key, []).append(data)
        for key, stored in found.items():
            yield key, self._codec.decode_all([key] * len(stored), stored)

    def _keys_at(self, page: Sequence[tuple[bytes, bytes]]) -> list[Hashable]:
        stored_key = self._places.stored_key
        return self._key_codec.keys([stored_key(place[HEAD:]) for place, _ in page])
