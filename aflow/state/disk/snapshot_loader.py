"""A snapshot on its way into the database: key group by key group, so that no more than one is decoded at a time."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from typing import Final

from aflow.errors import RestoreError, shown
from aflow.model.codecs import CodecError
from aflow.model.keys import encode_key
from aflow.state.disk.buckets import BUCKETS, Held, encode_bucket
from aflow.state.disk.expiry_index import note
from aflow.state.key_kinds import KeyKinds
from aflow.state.keyed_entries import Keyed, KeyGroupCodec
from aflow.state.layouts import description
from aflow.state.snapshot import STATES, Entry
from aflow.state.tables import TOUCHED, Table, Tables
from aflow.state.timed_rows import decode_moment, encode_moment

#: So many keys whose rows are not what is stored are not told one by one.
MANY: Final = 1 << 20


def restored(
    keyed: Keyed, key_codec: KeyGroupCodec, tables: Tables, kinds: KeyKinds, unlike: set[Hashable]
) -> Iterator[tuple[bytes, bytes]]:
    """What to put into an empty database. Raises ``RestoreError`` as ``KeyedBackend.restore`` does.

    ``unlike`` gets the keys whose rows are gone meanwhile, or were touched at another moment than is stored; once there
    are ``MANY``, no more of them.
    """
    for group, names in keyed.items():
        one = {group: names}
        for own in key_codec.own(one):
            of_group = _Group(own, key_codec, tables)
            yield from of_group.puts(one)
            kinds.see(of_group.held)
            if len(unlike) < MANY:
                unlike |= of_group.unlike


class _Group:
    """The keys of one key group."""

    def __init__(
        self, names: Mapping[str, tuple[Entry, ...]], key_codec: KeyGroupCodec, tables: Tables
    ) -> None:
        self._key_codec: Final = key_codec
        self._stored: Final = tables.stored(names)
        self._described: Final = {name.decode(): data for name, data in names.get(STATES, ())}
        self._width: Final = len(tables)
        #: Equal keys are one here, however each state has stored them.
        self.held: Final[dict[Hashable, Held]] = {}
        #: Those whose rows are not what is stored.
        self.unlike: Final[set[Hashable]] = set()

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
        """Gives the notes that make sweeps look at what was read."""
        timed, now = table.timed_rows, table.timed_rows.now()
        touched = self._key_codec.read(keyed, f"{TOUCHED}{table.name}")
        moments = {key: decode_moment(data) for key, data in touched}
        for key, data in self._key_codec.read(keyed, table.name):
            stored = moments.get(key)
            moment = now if stored is None else min(stored, now)
            if moment != stored or timed.is_expired(moment, now):
                self.unlike.add(key)
            if not timed.is_expired(moment, now):
                self._hold(table, key, encode_moment(moment) + self._current(table, key, data))
                place = BUCKETS + encode_key(key)
                yield note(table, place, moment)

    def _current(self, table: Table, key: Hashable, data: bytes) -> bytes:
        """``data`` as the declared type has it: the next capture says of all rows that they are so."""
        value = table.decoded(key, data)
        if self._described.get(table.name) == description(table.layout):
            return data
        try:
            return table.layout.encode(value)
        except CodecError as exc:
            raise RestoreError(
                f"{table.what} was read for key {shown(key)} and cannot be stored again: {exc}"
            ) from exc

    def _hold(self, table: Table, key: Hashable, data: bytes) -> None:
        held = self.held.get(key)
        if held is None:
            held = self.held[key] = [self._key_codec.place(key)[1], *[None] * self._width]
        held[table.number + 1] = data
