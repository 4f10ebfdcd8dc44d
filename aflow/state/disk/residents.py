"""Which keys are in memory, and how they come and go.

A key is resident together with all keys of its bucket (see ``buckets``); buckets leave in the order of their last
touch, never one that is in use. A resident bucket is *unwritten* from its touch on, since nobody knows what a handler
does with it: it is written when it leaves.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Final

from aflow.errors import OperatorError, shown
from aflow.model.codecs import CodecError
from aflow.model.keys import check_key, encode_key
from aflow.state.disk.buckets import BUCKETS, Held, decode_bucket, encode_bucket
from aflow.state.disk.due import Due
from aflow.state.disk.scratch import Scratch
from aflow.state.filing import KeyedFiling
from aflow.state.key_kinds import KeyKinds
from aflow.state.lifetimes import MOMENT_BYTES, Lifetimes, decode_moment, encode_moment
from aflow.state.tables import Table, Tables

#: Buckets written at once; also how many more than need be leave at a time, so that each write is worth its while.
_AT_ONCE: Final = 1024

Bucket = tuple[tuple[Hashable, bytes], ...]
"""The keys of a resident bucket, and how each is stored."""


class Residents:
    """The keys whose state is in the dicts of ``tables``: up to ``limit`` and those in use; the others are on disk."""

    def __init__(
        self, filing: KeyedFiling, tables: Tables, scratch: Scratch, limit: int, kinds: KeyKinds
    ) -> None:
        self._filing = filing
        self._tables = tables
        self._scratch = scratch
        self._limit = limit
        self._kinds = kinds
        self._due: Final = Due(tables, scratch)
        #: By place, the one touched longest ago first.
        self._buckets: OrderedDict[bytes, Bucket] = OrderedDict()
        #: Where each resident key is.
        self._place_of: dict[Hashable, bytes] = {}
        #: Resident buckets of which the database may know less.
        self._unwritten: set[bytes] = set()
        #: Those of the last touch.
        self._in_use: dict[bytes, None] = {}

    def __contains__(self, key: Hashable) -> bool:
        return key in self._place_of

    def touch(self, keys: Sequence[Hashable]) -> None:
        """Make ``keys`` resident, and the only ones that are in use."""
        # Hot path (benchmark `disk`): once for each batch; only keys that are not resident cost more than look-ups.
        place_of = self._place_of
        missing = [key for key in dict.fromkeys(keys) if key not in place_of]
        if missing:
            self._load(missing)
        self._in_use = in_use = dict.fromkeys(map(place_of.__getitem__, keys))
        self._touched(in_use)

    def admit(self, key: Hashable) -> bool:
        """Make one more key resident, for now; False if it is in use anyhow."""
        if key not in self._place_of:
            self._load([key])
        place = self._place_of[key]
        if place in self._in_use:
            return False
        self._touched((place,))
        return True

    def place(self, key: Hashable) -> bytes:
        """Where the bucket of ``key`` is in the database. Raises ``UnsupportedKey``."""
        return BUCKETS + encode_key(key)

    def sweep(self) -> list[Hashable]:
        """Forget some of what is out of date, here and in the database, and say of which keys."""
        gone: list[Hashable] = []
        for table, places in self._due.take():
            resident = [place for place in places if place in self._buckets]
            gone += self._forget_resident(table, resident)
            away = [place for place in places if place not in self._buckets]
            gone += self._due.forget_stored(table, away, self._filing.key)
        return gone

    def write(self) -> None:
        """Bring the database up to date. What is in use stays unwritten: it may still change."""
        self._write(list(self._unwritten))
        self._unwritten = set(self._in_use)

    def note_due(self, keys: Iterable[Hashable]) -> None:
        """See to it that a sweep looks at those of ``keys`` that are resident, even if they are never written."""
        if self._tables.timed:
            self._scratch.store.write(
                chain.from_iterable(
                    self._due.notes(place, key)
                    for key in keys
                    if (place := self._place_of.get(key)) is not None
                )
            )

    def clear(self) -> None:
        """Know of no keys; the dicts and the database are cleared by their owner."""
        self._buckets.clear()
        self._place_of.clear()
        self._unwritten.clear()
        self._in_use = {}

    def _touched(self, places: Iterable[bytes]) -> None:
        move = self._buckets.move_to_end
        for place in places:
            move(place)
        self._unwritten.update(places)
        if len(self._buckets) > self._limit:
            self._evict(set(places))

    def _load(self, keys: Sequence[Hashable]) -> None:
        """Make ``keys``, none of which is resident, so, and whatever shares a bucket with them."""
        # Hot path too: most keys are alone in their buckets, and stored as they are written now.
        self._kinds.see(keys)
        stored_keys = self._stored_keys(keys)
        places = [BUCKETS + encode_key(key) for key in keys]
        # Databases read faster in the order of their keys.
        order = sorted(range(len(keys)), key=places.__getitem__)
        places = [places[index] for index in order]
        found = self._scratch.store.get(places)
        self._hold(zip(order, places, found, strict=True), keys, stored_keys)

    def _hold(
        self,
        found: Iterable[tuple[int, bytes, bytes | None]],
        keys: Sequence[Hashable],
        stored_keys: Sequence[bytes],
    ) -> None:
        """Take what was found at the places of ``keys``, which are named by their index."""
        buckets, place_of, only = self._buckets, self._place_of, self._only()
        for index, place, data in found:
            key, stored = keys[index], stored_keys[index]
            if place in buckets:
                if key not in place_of:
                    buckets[place] += ((key, stored),)
                    place_of[key] = place
                continue
            buckets[place] = ((key, stored),)
            place_of[key] = place
            if data is not None:
                first, *others = decode_bucket(data)
                if not others and first[0] == stored:
                    if only is None:
                        self._take(key, first)
                    elif (one := first[1]) is not None:
                        only.rows[key] = only.decoded(key, one)
                else:
                    buckets[place] = self._take_all(place, key, [first, *others])

    def _take_all(self, place: bytes, asked: Hashable, stored: list[Held]) -> Bucket:
        """Take what is stored of a bucket; the key that was ``asked`` for is in it too, stored or not."""
        bucket: list[tuple[Hashable, bytes]] = []
        for held in stored:
            data = held[0] or b""
            key = self._filing.key(data)
            bucket.append((key, data))
            self._place_of[key] = place
            self._take(key, held)
        if not any(key == asked for key, _ in bucket):
            bucket.append((asked, self._filing.stored(asked)))
        return tuple(bucket)

    def _take(self, key: Hashable, held: Held) -> None:
        for table, data in zip(self._tables, islice(held, 1, None), strict=False):
            if data is None:
                continue
            if table.ttl is None:
                table.rows[key] = table.decoded(key, data)
            else:
                _take_timed(table, table.ttl, key, data)

    def _evict(self, used: set[bytes]) -> None:
        """Write and let go of those touched longest ago, but none that is in use."""
        surplus = len(self._buckets) - self._limit + min(_AT_ONCE, self._limit // 8)
        leaving: list[bytes] = []
        for place in self._buckets:
            if len(leaving) == surplus:
                break
            if place not in self._in_use and place not in used:
                leaving.append(place)
        self._write([place for place in leaving if place in self._unwritten])
        self._unwritten.difference_update(leaving)
        timed = self._tables.timed
        rows = [table.rows for table in self._tables if table.ttl is None]
        for place in leaving:
            for key, _ in self._buckets.pop(place):
                del self._place_of[key]
                for of_table in rows:
                    of_table.pop(key, None)
                for table in timed:
                    table.forget(key)

    def _write(self, places: Iterable[bytes]) -> None:
        places = sorted(places)
        for start in range(0, len(places), _AT_ONCE):
            packed = self._all_packed(places[start : start + _AT_ONCE])
            puts = [(place, data) for place, data in packed if data is not None]
            notes = self._notes(place for place, _ in puts) if self._tables.timed else ()
            self._scratch.store.write(
                chain(puts, notes), (place for place, data in packed if data is None)
            )

    def _notes(self, places: Iterable[bytes]) -> Iterator[tuple[bytes, bytes]]:
        for place in places:
            for key, _ in self._buckets[place]:
                yield from self._due.notes(place, key)

    def _all_packed(self, places: Sequence[bytes]) -> list[tuple[bytes, bytes | None]]:
        table = self._only()
        if table is None:
            return [(place, self._packed(place)) for place in places]
        # Hot path: keys that are alone in their buckets.
        buckets, rows, encode = self._buckets, table.rows, table.layout.encode
        packed: list[tuple[bytes, bytes | None]] = []
        for place in places:
            bucket = buckets[place]
            key, stored = bucket[0]
            if len(bucket) > 1 or key not in rows:
                packed.append((place, self._packed(place)))
                continue
            try:
                packed.append((place, encode_bucket(((stored, encode(rows[key])),))))
            except CodecError:
                self._part(table, key)  # raises what tells more
                raise
        return packed

    def _only(self) -> Table | None:
        """The table of a step that has one state, without a time to live: handled with less ado."""
        return None if len(self._tables) != 1 or self._tables.timed else self._tables[0]

    def _packed(self, place: bytes) -> bytes | None:
        """The bucket at ``place`` as it is now; None if it is empty."""
        bucket: list[Held] = []
        for key, stored in self._buckets[place]:
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
            raise OperatorError(
                f"{table.what} cannot be kept on disk for key {shown(key)}: {exc}",
                operator=self._filing.operator,
                key=key,
            ) from exc
        return data if table.ttl is None else encode_moment(table.ttl.moment(key)) + data

    def _stored_keys(self, keys: Sequence[Hashable]) -> list[bytes]:
        try:
            return list(map(self._filing.stored, keys))
        except CodecError:
            return [self._stored_key(key) for key in keys]

    def _stored_key(self, key: Hashable) -> bytes:
        check_key(key)
        try:
            return self._filing.stored(key)
        except CodecError as exc:
            raise OperatorError(
                f"step {self._filing.operator!r} cannot keep state on disk for key {shown(key)}: {exc}",
                operator=self._filing.operator,
                key=key,
            ) from exc

    def _forget_resident(self, table: Table, places: Iterable[bytes]) -> list[Hashable]:
        gone: list[Hashable] = []
        for place in places:
            for key, _ in self._buckets[place]:
                if key in table.rows and not table.held(key):
                    table.forget(key)
                    self._unwritten.add(place)
                    gone.append(key)
        return gone


def _take_timed(table: Table, lifetimes: Lifetimes, key: Hashable, data: bytes) -> None:
    moment = decode_moment(data[:MOMENT_BYTES])
    if not lifetimes.expired(moment, lifetimes.now()):
        table.rows[key] = table.decoded(key, data[MOMENT_BYTES:])
        lifetimes.hold(key, moment)
