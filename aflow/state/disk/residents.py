"""Which keys are in memory, and how they come and go.

A key is resident together with all keys of its bucket (see ``buckets``); buckets leave in the order of their last
touch, never one that is in use. A resident bucket is *unwritten* from its touch on, since nobody knows what a handler
does with it: it is written when it leaves.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Final

from aflow.errors import CheckpointError, OperatorError, shown
from aflow.model.codecs import CodecError
from aflow.model.keys import encode_key
from aflow.state.disk.buckets import BUCKETS, Held, decode_bucket, encode_bucket, part
from aflow.state.disk.due import Due
from aflow.state.disk.scratch import Scratch
from aflow.state.filing import KeyedFiling
from aflow.state.key_kinds import KeyKinds
from aflow.state.lifetimes import MOMENT_BYTES, decode_moment, encode_moment
from aflow.state.tables import Table, Tables

#: Buckets written at once; also how many more than need be leave at a time, so that each write is worth its while.
_AT_ONCE: Final = 1024

Bucket = list[tuple[Hashable, bytes]]
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
        self._kinds.see(keys)
        placed = [(key, self.place(key), self._stored_key(key)) for key in keys]
        buckets = self._buckets
        wanted = [place for _, place, _ in placed if place not in buckets]
        for place, data in zip(wanted, self._scratch.store.get(wanted), strict=True):
            if data is not None:
                self._take(place, decode_bucket(data))
        place_of = self._place_of
        for key, place, stored in placed:
            if key not in place_of:
                place_of[key] = place
                buckets.setdefault(place, []).append((key, stored))

    def _take(self, place: bytes, bucket: list[Held]) -> None:
        if place in self._buckets:
            return  # two keys of one bucket were missing
        keys = self._buckets[place] = []
        for held in bucket:
            stored = held[0] or b""
            key = self._filing.key(stored)
            keys.append((key, stored))
            self._place_of[key] = place
            for state, table in enumerate(self._tables):
                if (data := part(held, state)) is not None:
                    _take_part(table, key, data)

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
        for place in leaving:
            for key, _ in self._buckets.pop(place):
                del self._place_of[key]
                for table in self._tables:
                    table.forget(key)

    def _write(self, places: Sequence[bytes]) -> None:
        for start in range(0, len(places), _AT_ONCE):
            packed = [(place, self._packed(place)) for place in places[start : start + _AT_ONCE]]
            puts = [(place, data) for place, data in packed if data is not None]
            notes = self._notes(place for place, _ in puts) if self._tables.timed else ()
            self._scratch.store.write(
                chain(puts, notes), (place for place, data in packed if data is None)
            )

    def _notes(self, places: Iterable[bytes]) -> Iterator[tuple[bytes, bytes]]:
        for place in places:
            for key, _ in self._buckets[place]:
                yield from self._due.notes(place, key)

    def _packed(self, place: bytes) -> bytes | None:
        """The bucket at ``place`` as it is now; None if it is empty."""
        bucket: list[Held] = []
        for key, stored in self._buckets[place]:
            held: Held = [stored]
            for table in self._tables:
                held.append(self._part(table, key) if key in table.rows else None)
            if held.count(None) < len(held) - 1:
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

    def _stored_key(self, key: Hashable) -> bytes:
        try:
            return self._filing.place(key)[1]
        except CheckpointError as exc:
            raise OperatorError(str(exc), operator=self._filing.operator, key=key) from exc

    def _forget_resident(self, table: Table, places: Iterable[bytes]) -> list[Hashable]:
        gone: list[Hashable] = []
        for place in places:
            for key, _ in self._buckets[place]:
                if key in table.rows and not table.held(key):
                    table.forget(key)
                    self._unwritten.add(place)
                    gone.append(key)
        return gone


def _take_part(table: Table, key: Hashable, data: bytes) -> None:
    if table.ttl is None:
        table.rows[key] = table.decoded(key, data)
        return
    moment = decode_moment(data[:MOMENT_BYTES])
    if not table.ttl.expired(moment, table.ttl.now()):
        table.rows[key] = table.decoded(key, data[MOMENT_BYTES:])
        table.ttl.hold(key, moment)
