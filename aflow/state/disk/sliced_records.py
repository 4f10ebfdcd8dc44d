"""Records of many keys by slices of event time, for more records than fit in memory.

Theory. Event time is divided into *slices* of equal width. A *row* has the records of one key in one slice, of two
inputs: to read the records of a key from one time to another is to read some rows. So the size of a row does not depend
on the time for which records are kept, and a slice that has expired is removed as one range of the database, without
reading it.

``touch`` makes the rows of a batch resident, with one read of the database for the missing ones. Residents are in two
generations. A touch moves a row to the younger one, and evicts some rows of the older one, which are written if they
have changed. When the younger one is full, it takes the place of the older one. Values are bytes in memory too, encoded
once, and decoded when they are used.

A capture refers to the parts of resident rows, which are immutable, and reads the others later from a view of the
database.

    s <slice, 8 bytes> <stored key>     [part of input 0, part of input 1] in MessagePack; None: it has no records

Equal keys may have different stored bytes (``1`` and ``True``). Once the keys of a step are mixed like that, the bytes
of one of them are chosen for all, and are in memory for each key.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from operator import attrgetter
from typing import Final

import msgspec

from aflow.model.keys import check_key
from aflow.model.time import MAX_TIMESTAMP, Timestamp
from aflow.state.disk.scratch import Scratch
from aflow.state.disk.store import View
from aflow.state.disk.stored_keys import StoredKeys, read_sorted
from aflow.state.key_kinds import KeyKinds
from aflow.state.keyed_entries import KeyGroupCodec
from aflow.state.readable_state import SCANNED, scanned

_PREFIX: Final = b"s"
_END: Final = b"t"
_PACK: Final = struct.Struct(">cQ")
#: Added to the numbers of slices, so that those before 1970 are in order too.
_OFFSET: Final = 2**63

#: Rows in one write, or one read.
_AT_ONCE: Final = 1024

#: Bytes of a row that count as one record, at least.
_RECORD_BYTES: Final = 32

RowId = tuple[int, Hashable]
"""A slice, and a key."""


# The garbage collector visits neither structs without ``gc`` nor tuples of such. With lists it takes a third of the
# time of a join.


class Part(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The records of one input in a row, in time order; those of one timestamp in the order of arrival."""

    times: tuple[Timestamp, ...]
    values: tuple[bytes, ...]
    numbers: tuple[int, ...] = ()
    """A number for each record, if the caller gives them numbers."""


Parts = tuple[Part | None, Part | None]
"""The records of each input, None without any."""


class Row(msgspec.Struct, gc=False, eq=False):
    """The records of a key in a slice."""

    parts: Parts = (None, None)
    changed: bool = False
    """True if the row differs from the database."""
    place: bytes = b""
    """Its key in the database, once it is known."""


Touched = tuple[Row, Sequence[Row]]
"""The row of a record, and the rows of the times in which it may have partners."""

_place_of: Final = attrgetter("place")
_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Parts).decode


