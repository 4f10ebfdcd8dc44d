"""Rows of a capture that are read from the database when they are asked for, as they were at the capture."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from aflow.model.time import Timestamp
from aflow.state.disk.buckets import BEHIND_BUCKETS, BUCKETS, Held, decode_bucket, part
from aflow.state.disk.store import Reader, View
from aflow.state.keyed_entries import KeyRow
from aflow.state.tables import TOUCHED, Table
from aflow.state.timed_rows import MOMENT_BYTES, decode_moment

#: Buckets asked for at once.
_AT_ONCE = 1024

Cut = Callable[[bytes], bytes | None]
"""Of what a key has of a state, what belongs under a name of the snapshot; None if it is out of date."""


@dataclass(frozen=True, slots=True)
class AllBuckets:
    """All keys that are stored."""

    view: View

    def __iter__(self) -> Iterator[Held]:
        for _, data in self.view.items(BUCKETS, BEHIND_BUCKETS):
            yield from decode_bucket(data)


@dataclass(frozen=True, slots=True)
class SomeBuckets:
    """Those keys of the buckets at ``places`` that are in ``keys``, by how they are stored."""

    reader: Reader
    places: Sequence[bytes]
    keys: frozenset[Hashable]
    key_of: Callable[[bytes], Hashable]

    def __iter__(self) -> Iterator[Held]:
        places = iter(self.places)
        while some := list(islice(places, _AT_ONCE)):
            for data in self.reader.get(some):
                if data is not None:
                    yield from filter(self._meant, decode_bucket(data))

    def _meant(self, held: Held) -> bool:
        return self.key_of(held[0] or b"") in self.keys


@dataclass(frozen=True, slots=True)
class StoredRows:
    """The rows that ``buckets`` have of one state, under one name of a snapshot."""

    buckets: AllBuckets | SomeBuckets
    state: int
    key_of: Callable[[bytes], Hashable]
    cut: Cut | None = None

    def __iter__(self) -> Iterator[KeyRow]:
        state, key_of, cut = self.state, self.key_of, self.cut
        for held in self.buckets:
            data = part(held, state)
            if data is not None and cut is not None:
                data = cut(data)
            if data is not None:
                yield key_of(held[0] or b""), data


@dataclass(frozen=True, slots=True)
class Both:
    """The rows of resident keys, which are bytes already, and those of others."""

    resident: Iterable[KeyRow]
    stored: StoredRows

    def __iter__(self) -> Iterator[KeyRow]:
        yield from self.resident
        yield from self.stored


def stored_rows(
    table: Table, buckets: AllBuckets | SomeBuckets, key_of: Callable[[bytes], Hashable]
) -> dict[str, StoredRows]:
    """The rows of a state under the names that they have in a snapshot, without what is out of date now."""
    number = table.number
    if table.timed is None:
        return {table.name: StoredRows(buckets, number, key_of)}
    now, ttl = table.timed.now(), table.timed.ttl
    values, moments = alive(now, ttl, moments=False), alive(now, ttl, moments=True)
    return {
        table.name: StoredRows(buckets, number, key_of, values),
        f"{TOUCHED}{table.name}": StoredRows(buckets, number, key_of, moments),
    }


def alive(now: Timestamp, ttl: int, *, moments: bool) -> Cut:
    """The moments, or else the values, of rows that are not out of date at ``now``."""

    def cut(data: bytes) -> bytes | None:
        moment = data[:MOMENT_BYTES]
        if now - decode_moment(moment) >= ttl:
            return None
        return moment if moments else data[MOMENT_BYTES:]

    return cut
