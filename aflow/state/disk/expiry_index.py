"""The index of buckets in the database whose rows may expire.

Theory. An index of rows by their last touch would cost a write for each touch. Instead time is divided into intervals
of a 16th of the time to live, and a bucket that is written is added to the interval in which its row expires. Adding it
again changes nothing. After the end of an interval its buckets are examined. Buckets that were touched meanwhile are in
the index of a later interval, or will be, since they are resident and unwritten. So a touch costs one examination at
most.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Final

from aflow.model.time import MIN_TIMESTAMP, Timestamp
from aflow.state.disk.buckets import (
    Held,
    decode_bucket,
    encode_bucket,
    expiry_key,
    expiry_range,
    expiry_target,
    part,
)
from aflow.state.disk.scratch import Scratch
from aflow.state.tables import Table, Tables
from aflow.state.timed_rows import MOMENT_BYTES, TimedRows, decode_moment

#: A row is removed from the database up to a 16th of its time to live after it expires.
_INTERVALS: Final = 16

#: Maximal number of index entries in one sweep, which bounds its duration.
_AT_ONCE: Final = 1024


class ExpiryIndex:
    """Index entries of one backend; they identify states by the numbers of their tables."""

    def __init__(self, tables: Tables, scratch: Scratch) -> None:
        self._tables = tables
        self._scratch = scratch
        #: Earliest time of the next entry (epoch ms).
        self._next: Timestamp = MIN_TIMESTAMP

    def entries(self, place: bytes, key: Hashable) -> Iterator[tuple[bytes, bytes]]:
        """Yield the index entries for the rows of ``key``, whose bucket is at ``place``."""
        for table in self._tables.timed:
            if key in table.rows:
                yield index_entry(table, place, table.timed_rows.moment(key))

    def take(self) -> list[tuple[Table, list[bytes]]]:
        """Remove the due entries, up to a limit, and return their places by table."""
        timed = self._tables.timed
        if not timed or not self._scratch.exists:
            return []
        now = max(table.timed_rows.now() for table in timed)
        if now < self._next:
            return []
        store = self._scratch.store
        found_keys = store.first(*expiry_range(now), _AT_ONCE)
        if len(found_keys) < _AT_ONCE:
            self._next = now + min(_width(table.timed_rows) for table in timed)
        store.write((), found_keys)
        places: dict[int, list[bytes]] = {}
        for state, place in map(expiry_target, found_keys):
            places.setdefault(state, []).append(place)
        return [(self._tables[state], found) for state, found in places.items()]

    def forget_stored(
        self, table: Table, places: Sequence[bytes], key_of: Callable[[bytes], Hashable]
    ) -> list[Hashable]:
        """Remove expired rows at ``places``, none of which is resident, and return their keys."""
        if not places:
            return []
        gone: list[Hashable] = []
        puts: list[tuple[bytes, bytes]] = []
        deletes: list[bytes] = []
        for place, data in zip(places, self._scratch.store.get(places), strict=True):
            bucket = [] if data is None else decode_bucket(data)
            found = [held for held in bucket if _is_expired(table, held)]
            for held in found:
                gone.append(key_of(held[0] or b""))
                held[table.number + 1] = None
            left = [held for held in bucket if any(one is not None for one in held[1:])]
            if found and left:
                puts.append((place, encode_bucket(left)))
            elif found:
                deletes.append(place)
        self._scratch.store.write(puts, deletes)
        return gone


def index_entry(table: Table, place: bytes, moment: Timestamp) -> tuple[bytes, bytes]:
    """Return the index entry of a row at ``place`` that was last touched at ``moment``."""
    width = _width(table.timed_rows)
    interval = (moment + table.timed_rows.ttl) // width + 1
    return expiry_key(interval * width, table.number, place), b""


def _is_expired(table: Table, held: Held) -> bool:
    data = part(held, table.number)
    if data is None:
        return False
    timed = table.timed_rows
    return timed.is_expired(decode_moment(data[:MOMENT_BYTES]), timed.now())


def _width(timed: TimedRows) -> int:
    return max(1, timed.ttl // _INTERVALS)