class SlicedRecords:
    """Rows by slice and key in slices of ``width`` ms: those with about ``resident`` records are in memory.

    ``kinds`` observes the keys. Raises ``OperatorError`` for a key that cannot be encoded.
    """

    def __init__(
        self,
        key_codec: KeyGroupCodec,
        scratch: Scratch,
        resident: int,
        width: int,
        kinds: KeyKinds,
    ) -> None:
        self._width = width
        self._key_codec = key_codec
        self._stored_keys = StoredKeys(key_codec, "records")
        self._scratch = scratch
        self._most_young = resident // 2
        self._kinds = kinds
        #: Resident rows.
        self._younger: dict[RowId, Row] = {}
        self._older: dict[RowId, Row] = {}
        #: The number of rows to evict, once it is worth a write.
        self._evictable = 0
        #: About the number of records in `_younger`.
        self._young = 0
        #: The number of writes of rows by slice. Slices that are not in it have no rows.
        self._writes: dict[int, int] = {}
        #: The stored bytes of each key, once the keys are mixed.
        self._chosen: dict[Hashable, bytes] | None = None
        #: The number of captures of resident rows by slice.
        self._kept: dict[int, int] = {}
        #: Writes and captures of rows that have been dropped since the last complete capture.
        self._dropped = 0
        #: Slices before this one were dropped.
        self._begin: int | None = None

    def touch(
        self, keys: Sequence[Hashable], times: Sequence[Timestamp], first: int, last: int
    ) -> list[Touched]:
        """Return the rows of records with ``keys`` and ``times``, and those from ``first`` to ``last`` ms after each.

        They are in use until the next touch: then they may be evicted. A caller that changes a row sets ``changed``.
        Raises ``TypeError`` for a key that cannot be one.
        """
        # Hot path: once for each record.
        self._evictable += 2 * len(keys)
        if self._evictable >= _AT_ONCE or self._young > self._most_young:
            self._evict(self._evictable)
            self._evictable = 0
        width, begin, writes = self._width, self._begin, self._writes
        rows, take = self._younger, self._older.pop
        missing: list[tuple[RowId, Row]] = []
        touched: list[Touched] = []
        for key, at in zip(keys, times, strict=True):
            number = at // width
            row_id = number, key
            own = rows.get(row_id)
            if own is None:
                own = take(row_id, None)
                if own is None:
                    own = Row()
                    missing.append((row_id, own))
                    if number not in writes and (begin is None or number >= begin):
                        writes[number] = 0
                rows[row_id] = own
            start, stop = (at + first) // width, (at + last) // width
            if start == number == stop:
                touched.append((own, (own,)))
                continue
            others: tuple[Row, ...] = ()
            for each in range(start, stop + 1):
                if each == number:
                    others += (own,)
                elif each in writes:
                    row_id = each, key
                    other = rows.get(row_id)
                    if other is None:
                        other = take(row_id, None)
                        if other is None:
                            other = Row()
                            missing.append((row_id, other))
                        rows[row_id] = other
                    others += (other,)
            touched.append((own, others))
        self._young += len(touched)
        if missing:
            self._load(missing)
        return touched

    def drop(self, until: Timestamp) -> Iterator[None]:
        """Drop all slices that end at or before ``until``, in pieces; they must not be used any more."""
        if until == MAX_TIMESTAMP:
            yield from self._clear()
            return
        self._begin = end = (until + 1) // self._width
        dropped = [number for number in self._writes if number < end]
        if writes := sum(map(self._writes.pop, dropped)):
            yield from self._scratch.store.delete_in_pieces(_PREFIX, _prefix(end))
        self._dropped += writes + sum(self._kept.pop(number, 0) for number in dropped)
        if self._chosen is not None and len(self._chosen) > 2 * self._bound():
            self._choose()

    def drops(self, until: Timestamp) -> bool:
        """Return True if ``drop`` has something to do."""
        return until == MAX_TIMESTAMP or (
            bool(self._writes) and min(self._writes) < (until + 1) // self._width
        )

    def captured(self, keys: Set[Hashable] | None) -> CapturedSlices:
        """Return the rows of ``keys``, or of all keys, as they are now, to be read later.

        ``keys`` must not change any more, nor be mixed.
        """
        resident = self._resident(keys)
        view = self._scratch.store.view() if self._scratch.exists else None
        numbers: Sequence[int] | None = None
        if keys is None:
            self._dropped = 0
        elif len(keys) * len(self._writes) <= self._bound():
            numbers = list(self._writes)
        return CapturedSlices(resident, view, self._key_codec, keys, numbers)

    def peek(self, key: Hashable) -> list[Parts]:
        """Return the rows of ``key`` in the order of slices, without moving any row."""
        chosen = None if self._chosen is None else self._chosen.get(key)
        found: list[Parts] = []
        for number in sorted(self._writes):
            row_id = number, key
            row = self._younger.get(row_id) or self._older.get(row_id)
            if row is not None:
                found.append(row.parts)
            elif self._writes[number]:
                place = _prefix(number) + (chosen or self._stored_keys.stored(key))
                (data,) = self._scratch.store.get([place])
                if data is not None:
                    found.append(_decode(data))
        return found

    def scan(self) -> Iterator[Sequence[Hashable]]:
        """Yield the keys of all rows for ``ReadableState.scan``; rows may change and move between two lists."""
        yield from self._scan_resident()
        start, head = _PREFIX, _PACK.size
        while self._scratch.exists:
            page = self._scratch.store.page(start, _END, SCANNED)
            if not page:
                break
            start = page[-1][0] + b"\0"
            yield self._key_codec.keys([place[head:] for place, _ in page])
        if start != _PREFIX:
            # Those with a new row, whose stored one has expired before it was read.
            yield from self._scan_resident()

    def _scan_resident(self) -> Iterator[Sequence[Hashable]]:
        return scanned([key for _, key in [*self._older, *self._younger]])

    def on_restored(self) -> None:
        """Make the next capture complete: the restored chain may have rows that had expired and were left out."""
        self._dropped = 1 << 62

    @property
    def outlived(self) -> bool:
        """True if more rows were dropped than are left since the last complete capture.

        Chains of changes do not remove dropped rows, so the next capture should be complete.
        """
        return self._dropped > self._bound()

    def count(self) -> tuple[int, int]:
        """Return the number of stored records of each input. Reads all of them."""
        counts = [0, 0]
        kept, dropped = dict(self._kept), self._dropped
        rows = self.captured(None)
        self._kept, self._dropped = kept, dropped  # this is no capture
        for _, parts in rows.rows():
            for number, part in enumerate(parts):
                counts[number] += 0 if part is None else len(part.times)
        return counts[0], counts[1]

    def _resident(self, keys: Set[Hashable] | None) -> dict[bytes, Parts]:
        """Return the rows of ``keys``, or of all keys, that differ from the database, and count them."""
        begin, kept = self._begin, self._kept
        found: dict[bytes, Parts] = {}
        for generation in (self._older, self._younger):
            for (number, key), row in generation.items():
                if row.changed and (keys is None or key in keys):
                    if begin is not None and number < begin:
                        continue
                    found[row.place] = row.parts
                    kept[number] = kept.get(number, 0) + 1
        return found

    # ------------------------------------------------------------------------------------- residents

    def _load(self, missing: Sequence[tuple[RowId, Row]]) -> None:
        # Hot path: once for each record of a key that is not resident.
        self._observe([key for (_, key), _ in missing])
        writes, prefixes = self._writes, _Prefixes()
        stored_key = self.stored_key if self._chosen is not None else self._stored_keys.stored
        rows: dict[bytes, Row] = {}
        for (number, key), row in missing:
            check_key(key)
            row.place = place = prefixes[number] + stored_key(key)
            if writes.get(number):
                rows[place] = row
        if not rows:
            return
        size = 0
        for place, data in read_sorted(self._scratch.store, rows):
            if data is not None:
                rows[place].parts = _decode(data)
                size += len(data)
        self._young += size // _RECORD_BYTES

    def _evict(self, most: int) -> None:
        """Evict up to ``most`` rows of the older generation; all of them, and begin a new one, if the younger is full.

        So the older one is empty before the younger is full, in most cases, and no batch waits for all of its rows.
        """
        older, is_full = self._older, self._young > self._most_young
        if older:
            count = len(older) if is_full else min(most, len(older))
            self._write(dict([older.popitem() for _ in range(count)]))
        if is_full:
            self._older, self._younger = self._younger, {}
            self._young = 0

    def _write(self, rows: dict[RowId, Row]) -> None:
        """Write those of ``rows`` that have changed."""
        begin, writes = self._begin, self._writes
        found: list[Row] = []
        for (number, _), row in rows.items():
            if row.changed and (begin is None or number >= begin):
                row.changed = False
                writes[number] += 1
                found.append(row)
        found.sort(key=_place_of)
        for start in range(0, len(found), _AT_ONCE):
            self._scratch.store.write(
                [(row.place, _encode(row.parts)) for row in found[start : start + _AT_ONCE]]
            )

    def _clear(self) -> Iterator[None]:
        if self._scratch.exists:
            yield from self._scratch.store.delete_in_pieces(_PREFIX, _END)
        self._dropped += self._bound()
        self._younger, self._older, self._writes, self._kept = {}, {}, {}, {}
        self._young = 0

    def _bound(self) -> int:
        """Return the number of writes and captures of present rows, of which there are no more."""
        return sum(self._writes.values()) + sum(self._kept.values())

    # ------------------------------------------------------------------------------------------ keys

    def stored_key(self, key: Hashable) -> bytes:
        """Return the bytes by which ``key`` is stored. Raises ``OperatorError`` for one that cannot be encoded."""
        if self._chosen is not None and (chosen := self._chosen.get(key)) is not None:
            return chosen
        stored = self._stored_keys.stored(key)
        if self._chosen is not None:
            self._chosen[key] = stored
        return stored

    def _observe(self, keys: Collection[Hashable]) -> None:
        if not self._kinds.mixed:
            self._kinds.see(keys)
        if self._kinds.mixed and self._chosen is None:
            self._choose()

    def _choose(self) -> None:
        """Choose the stored bytes of each key: those in the database, or of resident rows."""
        self._chosen = {}
        for generation in (self._older, self._younger):
            for (_, key), row in generation.items():
                if row.place:
                    self._chosen.setdefault(key, row.place[_PACK.size :])
        if self._writes:
            for place, _ in self._scratch.store.view().items(_PREFIX, _END):
                stored = place[_PACK.size :]
                self._chosen.setdefault(self._key_codec.key(stored), stored)


