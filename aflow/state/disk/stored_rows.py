"""Rows of a capture that are read from the database on iteration, as they were at the capture."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import islice
from typing import TypeAlias

from aflow.model.time import Timestamp
from aflow.state.disk.buckets import BUCKETS, BUCKETS_END, Held, decode_bucket, part
from aflow.state.disk.store import StoreReader, View
from aflow.state.gradual_capture import ObservedRows
from aflow.state.keyed_entries import KeyRow
from aflow.state.tables import TOUCHED, Table
from aflow.state.timed_rows import MOMENT_BYTES, decode_moment

#: Number of buckets in one read.
_AT_ONCE = 1024

RowPart = Callable[[bytes], bytes | None]
"""Function for the part of a row that a snapshot has under one name; None if the row is expired."""


Buckets: TypeAlias = "AllBuckets | SomeBuckets | AwayBuckets"


@dataclass(frozen=True, slots=True)
class AllBuckets:
    """The state of all stored keys."""

    view: View

    def __iter__(self) -> Iterator[Held]:
        for _, data in self.view.items(BUCKETS, BUCKETS_END):
            yield from decode_bucket(data)


@dataclass(frozen=True, slots=True)
class SomeBuckets:
    """The state of ``keys``, which are in the buckets at ``places``."""

    reader: StoreReader
    places: Sequence[bytes]
    keys: Set[Hashable]
    key_of: Callable[[bytes], Hashable]

    def __iter__(self) -> Iterator[Held]:
        places = iter(self.places)
        while some := list(islice(places, _AT_ONCE)):
            for data in self.reader.get(some):
                if data is not None:
                    yield from filter(self._is_wanted, decode_bucket(data))

    def _is_wanted(self, held: Held) -> bool:
        return self.key_of(held[0] or b"") in self.keys


@dataclass(frozen=True, slots=True)
class AwayBuckets:
    """The state of the keys, or of all keys, whose buckets are not at ``resident`` places."""

    view: View
    resident: Sequence[bytes]
    keys: Set[Hashable] | None
    place_of: Callable[[Hashable], bytes]
    key_of: Callable[[bytes], Hashable]

    def __iter__(self) -> Iterator[Held]:
        resident = frozenset(self.resident)
        if self.keys is None:
            for place, data in self.view.items(BUCKETS, BUCKETS_END):
                if place not in resident:
                    yield from decode_bucket(data)
            return
        places = dict.fromkeys(map(self.place_of, self.keys))
        away = [place for place in places if place not in resident]
        yield from SomeBuckets(self.view, away, self.keys, self.key_of)


@dataclass(frozen=True, slots=True)
class StoredRows(ObservedRows):
    """The rows of one state in ``buckets``, under one name of a snapshot."""

    buckets: Buckets
    state: int
    key_of: Callable[[bytes], Hashable]
    row_part: RowPart | None = None

    def __iter__(self) -> Iterator[KeyRow]:
        state, key_of, row_part = self.state, self.key_of, self.row_part
        for held in self.buckets:
            data = part(held, state)
            if data is not None and row_part is not None:
                data = row_part(data)
            if data is not None:
                yield key_of(held[0] or b""), data


def stored_rows(
    table: Table, buckets: Buckets, key_of: Callable[[bytes], Hashable]
) -> dict[str, StoredRows]:
    """Return the rows of a state by their names in a snapshot, without those that are expired now."""
    number = table.number
    if table.timed is None:
        return {table.name: StoredRows(buckets, number, key_of)}
    now, ttl = table.timed.now(), table.timed.ttl
    values = unexpired_part(now, ttl, moments=False)
    moments = unexpired_part(now, ttl, moments=True)
    return {
        table.name: StoredRows(buckets, number, key_of, values),
        f"{TOUCHED}{table.name}": StoredRows(buckets, number, key_of, moments),
    }


def unexpired_part(now: Timestamp, ttl: int, *, moments: bool) -> RowPart:
    """Return the function for the moments, or for the values, of rows that are not expired at ``now``."""

    def row_part(data: bytes) -> bytes | None:
        moment = data[:MOMENT_BYTES]
        if now - decode_moment(moment) >= ttl:
            return None
        return moment if moments else data[MOMENT_BYTES:]

    return row_part
