"""Loading of a snapshot into the database, one key group at a time to limit memory."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Final

from aflow.errors import RestoreError, shown
from aflow.model.codecs import CodecError
from aflow.model.keys import encode_key
from aflow.model.time import Timestamp
from aflow.state.disk.buckets import BUCKETS, Held, encode_bucket
from aflow.state.disk.expiry_index import index_entry
from aflow.state.keyed_entries import GroupReader, KeyGroupCodec
from aflow.state.snapshot import STATES
from aflow.state.stored_entries import Entry, batched
from aflow.state.tables import TOUCHED, Table, Tables
from aflow.state.timed_rows import decode_moment, encode_moment

#: Maximal number of keys whose rows differ from the snapshot; with more all keys count as changed.
MANY: Final = 1 << 20


class GroupLoader:
    """The state of one key group, as entries for an empty database."""

    def __init__(self, group: GroupReader, key_codec: KeyGroupCodec, tables: Tables) -> None:
        """Raises ``RestoreError`` as ``KeyedBackend.restore`` does."""
        self._group: Final = group
        self._key_codec: Final = key_codec
        self._stored: Final = tables.stored(group.names)
        self._described: Final = {name.decode(): data for name, data in group.names.get(STATES, ())}
        self._declared: Final = tables.described()
        self._width: Final = len(tables)
        #: State by key; equal keys of different types are one key.
        self.held: Final[dict[Hashable, Held]] = {}
        #: Keys whose rows have expired, or have another last touch than in the snapshot.
        self.changed: Final[set[Hashable]] = set()

    def entries(self) -> Iterator[list[Entry]]:
        """Yield the entries in pieces, of which some are empty. Raises ``RestoreError``."""
        for table in self._stored:
            yield from self._read(table) if table.timed is None else self._read_timed(table)
        buckets: dict[bytes, list[Held]] = {}
        for some in batched(self.held.items()):
            for key, held in some:
                buckets.setdefault(BUCKETS + encode_key(key), []).append(held)
            yield []
        for filled in batched(buckets.items()):
            yield [(place, encode_bucket(bucket)) for place, bucket in filled]

    def _read(self, table: Table) -> Iterator[list[Entry]]:
        for keys, stored in self._group.read(table.name):
            for key, data in zip(keys, stored, strict=True):
                self._hold(table, key, self._current(table, key, data))
            yield []

    def _read_timed(self, table: Table) -> Iterator[list[Entry]]:
        """Read the rows of a state with a time to live, and yield their index entries."""
        timed, now = table.timed_rows, table.timed_rows.now()
        moments: dict[Hashable, Timestamp] = {}
        for keys, stored in self._group.read(f"{TOUCHED}{table.name}"):
            moments.update(zip(keys, map(decode_moment, stored), strict=True))
            yield []
        for keys, stored in self._group.read(table.name):
            index: list[Entry] = []
            for key, data in zip(keys, stored, strict=True):
                touched = moments.get(key)
                moment = now if touched is None else min(touched, now)
                if moment != touched or timed.is_expired(moment, now):
                    self.changed.add(key)
                if not timed.is_expired(moment, now):
                    self._hold(table, key, encode_moment(moment) + self._current(table, key, data))
                    index.append(index_entry(table, BUCKETS + encode_key(key), moment))
            yield index

    def _current(self, table: Table, key: Hashable, data: bytes) -> bytes:
        """Return ``data`` in the encoding of the declared type, by which the next capture describes all rows."""
        value = table.decoded(key, data)
        if self._described.get(table.name) == self._declared[table.name]:
            return data
        try:
            return table.layout.encode(value)
        except CodecError as exc:
            raise RestoreError(
                f"{table.what} was decoded for key {shown(key)} and cannot be encoded again: {exc}"
            ) from exc

    def _hold(self, table: Table, key: Hashable, data: bytes) -> None:
        held = self.held.get(key)
        if held is None:
            held = self.held[key] = [self._key_codec.place(key)[1], *[None] * self._width]
        held[table.number + 1] = data
