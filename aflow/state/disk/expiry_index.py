"""Where in the database something may be out of date.

Theory. To keep what is stored in the order of its last touch would cost a write for each touch. In place of that, time
is cut into stretches, a 16th of the time to live each, and a bucket that is written is noted in the stretch in which it
goes out of date; noting it there again changes nothing. When a stretch is over its notes are taken, and their buckets
looked at: those touched meanwhile are noted in a later stretch, or will be, since they are resident and unwritten. So
each touch pays for one look at most.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Final

from aflow.model.time import MIN_TIMESTAMP, Timestamp
from aflow.state.disk.buckets import (
    Held,
    decode_bucket,
    due_at,
    due_key,
    due_until,
    encode_bucket,
    part,
)
from aflow.state.disk.scratch import Scratch
from aflow.state.tables import Table, Tables
from aflow.state.timed_rows import MOMENT_BYTES, TimedRows, decode_moment

#: A row goes from the database up to a 16th of its time to live after it went out of date.
_STRETCHES: Final = 16

#: Notes taken at once, which bounds how long a sweep takes.
_AT_ONCE: Final = 1024


class Due:
    """The notes, which name states by the numbers of their tables."""

    def __init__(self, tables: Tables, scratch: Scratch) -> None:
        self._tables = tables
        self._scratch = scratch
        #: Nothing is due before (epoch ms).
        self._next: Timestamp = MIN_TIMESTAMP

    def notes(self, place: bytes, key: Hashable) -> Iterator[tuple[bytes, bytes]]:
        """What to put into the database so that what ``key`` has at ``place`` is looked at in time."""
        for table in self._tables.timed:
            if key in table.rows:
                yield note(table, place, table.timed_rows.moment(key))

    def take(self) -> list[tuple[Table, list[bytes]]]:
        """The places to look at now, by table; not more than can be looked at without holding up the rest."""
        timed = self._tables.timed
        if not timed or not self._scratch.begun:
            return []
        now = max(table.timed_rows.now() for table in timed)
        if now < self._next:
            return []
        store = self._scratch.store
        notes = store.first(*due_until(now), _AT_ONCE)
        if len(notes) < _AT_ONCE:
            self._next = now + min(_width(table.timed_rows) for table in timed)
        store.write((), notes)
        places: dict[int, list[bytes]] = {}
        for state, place in map(due_at, notes):
            places.setdefault(state, []).append(place)
        return [(self._tables[state], found) for state, found in places.items()]

    def forget_stored(
        self, table: Table, places: Sequence[bytes], key_of: Callable[[bytes], Hashable]
    ) -> list[Hashable]:
        """Remove what is out of date at ``places``, none of which is resident, and say of which keys."""
        if not places:
            return []
        gone: list[Hashable] = []
        puts: list[tuple[bytes, bytes]] = []
        deletes: list[bytes] = []
        for place, data in zip(places, self._scratch.store.get(places), strict=True):
            bucket = [] if data is None else decode_bucket(data)
            found = [held for held in bucket if _out_of_date(table, held)]
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


def note(table: Table, place: bytes, moment: Timestamp) -> tuple[bytes, bytes]:
    """What to put into the database for a row at ``place`` that was last touched at ``moment``."""
    width = _width(table.timed_rows)
    stretch = (moment + table.timed_rows.ttl) // width + 1
    return due_key(stretch * width, table.number, place), b""


def _out_of_date(table: Table, held: Held) -> bool:
    data = part(held, table.number)
    if data is None:
        return False
    timed = table.timed_rows
    return timed.is_expired(decode_moment(data[:MOMENT_BYTES]), timed.now())


def _width(timed: TimedRows) -> int:
    return max(1, timed.ttl // _STRETCHES)
