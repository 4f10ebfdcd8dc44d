"""Loading of a snapshot into the database, one key group at a time to limit memory."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Final

from aflow.errors import RestoreError, shown
from aflow.model.codecs import CodecError
from aflow.model.keys import encode_key
from aflow.state.disk.buckets import BUCKETS, Held, encode_bucket
from aflow.state.disk.expiry_index import index_entry
from aflow.state.key_kinds import KeyKinds
from aflow.state.keyed_entries import Keyed, KeyGroupCodec
from aflow.state.layouts import description
from aflow.state.snapshot import STATES, Entry
from aflow.state.tables import TOUCHED, Table, Tables
from aflow.state.timed_rows import decode_moment, encode_moment

#: Maximal number of keys whose rows differ from the snapshot; with more all keys count as changed.
MANY: Final = 1 << 20


def loaded_entries(
    keyed: Keyed, key_codec: KeyGroupCodec, tables: Tables, kinds: KeyKinds, changed: set[Hashable]
) -> Iterator[tuple[bytes, bytes]]:
    """Yield the entries for an empty database. Raises ``RestoreError`` as ``KeyedBackend.restore`` does.

    Adds keys to ``changed`` whose rows have expired, or have another last touch than in the snapshot, up to about
    ``MANY`` keys.
    """
    for group, names in keyed.items():
        one = {group: names}
        for own in key_codec.own(one):
            of_group = _Group(own, key_codec, tables)
            yield from of_group.puts(one)
            kinds.see(of_group.held)
            if len(changed) < MANY:
                changed |= of_group.changed


class _Group:
    """The state of one key group."""

    def __init__(
        self, names: Mapping[str, tuple[Entry, ...]], key_codec: KeyGroupCodec, tables: Tables
    ) -> None:
        self._key_codec: Final = key_codec
        self._stored: Final = tables.stored(names)
        self._described: Final = {name.decode(): data for name, data in names.get(STATES, ())}
        self._width: Final = len(tables)
        #: State by key; equal keys of different types are one key.
        self.held: Final[dict[Hashable, Held]] = {}
        #: Keys whose rows differ from the snapshot.
        self.changed: Final[set[Hashable]] = set()

    def puts(self, keyed: Keyed) -> Iterator[tuple[bytes, bytes]]:
        for table in self._stored:
            if table.timed is None:
                self._read(table, keyed)
            else:
                yield from self._read_timed(table, keyed)
        buckets: dict[bytes, list[Held]] = {}
        for key, held in self.held.items():
            buckets.setdefault(BUCKETS + encode_key(key), []).append(held)
        for place, bucket in buckets.items():
            yield place, encode_bucket(bucket)

    def _read(self, table: Table, keyed: Keyed) -> None:
        for key, data in self._key_codec.read(keyed, table.name):
            self._hold(table, key, self._current(table, key, data))

    def _read_timed(self, table: Table, keyed: Keyed) -> Iterator[tuple[bytes, bytes]]:
        """Read the rows of a state with a time to live, and yield their index entries."""
        timed, now = table.timed_rows, table.timed_rows.now()
        touched = self._key_codec.read(keyed, f"{TOUCHED}{table.name}")
        moments = {key: decode_moment(data) for key, data in touched}
        for key, data in self._key_codec.read(keyed, table.name):
            stored = moments.get(key)
            moment = now if stored is None else min(stored, now)
            if moment != stored or timed.is_expired(moment, now):
                self.changed.add(key)
            if not timed.is_expired(moment, now):
                self._hold(table, key, encode_moment(moment) + self._current(table, key, data))
                place = BUCKETS + encode_key(key)
                yield index_entry(table, place, moment)

    def _current(self, table: Table, key: Hashable, data: bytes) -> bytes:
        """Return ``data`` in the encoding of the declared type, by which the next capture describes all rows."""
        value = table.decoded(key, data)
        if self._described.get(table.name) == description(table.layout):
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
