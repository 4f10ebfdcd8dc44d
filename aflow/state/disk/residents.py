"""Residents: the keys in memory, their loading and eviction.

A key is resident together with all keys of its bucket (see ``buckets``). A touch makes a resident bucket *unwritten*,
since a handler may change it. An unwritten bucket is written when it is evicted.

Buckets are evicted by generations: first those of the last generation that were not touched since, in the order in
which they joined it. Then the touched ones are the next generation. Buckets in use are never evicted. This costs less
than a list in the order of last touches, for keys that are touched often and for those that are touched once.
"""

from __future__ import annotations

from collections.abc import (
    Callable,
    Hashable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from itertools import chain, islice
from typing import Any, Final

from aflow.errors import OperatorError, shown
from aflow.model.codecs import CodecError
from aflow.model.keys import encode_key, encode_keys
from aflow.state.disk.buckets import BUCKETS, Held, decode_bucket, encode_bucket
from aflow.state.disk.expiry_index import ExpiryIndex
from aflow.state.disk.scratch import Scratch
from aflow.state.disk.stored_keys import StoredKeys, read_sorted
from aflow.state.key_kinds import KeyKinds
from aflow.state.keyed_entries import KeyGroupCodec
from aflow.state.tables import Table, Tables
from aflow.state.timed_rows import MOMENT_BYTES, TimedRows, decode_moment, encode_moment

#: Number of buckets in one write, and of buckets evicted beyond the limit, so that writes are efficient.
_AT_ONCE: Final = 1024

#: Buckets that one eviction examines, beside those that it evicts, which takes less than a millisecond. One touch adds
#: fewer to a generation, so no more than that wait to be examined.
_EXAMINED: Final = 16_384

Bucket = tuple[tuple[Hashable, bytes], ...]
"""The keys of a resident bucket with their bytes."""


class Residents:
    """Keys with their state in the dicts of ``tables``: up to ``limit`` and those in use. Others are on disk."""

    def __init__(
        self,
        key_codec: KeyGroupCodec,
        tables: Tables,
        scratch: Scratch,
        limit: int,
        kinds: KeyKinds,
    ) -> None:
        self._key_codec = key_codec
        self._stored_keys = StoredKeys(key_codec, "state")
        self._tables = tables
        self._scratch = scratch
        self._limit = limit
        self._kinds = kinds
        self._expiries: Final = ExpiryIndex(tables, scratch)
        #: Buckets by place.
        self._buckets: dict[bytes, Bucket] = {}
        #: Buckets that were touched since the generation in ``_older`` was complete.
        self._recent: dict[bytes, None] = {}
        #: The buckets of the last generation that were not examined yet.
        self._older: Iterator[bytes] = iter(())
        #: Place of each resident key.
        self._place_of: dict[Hashable, bytes] = {}
        #: Resident buckets that `write` has written after their last touch.
        self._written: set[bytes] = set()
        #: Buckets of the last touch.
        self._in_use: dict[bytes, None] = {}
        #: Called with the keys of buckets before these are evicted.
        self.before_eviction: Callable[[list[Hashable]], None] | None = None

    def __contains__(self, key: Hashable) -> bool:
        return key in self._place_of

    def __len__(self) -> int:
        return len(self._place_of)

    def keys(self) -> list[Hashable]:
        """Return the resident keys."""
        return list(self._place_of)

    def places(self) -> list[bytes]:
        """Return the places of the resident keys."""
        return list(self._place_of.values())

    def touch(self, keys: Sequence[Hashable]) -> None:
        """Make ``keys`` resident, and make them the only keys in use."""
        # Hot path (benchmark `disk`): once for each batch; resident keys cost lookups only.
        place_of = self._place_of
        missing = [key for key in dict.fromkeys(keys) if key not in place_of]
        if missing:
            self._load(missing)
        self._in_use = in_use = dict.fromkeys(map(place_of.__getitem__, keys))
        self._touched(in_use)

    def admit(self, key: Hashable) -> bool:
        """Make one more key resident until its eviction. Return False if it is in use already."""
        if key not in self._place_of:
            self._load([key])
        place = self._place_of[key]
        if place in self._in_use:
            return False
        self._touched({place: None})
        return True

    def place(self, key: Hashable) -> bytes:
        """Return the place of the bucket of ``key`` in the database. Raises ``UnsupportedKey``."""
        return BUCKETS + encode_key(key)

    def sweep(self) -> list[Hashable]:
        """Forget some expired rows, in memory and in the database, and return their keys."""
        gone: list[Hashable] = []
        for table, places in self._expiries.take():
            resident = [place for place in places if place in self._buckets]
            gone += self._forget_resident(table, resident)
            away = [place for place in places if place not in self._buckets]
            gone += self._expiries.forget_stored(table, away, self._key_codec.key)
        return gone

    def write(self) -> None:
        """Write all unwritten buckets. Those in use remain unwritten, since they may change."""
        written = self._written
        self._write({at: bucket for at, bucket in self._buckets.items() if at not in written})
        self._written = self._buckets.keys() - self._in_use.keys()

    def index_expiries(self, keys: Iterable[Hashable]) -> None:
        """Add the resident ones of ``keys`` to the index of expiries, even if they are never written."""
        if self._tables.timed:
            self._scratch.store.write(
                chain.from_iterable(
                    self._expiries.entries(place, key)
                    for key in keys
                    if (place := self._place_of.get(key)) is not None
                )
            )

    def clear(self) -> None:
        """Forget all keys; the owner clears the dicts and the database."""
        self._buckets.clear()
        self._recent = {}
        self._older = iter(())
        self._place_of.clear()
        self._written.clear()
        self._in_use = {}

    def _touched(self, places: dict[bytes, None]) -> None:
        self._recent.update(places)
        if self._written:
            self._written.difference_update(places)
        if len(self._buckets) > self._limit:
            self._evict(places)

    def _load(self, keys: Sequence[Hashable]) -> None:
        """Make ``keys``, none of which is resident, and all other keys of their buckets resident."""
        # Hot path: most keys are alone in their buckets, and have the same bytes as before.
        self._kinds.see(keys)
        stored_keys = self._stored_keys.all_stored(keys)
        places = [BUCKETS + encoded for encoded in encode_keys(keys)]
        new: dict[bytes, Bucket] = dict(
            zip(places, zip(zip(keys, stored_keys, strict=True), strict=True), strict=True)
        )
        if len(new) < len(keys) or not new.keys().isdisjoint(self._buckets.keys()):
            self._load_shared(places, keys, stored_keys)
            return
        self._place_of.update(zip(keys, places, strict=True))
        self._hold(new)

    def _load_shared(
        self, places: Sequence[bytes], keys: Sequence[Hashable], stored_keys: Sequence[bytes]
    ) -> None:
        """Load keys of which some have a bucket with each other, or with resident ones."""
        buckets, place_of = self._buckets, self._place_of
        new: dict[bytes, Bucket] = {}
        members = list(zip(places, keys, stored_keys, strict=True))
        for place, key, stored in members:
            if place not in buckets and place not in new:
                new[place] = ((key, stored),)
                place_of[key] = place
        self._hold(new)
        for place, key, stored in members:
            if key not in place_of:
                buckets[place] += ((key, stored),)
                place_of[key] = place

    def _hold(self, new: dict[bytes, Bucket]) -> None:
        """Add buckets of one key each, with the stored content of their places."""
        found = read_sorted(self._scratch.store, new)
        self._buckets.update(new)
        only = self._only()
        keys: list[Hashable] = []
        rows: list[bytes] = []
        for place, data in found:
            if data is None:
                continue
            key, stored = new[place][0]
            bucket = decode_bucket(data)
            if len(bucket) > 1 or bucket[0][0] != stored:
                self._buckets[place] = self._load_bucket(place, key, bucket)
            elif only is None or (row := bucket[0][1]) is None:
                self._load_key(key, bucket[0])
            else:
                keys.append(key)
                rows.append(row)
        if only is not None:
            only.rows.update(zip(keys, only.decoded_all(keys, rows), strict=True))

    def _load_bucket(self, place: bytes, asked: Hashable, stored: list[Held]) -> Bucket:
        """Load a stored bucket and return it, with the ``asked`` key even if that is not stored."""
        bucket: list[tuple[Hashable, bytes]] = []
        for held in stored:
            data = held[0] or b""
            key = self._key_codec.key(data)
            bucket.append((key, data))
            self._place_of[key] = place
            self._load_key(key, held)
        if not any(key == asked for key, _ in bucket):
            bucket.append((asked, self._key_codec.stored(asked)))
        return tuple(bucket)

    def _load_key(self, key: Hashable, held: Held) -> None:
        for table, data in zip(self._tables, islice(held, 1, None), strict=False):
            if data is None:
                continue
            if table.timed is None:
                table.rows[key] = table.decoded(key, data)
            else:
                _load_timed(table, table.timed, key, data)

    def _evict(self, used: Iterable[bytes]) -> None:
        """Write and evict the oldest buckets that are neither in use nor in ``used``."""
        evicted = self._oldest(used)
        keys = [key for bucket in evicted.values() for key, _ in bucket]
        if self.before_eviction is not None:
            self.before_eviction(keys)
        written = self._written
        if written:
            self._write({at: bucket for at, bucket in evicted.items() if at not in written})
            written.difference_update(evicted)
        else:
            self._write(evicted)
        for key in keys:
            del self._place_of[key]
        for table in self._tables:
            if table.timed is not None:
                for key in keys:
                    table.forget(key)
            else:
                rows = table.rows
                for key in keys:
                    rows.pop(key, None)

    def _oldest(self, used: Iterable[bytes]) -> dict[bytes, Bucket]:
        """Remove and return buckets to evict until there is room, as far as possible."""
        surplus = len(self._buckets) - self._limit + min(_AT_ONCE, self._limit // 8)
        evicted: dict[bytes, Bucket] = {}
        take, rotated = self._buckets.pop, False
        for _ in range(1 + _EXAMINED // surplus):
            some = list(islice(self._older, surplus - len(evicted)))
            if not some:
                if rotated:
                    break  # all are evicted or in use, up to the limit
                rotated = True
                touched, self._recent = self._recent, {**self._in_use, **dict.fromkeys(used)}
                self._older = iter(touched)
            recent = self._recent
            for place in some:
                if place not in recent:
                    evicted[place] = take(place)
            if len(evicted) == surplus:
                break
        return evicted

    def _write(self, buckets: Mapping[bytes, Bucket]) -> None:
        places = sorted(buckets)
        for start in range(0, len(places), _AT_ONCE):
            some = places[start : start + _AT_ONCE]
            puts, deletes = self._pack(some, buckets)
            if self._tables.timed:
                puts += self._index_entries(some, buckets)
            self._scratch.store.write(puts, deletes)

    def _index_entries(
        self, places: Iterable[bytes], buckets: Mapping[bytes, Bucket]
    ) -> Iterator[tuple[bytes, bytes]]:
        for place in places:
            for key, _ in buckets[place]:
                yield from self._expiries.entries(place, key)

    def _pack(
        self, places: Iterable[bytes], buckets: Mapping[bytes, Bucket]
    ) -> tuple[list[tuple[bytes, bytes]], list[bytes]]:
        """Return the encoded buckets at ``places``, and the places of empty ones."""
        only = self._only()
        of_table: dict[Hashable, Any] = {} if only is None else only.rows
        puts: list[tuple[bytes, bytes]] = []
        deletes: list[bytes] = []
        # Hot path: keys that are alone in their buckets.
        alone: list[bytes] = []
        stored_keys: list[bytes] = []
        rows: list[Any] = []
        for place in places:
            bucket = buckets[place]
            key, stored = bucket[0]
            if len(bucket) == 1 and key in of_table:
                alone.append(place)
                stored_keys.append(stored)
                rows.append(of_table[key])
            elif (data := self._packed(bucket)) is not None:
                puts.append((place, data))
            else:
                deletes.append(place)
        if only is not None:
            try:
                encoded = only.layout.encode_all(rows)
            except CodecError:
                encoded = [self._part(only, buckets[place][0][0]) for place in alone]
            held = zip(zip(stored_keys, encoded, strict=True), strict=True)
            puts += zip(alone, map(encode_bucket, held), strict=True)
        return puts, deletes

    def _only(self) -> Table | None:
        """Return the only table of a step, if it has no time to live: its keys are handled faster."""
        return None if len(self._tables) != 1 or self._tables.timed else self._tables[0]

    def _packed(self, keys: Bucket) -> bytes | None:
        """Return the encoded bucket of ``keys``; None if they have no rows."""
        bucket: list[Held] = []
        for key, stored in keys:
            held: Held = [stored]
            some = False
            for table in self._tables:
                if key in table.rows:
                    held.append(self._part(table, key))
                    some = True
                else:
                    held.append(None)
            if some:
                bucket.append(held)
        return encode_bucket(bucket) if bucket else None

    def _part(self, table: Table, key: Hashable) -> bytes:
        try:
            data = table.layout.encode(table.rows[key])
        except CodecError as exc:
            raise self._unstorable(table, key, exc) from exc
        return data if table.timed is None else encode_moment(table.timed.moment(key)) + data

    def _unstorable(self, table: Table | None, key: Hashable, cause: CodecError) -> OperatorError:
        what = f"state of step {self._key_codec.operator!r}" if table is None else table.what
        return OperatorError(
            f"{what} cannot be kept on disk for key {shown(key)}: {cause}",
            operator=self._key_codec.operator,
            key=key,
        )

    def _forget_resident(self, table: Table, places: Iterable[bytes]) -> list[Hashable]:
        gone: list[Hashable] = []
        for place in places:
            for key, _ in self._buckets[place]:
                if key in table.rows and not table.has_row(key):
                    table.forget(key)
                    self._written.discard(place)
                    gone.append(key)
        return gone


def _load_timed(table: Table, timed: TimedRows, key: Hashable, data: bytes) -> None:
    moment = decode_moment(data[:MOMENT_BYTES])
    if not timed.is_expired(moment, timed.now()):
        table.rows[key] = table.decoded(key, data[MOMENT_BYTES:])
        timed.hold(key, moment)
