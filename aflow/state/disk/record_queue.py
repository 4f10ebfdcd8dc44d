"""Records in the order of their timestamps, for more records than fit in memory.

Theory. A record is written once, under its timestamp and a number, so records with equal timestamps are in the order of
their numbers. It is read once, when the watermark has reached it, together with those next to it. Writes are collected
and written many at a time: a record that is removed before that is never written.

    <queue, 1 byte> <timestamp, 8 bytes> <number, 8 bytes>     data
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from aflow.model.time import MAX_TIMESTAMP, Timestamp
from aflow.state.disk.scratch import Scratch
from aflow.state.disk.store import View

#: Records that are read, and written, at once.
_AT_ONCE: Final = 1024

_PLACE: Final = struct.Struct(">cQQ")
#: Added to timestamps, so that those before 1970 are in order too.
_OFFSET: Final = 2**63

Queued = tuple[Timestamp, bytes]
"""The timestamp of a record, and its data."""


class RecordQueue:
    """Records of one kind, whose keys in the database begin with ``prefix``, one byte."""

    def __init__(self, scratch: Scratch, prefix: bytes) -> None:
        self._scratch = scratch
        self._prefix: Final = prefix
        #: Records to write, and None for those to delete, by their keys in the database.
        self._unwritten: dict[bytes, bytes | None] = {}
        #: No record is earlier; None: there is none.
        self._earliest: Timestamp | None = None
        #: No record in the database is earlier. A database is slow to skip the deleted records before it.
        self._begin: bytes = prefix

    @property
    def earliest(self) -> Timestamp | None:
        """A timestamp (epoch ms) that no record precedes; None without records."""
        return self._earliest

    def add(self, at: Timestamp, number: int, data: bytes) -> None:
        """Add a record with a number that no other one of its timestamp has."""
        place = _PLACE.pack(self._prefix, at + _OFFSET, number)
        self._unwritten[place] = data
        self._begin = min(self._begin, place)
        if self._earliest is None or at < self._earliest:
            self._earliest = at
        if len(self._unwritten) >= _AT_ONCE:
            self._flush()

    def discard(self, at: Timestamp, number: int) -> None:
        """Remove a record that was added."""
        place = _PLACE.pack(self._prefix, at + _OFFSET, number)
        if self._unwritten.pop(place, None) is None:
            self._unwritten[place] = None
            if len(self._unwritten) >= _AT_ONCE:
                self._flush()

    def due(self, until: Timestamp) -> Iterator[list[Queued]]:
        """Remove and yield the records up to timestamp ``until``, in order, some at a time.

        No record may be added meanwhile.
        """
        if self._earliest is None or self._earliest > until:
            return
        self._flush()
        stop = _end(self._prefix)
        while found := self._scratch.store.page(self._begin, stop, _AT_ONCE):
            due = [(_time_of(place), data) for place, data in found if _time_of(place) <= until]
            self._scratch.store.write((), [place for place, _ in found[: len(due)]])
            if due:
                yield due
            if len(due) < len(found):
                self._begin = found[len(due)][0]
                self._earliest = _time_of(self._begin)
                return
            self._begin = found[-1][0]
        self._earliest = None
        self._begin = _PLACE.pack(self._prefix, min(until, MAX_TIMESTAMP) + _OFFSET, 0)

    def captured(self) -> CapturedQueue:
        """Return all records as they are now, to be read later."""
        if self._earliest is None:
            return CapturedQueue(None, self._prefix)
        self._flush()
        return CapturedQueue(self._scratch.store.view(), self._prefix)

    def _flush(self) -> None:
        if self._unwritten:
            changes, self._unwritten = self._unwritten, {}
            self._scratch.store.write(
                [(place, data) for place, data in changes.items() if data is not None],
                [place for place, data in changes.items() if data is None],
            )


@dataclass(frozen=True, slots=True)
class CapturedQueue:
    """The records of a queue in ``view``; None if there are none."""

    view: View | None
    prefix: bytes

    def __iter__(self) -> Iterator[Queued]:
        if self.view is not None:
            for place, data in self.view.items(self.prefix, _end(self.prefix)):
                yield _time_of(place), data


def _end(prefix: bytes) -> bytes:
    return bytes([prefix[0] + 1])


def _time_of(place: bytes) -> Timestamp:
    time: int = _PLACE.unpack_from(place)[1]
    return time - _OFFSET
