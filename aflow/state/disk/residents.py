"""Which keys are in memory, and how they come and go.

A key is resident together with all keys of its bucket (see ``buckets``); buckets leave in the order of their last
touch, never one that is in use. A resident bucket is *unwritten* from its touch on, since nobody knows what a handler
does with it: it is written when it leaves.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, Final

from aflow.errors import OperatorError, shown
from aflow.model.codecs import CodecError
from aflow.model.keys import check_key, encode_key
from aflow.state.disk.buckets import BUCKETS, Held, decode_bucket, encode_bucket
from aflow.state.disk.expiry_index import Due
from aflow.state.disk.scratch import Scratch
from aflow.state.key_kinds import KeyKinds
from aflow.state.keyed_entries import KeyGroupCodec
from aflow.state.tables import Table, Tables
from aflow.state.timed_rows import MOMENT_BYTES, TimedRows, decode_moment, encode_moment

#: Buckets written at once; also how many more than need be leave at a time, so that each write is worth its while.
_AT_ONCE: Final = 1024

Bucket = tuple[tuple[Hashable, bytes], ...]
"""The keys of a resident bucket, and how each is stored."""


class Residents:
    """The keys whose state is in the dicts of ``tables``: up to ``limit`` and those in use; the others are on disk."""

    def __init__(
        self,
        key_codec: KeyGroupCodec,
        tables: Tables,
        scratch: Scratch,
        limit: int,
        kinds: KeyKinds,
    ) -> None:
        self._key_codec = key_codec
        self._tables = tables
        self._scratch = scratch
        self._limit = limit
        self._kinds = kinds
        self._due: Final = Due(tables, scratch)
        #: By place, the one touched longest ago first.
        self._buckets: OrderedDict[bytes, Bucket] = OrderedDict()
        #: Where each resident key is.
        self._place_of: dict[Hashable, bytes] = {}
        #: Resident buckets of which the database knows all, since `write` came by after their last touch.
        self._written: set[bytes] = set()
        #: Those of the last touch.
        self._in_use: dict[bytes, None] = {}

    def __contains__(self, key: Hashable) -> bool:
        return key in self._place_of

    def touch(self, keys: Sequence[Hashable]) -> None:
        """Make ``keys`` resident, and the only ones that are in use."""
        # Hot path (benchmark `disk`): once for each batch; only keys that are not resident cost more than look-ups.
        place_of, move = self._place_of, self._buckets.move_to_end
        missing: list[Hashable] = []
        for key in dict.fromkeys(keys):
            if key in place_of:
                move(place_of[key])
            else:
                missing.append(key)
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
        self._buckets.move_to_end(place)
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
            gone += self._due.forget_stored(table, away, self._key_codec.key)
        return gone

    def write(self) -> None:
        """Bring the database up to date. What is in use stays unwritten: it may still change."""
        written = self._written
        self._write({at: bucket for at, bucket in self._buckets.items() if at not in written})
        self._written = self._buckets.keys() - self._in_use.keys()

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
        self._written.clear()
        self._in_use = {}

    def _touched(self, places: Collection[bytes]) -> None:
        if self._written:
            self._written.difference_update(places)
        if len(self._buckets) > self._limit:
            self._evict(places)

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
        rows: dict[Hashable, Any] = {} if only is None else only.rows
        decode = None if only is None else only.layout.decode
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
                bucket = decode_bucket(data)
                if len(bucket) > 1 or bucket[0][0] != stored:
                    buckets[place] = self._take_all(place, key, bucket)
                elif decode is None or (one := bucket[0][1]) is None:
                    self._take(key, bucket[0])
                else:
                    rows[key] = decode(one)

    def _take_all(self, place: bytes, asked: Hashable, stored: list[Held]) -> Bucket:
        """Take what is stored of a bucket; the key that was ``asked`` for is in it too, stored or not."""
        bucket: list[tuple[Hashable, bytes]] = []
        for held in stored:
            data = held[0] or b""
            key = self._key_codec.key(data)
            bucket.append((key, data))
            self._place_of[key] = place
            self._take(key, held)
        if not any(key == asked for key, _ in bucket):
            bucket.append((asked, self._key_codec.stored(asked)))
        return tuple(bucket)

    def _take(self, key: Hashable, held: Held) -> None:
        for table, data in zip(self._tables, islice(held, 1, None), strict=False):
            if data is None:
                continue
            if table.timed is None:
                table.rows[key] = table.decoded(key, data)
            else:
                _take_timed(table, table.timed, key, data)

    def _evict(self, used: Container[bytes]) -> None:
        """Write and let go of those touched longest ago, but none that is in use."""
        leaving = self._take_oldest(used)
        written = self._written
        if written:
            self._write({at: bucket for at, bucket in leaving.items() if at not in written})
            written.difference_update(leaving)
        else:
            self._write(leaving)
        timed = self._tables.timed
        rows = [table.rows for table in self._tables if table.timed is None]
        place_of = self._place_of
        for bucket in leaving.values():
            for key, _ in bucket:
                del place_of[key]
                for of_table in rows:
                    of_table.pop(key, None)
                for table in timed:
                    table.forget(key)

    def _take_oldest(self, used: Container[bytes]) -> dict[bytes, Bucket]:
        """Of the resident buckets so many that there is room again, if there can be."""
        buckets, in_use = self._buckets, self._in_use
        surplus = len(buckets) - self._limit + min(_AT_ONCE, self._limit // 8)
        leaving: dict[bytes, Bucket] = {}
        for _ in range(len(buckets)):
            if len(leaving) == surplus:
                break
            place, bucket = buckets.popitem(last=False)
            if place in in_use or place in used:
                buckets[place] = bucket
            else:
                leaving[place] = bucket
        return leaving

    def _write(self, buckets: Mapping[bytes, Bucket]) -> None:
        places = sorted(buckets)
        for start in range(0, len(places), _AT_ONCE):
            puts: list[tuple[bytes, bytes]] = []
            deletes: list[bytes] = []
            some = [(place, buckets[place]) for place in places[start : start + _AT_ONCE]]
            self._pack(some, puts, deletes)
            notes = self._notes(some) if self._tables.timed else ()
            self._scratch.store.write(chain(puts, notes), deletes)

    def _notes(self, buckets: Iterable[tuple[bytes, Bucket]]) -> Iterator[tuple[bytes, bytes]]:
        for place, bucket in buckets:
            for key, _ in bucket:
                yield from self._due.notes(place, key)

    def _pack(
        self,
        buckets: Iterable[tuple[bytes, Bucket]],
        puts: list[tuple[bytes, bytes]],
        deletes: list[bytes],
    ) -> None:
        """Add what to put and what to delete, since nothing is left of it."""
        only = self._only()
        rows: dict[Hashable, Any] = {} if only is None else only.rows
        encode = None if only is None else only.layout.encode
        for place, bucket in buckets:
            if encode is not None and len(bucket) == 1 and (key := bucket[0][0]) in rows:
                # Hot path: a key that is alone in its bucket.
                try:
                    puts.append((place, encode_bucket(((bucket[0][1], encode(rows[key])),))))
                except CodecError as exc:
                    raise self._unstorable(only, key, exc) from exc
            elif (data := self._packed(bucket)) is not None:
                puts.append((place, data))
            else:
                deletes.append(place)

    def _only(self) -> Table | None:
        """The table of a step that has one state, without a time to live: handled with less ado."""
        return None if len(self._tables) != 1 or self._tables.timed else self._tables[0]

    def _packed(self, keys: Bucket) -> bytes | None:
        """What the keys of a bucket have now; None if they have nothing."""
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

    def _stored_keys(self, keys: Sequence[Hashable]) -> list[bytes]:
        try:
            return list(map(self._key_codec.stored, keys))
        except CodecError:
            return [self._stored_key(key) for key in keys]

    def _stored_key(self, key: Hashable) -> bytes:
        check_key(key)
        try:
            return self._key_codec.stored(key)
        except CodecError as exc:
            raise OperatorError(
                f"step {self._key_codec.operator!r} cannot keep state on disk for key {shown(key)}: {exc}",
                operator=self._key_codec.operator,
                key=key,
            ) from exc

    def _forget_resident(self, table: Table, places: Iterable[bytes]) -> list[Hashable]:
        gone: list[Hashable] = []
        for place in places:
            for key, _ in self._buckets[place]:
                if key in table.rows and not table.has_row(key):
                    table.forget(key)
                    self._written.discard(place)
                    gone.append(key)
        return gone


def _take_timed(table: Table, timed: TimedRows, key: Hashable, data: bytes) -> None:
    moment = decode_moment(data[:MOMENT_BYTES])
    if not timed.is_expired(moment, timed.now()):
        table.rows[key] = table.decoded(key, data[MOMENT_BYTES:])
        timed.hold(key, moment)