class _Prefixes(dict[int, bytes]):
    """The first bytes of the rows of each slice in the database."""

    def __missing__(self, number: int) -> bytes:
        prefix = self[number] = _prefix(number)
        return prefix


def _prefix(number: int) -> bytes:
    return _PACK.pack(_PREFIX, number + _OFFSET)


@dataclass(frozen=True, slots=True)
class CapturedSlices:
    """The rows of ``keys``, or of all keys, at one moment.

    ``resident`` rows take the place of those in ``view``, which is None without a database. Rows of ``keys`` are looked
    up in the slices ``numbers``; None: all rows are read.
    """

    resident: Mapping[bytes, Parts]
    view: View | None
    key_codec: KeyGroupCodec
    keys: Set[Hashable] | None = None
    numbers: Sequence[int] | None = None

    def rows(self) -> Iterator[tuple[Hashable, Parts]]:
        """Yield each row with its key: resident ones, then the others by slice."""
        resident, keys, key_of = self.resident, self.keys, self.key_codec.key
        for place, parts in resident.items():
            yield key_of(place[_PACK.size :]), parts
        for place, data in self._stored():
            if place not in resident:
                key = key_of(place[_PACK.size :])
                if keys is None or key in keys:
                    yield key, _decode(data)

    def _stored(self) -> Iterator[tuple[bytes, bytes]]:
        if self.view is None:
            return
        if self.keys is None or self.numbers is None:
            yield from self.view.items(_PREFIX, _END)
            return
        stored = sorted(map(self.key_codec.stored, self.keys))
        for number in sorted(self.numbers):
            prefix = _prefix(number)
            for start in range(0, len(stored), _AT_ONCE):
                places = [prefix + key for key in stored[start : start + _AT_ONCE]]
                for place, data in zip(places, self.view.get(places), strict=True):
                    if data is not None:
                        yield place, data
