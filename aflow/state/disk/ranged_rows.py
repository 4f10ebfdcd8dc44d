"""Rows of keys in numbered ranges, for windows: those of a number (a pane, say) are read and deleted together.

Theory. Resident rows are in dicts by number, in two generations, so that the loops of an operator work on plain dicts.
``load`` moves the rows of a batch to the *recent* generation, with one read of the database for missing ones.
``evict`` writes rows of the *older* generation until there is room. When that is empty, the recent generation becomes
the older one. Recent rows may differ from the database; older ones are equal to it after ``flush``.

Rows of a number that are only in the database are *away*. They are counted, so a number without them is not looked up.

    r <number, 9 bytes> <length, 4 bytes> <canonical key> <stored key>     encoded row

As for timers, the bytes up to the canonical key are the *slot* of a row. Equal keys have one slot, but may have
different stored bytes (``1`` and ``True``). Once the keys of a step are mixed like that, slots are searched.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import groupby
from operator import itemgetter
from typing import Any, Final, Protocol, TypeAlias

from aflow.errors import OperatorError, shown
from aflow.model.codecs import CodecError
from aflow.model.keys import UnsupportedKey, encode_key
from aflow.model.time import TimeDomain
from aflow.state.backend import KeyTimerQueue
from aflow.state.disk.scratch import Scratch
from aflow.state.disk.store import View
from aflow.state.disk.timers import DiskTimerQueue
from aflow.state.key_kinds import KeyKinds
from aflow.state.keyed_entries import KeyGroupCodec, KeyRow

#: Rows that are read, and written, at once.
_AT_ONCE: Final = 1024

#: Rows that are written at once by ``flush``, which takes less than a millisecond.
_FLUSHED: Final = 256

#: Rows that are read in a scan in the time of a lookup.
_ROWS_A_LOOKUP: Final = 4

#: First byte of the database keys, and the first byte after them.
_PREFIX: Final = b"r"
_END: Final = b"s"

#: Bytes of a number, for starts of panes before the first timestamp too.
_NUMBER: Final = 9
#: Added to numbers, so that negative ones are in order too.
_OFFSET: Final = 2**70
#: Bytes of the first byte and the number, which precede the length of the canonical key.
_HEAD: Final = 1 + _NUMBER

_LENGTH: Final = struct.Struct(">I")

Numbered: TypeAlias = dict[int, dict[Hashable, Any]]
"""Rows by number and key."""


class RowCodec(Protocol):
    """Encodes the rows."""

    def encode(self, row: Any) -> bytes:
        """Return the bytes of a row. Raises ``CodecError``."""
        ...

    def decode(self, key: Hashable, data: bytes) -> Any:
        """Return the row of ``key``."""
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
        self._older: Numbered = {}
        #: True if all older rows are equal to those in the database.
        self._older_written = False
        #: The number of rows that are away, by each number of which rows were written.
        self._away: dict[int, int] = {}
        #: Removed rows that may be in the database, by number and key.
        self._removed: set[tuple[int, Hashable]] = set()

    def __len__(self) -> int:
        """Return the number of rows."""
        return self._resident_count() + sum(self._away.values())

    def load(self, wanted: Mapping[int, Iterable[Hashable]]) -> None:
        """Make the existing rows of keys recent. The owner may change all recent rows until it calls ``evict``."""
        # Hot path (benchmark `state_windows`): once for each batch.
        places: list[bytes] = []
        targets: list[tuple[int, Hashable]] = []
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
            if self._away.get(number):
                head = _head(number)
                for key in missing:
                    if (place := self._place_or_none(head, key)) is not None:
                        places.append(place)
                        targets.append((number, key))
        if targets:
            self._flush_removed()
            if self._kinds.mixed:
                self._read_slots(targets)
            else:
                self._read(places, targets)

    def evict(self) -> None:
        """Write and evict rows of the older generation until there is room."""
        count = self._resident_count()
        if count <= self._limit:
            return
        surplus = count - self._limit + min(_AT_ONCE, self._limit // 8)
        evicted: list[tuple[int, Hashable, Any]] = []
        while len(evicted) < surplus:
            if not self._older:
                self._write(evicted)
                evicted, surplus = [], surplus - len(evicted)
                self._rotate()
            number, rows = next(iter(self._older.items()))
            for _ in range(min(len(rows), surplus - len(evicted))):
                evicted.append((number, *rows.popitem()))
            if not rows:
                del self._older[number]
        self._write(evicted)

    def flush(self) -> Iterator[None]:
        """Write all rows that may differ from the database, in pieces. Nothing else may be called meanwhile."""
        self._flush_removed()
        for rows_by_number in (
            (self._recent,) if self._older_written else (self._older, self._recent)
        ):
            for number, rows in rows_by_number.items():
                items = list(rows.items())
                for start in range(0, len(items), _FLUSHED):
                    self._put([(number, *item) for item in items[start : start + _FLUSHED]])
                    yield
        for number, rows in self._recent.items():
            if rows:
                self._older.setdefault(number, {}).update(rows)
                self._recent[number] = {}
        self._older_written = True

    def items(self, number: int) -> Iterator[tuple[Hashable, Any]]:
        """Yield keys and rows of a number, first those in memory. Nothing else may be called meanwhile."""
        recent = self._recent.get(number, {})
        older = self._older.get(number, {})
        yield from older.items()
        yield from recent.items()
        if self._away.get(number):
            self._flush_removed()
            decode = self._codec.decode
            for page in self._pages(number, _AT_ONCE):
                for key, (_, data) in zip(self._keys_at(page), page, strict=True):
                    if key not in recent and key not in older:
                        yield key, decode(key, data)

    def merged(self, numbers: Sequence[int]) -> Iterator[tuple[Hashable, list[Any]]]:
        """Yield each key with its rows of ``numbers`` in their order. Call ``flush`` before."""
        page = max(16, 8 * _AT_ONCE // max(1, len(numbers)))
        streams = [
            self._suffixes(index, number, page)
            for index, number in enumerate(numbers)
            if number in self._away
        ]
        decode, key_of = self._codec.decode, self._key_codec.key
        suffix_of = itemgetter(0) if not self._kinds.mixed else lambda row: _slot_of_suffix(row[0])
        rows: list[tuple[bytes, int, bytes]]
        for _, some in groupby(merge(*streams), key=suffix_of):
            rows = list(some)
            if self._kinds.mixed:
                yield from self._merged_slot(rows)
            else:
                key = key_of(_stored_key(rows[0][0], 0))
                yield key, [decode(key, data) for _, _, data in rows]

    def drop(
        self, number: int, has_changed: Callable[[Sequence[Hashable]], bool]
    ) -> Iterator[None]:
        """Remove the rows of a number that are not recent, in pieces.

        ``has_changed`` is called with their keys, until it returns False.
        """
        wanted = has_changed(list(self._older.pop(number, ())))
        if self._away.pop(number, None) is None:
            return
        pages = self._pages(number, _AT_ONCE)
        while wanted and (page := next(pages, None)) is not None:
            wanted = has_changed(self._keys_at(page))
            yield
        yield from self._scratch.store.delete_in_pieces(_head(number), _head(number + 1))

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

    def stored(
        self,
        keys: set[Hashable] | None,
        rows_of: Callable[[int, Hashable, bytes], Iterable[KeyRow]],
    ) -> AwayRows | None:
        """Return the rows that are away, of ``keys`` or of all keys, as they are now; None if there are none.

        They are read on iteration, also in another thread. ``rows_of`` returns the entries of a row for a snapshot.
        """
        self._flush_removed()
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
            self._key_codec,
            rows_of,
        )

    def timers(self, domain: TimeDomain) -> KeyTimerQueue:
        """Return an empty queue of timers by key in the same database."""
        return DiskTimerQueue(domain, self._key_codec, self._scratch, self._kinds)

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

    def _read(self, places: list[bytes], targets: list[tuple[int, Hashable]]) -> None:
        """Read the rows at ``places``."""
        # Databases read faster in the order of their keys.
        order = sorted(range(len(places)), key=places.__getitem__)
        found = self._scratch.store.get([places[index] for index in order])
        recent, away, decode = self._recent, self._away, self._codec.decode
        for index, data in zip(order, found, strict=True):
            if data is not None:
                number, key = targets[index]
                recent[number][key] = decode(key, data)
                away[number] -= 1

    def _read_slots(self, targets: list[tuple[int, Hashable]]) -> None:
        """Read rows whose keys may be stored with other bytes."""
        for number, key in targets:
            slot = _slot(_head(number), encode_key(key))
            for place, data in self._scratch.store.page(slot, _after(slot), _AT_ONCE):
                stored = self._key_codec.key(place[len(slot) :])
                recent = self._recent[number]
                if stored == key and stored not in recent:
                    recent[stored] = self._codec.decode(stored, data)
                    self._away[number] -= 1

    def _write(self, rows: list[tuple[int, Hashable, Any]]) -> None:
        """Write older rows, which leave memory, unless they are equal to those in the database."""
        if not self._older_written:
            self._put(rows)
        away = self._away
        for number, _, _ in rows:
            away[number] += 1

    def _put(self, rows: list[tuple[int, Hashable, Any]]) -> None:
        self._flush_removed()
        puts: list[tuple[bytes, bytes]] = []
        encode, head, former = self._codec.encode, b"", None
        for number, key, row in rows:
            if number != former:
                head, former = _head(number), number
                self._away.setdefault(number, 0)
            try:
                puts.append((self._place(head, key), encode(row)))
            except CodecError as exc:
                raise self._unstorable(key, exc) from exc
        puts.sort(key=itemgetter(0))
        self._scratch.store.write(puts)

    def _flush_removed(self) -> None:
        """Delete the rows that were removed, and that may be in the database."""
        if self._removed:
            removed, self._removed = self._removed, set()
            places = [self._place(_head(number), key) for number, key in removed]
            self._scratch.store.write((), places)

    def _pages(self, number: int, size: int) -> Iterator[list[tuple[bytes, bytes]]]:
        """Yield the entries of a number in the database."""
        start, stop = _head(number), _head(number + 1)
        while page := self._scratch.store.page(start, stop, size):
            yield page
            if len(page) < size:
                return
            start = page[-1][0] + b"\0"

    def _suffixes(self, index: int, number: int, size: int) -> Iterator[tuple[bytes, int, bytes]]:
        """Yield the database keys of a number without the number, with ``index`` and their rows."""
        for page in self._pages(number, size):
            for place, data in page:
                yield place[_HEAD:], index, data

    def _merged_slot(
        self, rows: list[tuple[bytes, int, bytes]]
    ) -> Iterator[tuple[Hashable, list[Any]]]:
        """Yield the keys of a slot with their rows."""
        found: dict[Hashable, list[Any]] = {}
        for suffix, _, data in sorted(rows, key=itemgetter(1)):
            key = self._key_codec.key(_stored_key(suffix, 0))
            found.setdefault(key, []).append(self._codec.decode(key, data))
        yield from found.items()

    def _keys_at(self, page: Sequence[tuple[bytes, bytes]]) -> list[Hashable]:
        return self._key_codec.keys([_stored_key(place, _HEAD) for place, _ in page])

    def _place_or_none(self, head: bytes, key: Hashable) -> bytes | None:
        """Return the database key of a row; None for a value that cannot be a key, which its use reports."""
        try:
            return self._place(head, key)
        except UnsupportedKey:
            return None

    def _place(self, head: bytes, key: Hashable) -> bytes:
        canonical = encode_key(key)
        try:
            return head + _LENGTH.pack(len(canonical)) + canonical + self._key_codec.stored(key)
        except CodecError as exc:
            raise self._unstorable(key, exc) from exc

    def _unstorable(self, key: Hashable, cause: CodecError) -> OperatorError:
        operator = self._key_codec.operator
        return OperatorError(
            f"step {operator!r} cannot keep windows on disk for key {shown(key)}: {cause}",
            operator=operator,
            key=key,
        )


@dataclass(frozen=True, slots=True)
class AwayRows:
    """Rows in ``view`` that were not ``resident``, as entries of a snapshot; of ``keys``, or of all keys."""

    view: View
    resident: Mapping[int, frozenset[Hashable]]
    keys: set[Hashable] | None
    scans: bool
    """True to read all rows: ``keys`` are many."""
    key_codec: KeyGroupCodec
    rows_of: Callable[[int, Hashable, bytes], Iterable[KeyRow]]

    def __iter__(self) -> Iterator[KeyRow]:
        key_of, rows_of, keys = self.key_codec.key, self.rows_of, self.keys
        for place, data in self.view.items(_PREFIX, _END) if self.scans else self._found():
            number, key = _number_of(place), key_of(_stored_key(place, _HEAD))
            if key not in self.resident[number] and (keys is None or key in keys):
                yield from rows_of(number, key, data)

    def _found(self) -> Iterator[tuple[bytes, bytes]]:
        """Look up the rows of ``keys``."""
        keys = [_slot(b"", encode_key(key)) + self.key_codec.stored(key) for key in self.keys or ()]
        keys.sort()
        for number in sorted(self.resident):
            head = _head(number)
            for start in range(0, len(keys), _AT_ONCE):
                places = [head + key for key in keys[start : start + _AT_ONCE]]
                for place, data in zip(places, self.view.get(places), strict=True):
                    if data is not None:
                        yield place, data


def _head(number: int) -> bytes:
    """Return the first bytes of the database keys of a number."""
    return _PREFIX + (number + _OFFSET).to_bytes(_NUMBER, "big")


def _slot(head: bytes, canonical: bytes) -> bytes:
    return head + _LENGTH.pack(len(canonical)) + canonical


def _number_of(place: bytes) -> int:
    return int.from_bytes(place[1:_HEAD], "big") - _OFFSET


def _stored_key(place: bytes, head: int) -> bytes:
    """Return the stored key in the bytes of a slot after ``head`` bytes."""
    length: int = _LENGTH.unpack_from(place, head)[0]
    return place[head + _LENGTH.size + length :]


def _slot_of_suffix(suffix: bytes) -> bytes:
    length: int = _LENGTH.unpack_from(suffix)[0]
    return suffix[: _LENGTH.size + length]


def _after(prefix: bytes) -> bytes:
    """Return the first bytes after all that begin with ``prefix``, whose first byte is not the largest."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1])
