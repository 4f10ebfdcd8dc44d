"""Residents: the keys in memory, their loading and eviction.

A key is resident together with all keys of its bucket (see ``buckets``). Buckets are evicted in the order of their last
touch, but not while they are in use. A touch makes a resident bucket *unwritten*, since a handler may change it. An
unwritten bucket is written when it is evicted.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, Final

from aflow.errors import OperatorError, shown
from aflow.model.codecs import CodecError
from aflow.model.keys import encode_key
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
        #: Buckets by place, the least recently touched first.
        self._buckets: OrderedDict[bytes, Bucket] = OrderedDict()
        #: Place of each resident key.
        self._place_of: dict[Hashable, bytes] = {}
        #: Resident buckets that `write` has written after their last touch.
        self._written: set[bytes] = set()
        #: Buckets of the last touch.
        self._in_use: dict[bytes, None] = {}

    def __contains__(self, key: Hashable) -> bool:
        return key in self._place_of

    def touch(self, keys: Sequence[Hashable]) -> None:
        """Make ``keys`` resident, and make them the only keys in use."""
        # Hot path (benchmark `disk`): once for each batch; resident keys cost lookups only.
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
        """Make one more key resident until its eviction. Return False if it is in use already."""
        if key not in self._place_of:
            self._load([key])
        place = self._place_of[key]
        if place in self._in_use:
            return False
        self._buckets.move_to_end(place)
        self._touched((place,))
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
        self._place_of.clear()
        self._written.clear()
        self._in_use = {}

    def _touched(self, places: Collection[bytes]) -> None:
        if self._written:
            self._written.difference_update(places)
        if len(self._buckets) > self._limit:
            self._evict(places)

    def _load(self, keys: Sequence[Hashable]) -> None:
        """Make ``keys``, none of which is resident, and all other keys of their buckets resident."""
        # Hot path: most keys are alone in their buckets, and have the same bytes as before.
        self._kinds.see(keys)
        stored_keys = self._stored_keys.all_stored(keys)
        places = [BUCKETS + encode_key(key) for key in keys]
        self._hold(read_sorted(self._scratch.store, places), keys, stored_keys, places)

    def _hold(
        self,
        found: Iterable[tuple[int, bytes | None]],
        keys: Sequence[Hashable],
        stored_keys: Sequence[bytes],
        places: Sequence[bytes],
    ) -> None:
        """Load the buckets found at the ``places`` of ``keys``, identified by their index."""
        buckets, place_of, only = self._buckets, self._place_of, self._only()
        rows: dict[Hashable, Any] = {} if only is None else only.rows
        decode = None if only is None else only.layout.decode
        for index, data in found:
            key, stored, place = keys[index], stored_keys[index], places[index]
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
                    buckets[place] = self._load_bucket(place, key, bucket)
                elif decode is None or (one := bucket[0][1]) is None:
                    self._load_key(key, bucket[0])
                else:
                    rows[key] = decode(one)

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

    def _evict(self, used: Container[bytes]) -> None:
        """Write and evict the least recently touched buckets that are not in use."""
        evicted = self._oldest(used)
        written = self._written
        if written:
            self._write({at: bucket for at, bucket in evicted.items() if at not in written})
            written.difference_update(evicted)
        else:
            self._write(evicted)
        timed = self._tables.timed
        rows = [table.rows for table in self._tables if table.timed is None]
        place_of = self._place_of
        for bucket in evicted.values():
            for key, _ in bucket:
                del place_of[key]
                for of_table in rows:
                    of_table.pop(key, None)
                for table in timed:
                    table.forget(key)

    def _oldest(self, used: Container[bytes]) -> dict[bytes, Bucket]:
        """Remove and return buckets to evict until there is room, as far as possible."""
        buckets, in_use = self._buckets, self._in_use
        surplus = len(buckets) - self._limit + min(_AT_ONCE, self._limit // 8)
        evicted: dict[bytes, Bucket] = {}
        for _ in range(len(buckets)):
            if len(evicted) == surplus:
                break
            place, bucket = buckets.popitem(last=False)
            if place in in_use or place in used:
                buckets[place] = bucket
            else:
                evicted[place] = bucket
        return evicted

    def _write(self, buckets: Mapping[bytes, Bucket]) -> None:
        places = sorted(buckets)
        for start in range(0, len(places), _AT_ONCE):
            puts: list[tuple[bytes, bytes]] = []
            deletes: list[bytes] = []
            some = [(place, buckets[place]) for place in places[start : start + _AT_ONCE]]
            self._pack(some, puts, deletes)
            notes = self._index_entries(some) if self._tables.timed else ()
            self._scratch.store.write(chain(puts, notes), deletes)

    def _index_entries(
        self, buckets: Iterable[tuple[bytes, Bucket]]
    ) -> Iterator[tuple[bytes, bytes]]:
        for place, bucket in buckets:
            for key, _ in bucket:
                yield from self._expiries.entries(place, key)

    def _pack(
        self,
        buckets: Iterable[tuple[bytes, Bucket]],
        puts: list[tuple[bytes, bytes]],
        deletes: list[bytes],
    ) -> None:
        """Add the writes of ``buckets`` to ``puts``, and the places of empty ones to ``deletes``."""
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
