"""Keyed entries of a snapshot: by the key group of their key, then by the name of a state.

They are made in two phases. In the first, in the task, values are encoded at once, since the next record may change
them: ``KeyedRows`` and ``Members`` hold the bytes with their keys, which never change. In the second, anywhere and any
time later, ``CapturedRows.encoded`` encodes the keys and computes their key groups, which is most of the work.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Final, Generic, TypeAlias, TypeVar, cast

from aflow.errors import CheckpointError, RestoreError, UnstorableState, shown
from aflow.model.codecs import Codec, CodecError, codec_for, decode_all
from aflow.model.key_groups import KeyGroupRange, key_group
from aflow.state.layouts import state_codec
from aflow.state.snapshot import STATES, Entry, OperatorSnapshot
from aflow.state.stored_entries import Entries, in_pieces

V = TypeVar("V")

Keyed: TypeAlias = Mapping[int, Mapping[str, Entries]]
"""``keyed[key group][state name]``, as in ``OperatorSnapshot``."""

Piece: TypeAlias = tuple[list[Hashable], list[bytes]]
"""Keys and the encoded values of some entries."""

KeyRow: TypeAlias = tuple[Hashable, bytes]
"""A key, which is not yet encoded, and an encoded value."""


def _nothing() -> Iterator[None]:
    return iter(())


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """State of many keys at one moment: values are encoded, keys are not."""

    rows: Mapping[str, Iterable[KeyRow]]
    """Rows by state name, which can be iterated repeatedly. A key may have several rows under one name."""
    keys: Collection[Hashable] | None = None
    """Changed keys, all of whose rows are in ``rows`` (a changed key without rows was removed); None: all keys."""
    described: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    """Description by state name, for ``STATES`` in each key group that has the name."""
    gather: Callable[[], Iterator[None]] = field(default=_nothing, compare=False)
    """Collects rows that are not collected yet, in pieces, as ``Captured.gather``; the first iteration does so too."""


@dataclass(frozen=True, slots=True)
class Members:
    """A set of entries: added and removed ones since the last capture; in a complete capture all entries."""

    added: Iterable[KeyRow]
    removed: Iterable[KeyRow] = ()


# Not slotted: a generic frozen dataclass with slots cannot be made on Python 3.11.
@dataclass(frozen=True)
class LazyRows(Generic[V]):
    """Rows of immutable values, which are encoded in the second phase."""

    items: Iterable[V]
    row: Callable[[V], KeyRow]

    def __iter__(self) -> Iterator[KeyRow]:
        return map(self.row, self.items)


@dataclass(frozen=True, slots=True)
class RowColumns:
    """Encoded rows in columns: as tuples, each of them would be one more object for the garbage collector."""

    keys: Sequence[Hashable]
    data: Sequence[bytes]

    def __iter__(self) -> Iterator[KeyRow]:
        return zip(self.keys, self.data, strict=True)

    @classmethod
    def of(cls, rows: Iterable[KeyRow]) -> RowColumns:
        """Return ``rows``."""
        keys: list[Hashable] = []
        encoded: list[bytes] = []
        for key, data in rows:
            keys.append(key)
            encoded.append(data)
        return cls(keys, encoded)


@dataclass(frozen=True, slots=True)
class CombinedRows:
    """The encoded rows of resident keys, and the rows of others in a database."""

    resident: Iterable[KeyRow]
    stored: Iterable[KeyRow]

    def __iter__(self) -> Iterator[KeyRow]:
        yield from self.resident
        yield from self.stored


#: Types, without subclasses, whose objects are immutable and can be encoded later.
_UNCHANGING: Final = frozenset({int, float, str, bool, bytes, type(None)})


def are_immutable(values: Collection[object]) -> bool:
    """Return True if all ``values`` are immutable plain values or tuples of them, without tuples of tuples."""
    types = set(map(type, values))
    if tuple in types:
        types.remove(tuple)
        parts = (cast("tuple[object, ...]", value) for value in values if isinstance(value, tuple))
        types.update(map(type, chain.from_iterable(parts)))
    return types <= _UNCHANGING


class KeyGroupCodec:
    """Codec of the keys of one operator in one subtask, which also knows key groups.

    It encodes keyed entries and selects those of the subtask: declared state and, under names that begin with ``@``,
    other data by key (timers, windows). ``key_type`` is the type of the keys; without it keys must be plain values.
    """

    def __init__(
        self,
        *,
        operator: str,
        key_type: type[Hashable] | None = None,
        key_groups: KeyGroupRange,
        key_group_count: int,
    ) -> None:
        self.operator = operator
        self._codec: Codec[Hashable] = state_codec(key_type)
        self.key_type: Final = key_type
        self.stored: Final = self._encoder(key_type)
        """Return the bytes of a key, the same after reading and storing it again. Raises ``CodecError``."""
        self._groups = key_groups
        self._count = key_group_count

    def read(self, keyed: Keyed, name: str) -> Iterator[tuple[Hashable, bytes]]:
        """Yield the entries of ``name`` in this subtask's key groups.

        Raises ``RestoreError`` for a key that cannot be decoded, or is decoded as a key of another key group.
        """
        for keys, stored in self.read_in_pieces(keyed, name):
            yield from zip(keys, stored, strict=True)

    def read_in_pieces(self, keyed: Keyed, name: str) -> Iterator[Piece]:
        """Yield the keys and the values of ``read``, some hundred at a time."""
        for group in self.own_groups(keyed):
            yield from group.read(name)

    def own(self, keyed: Keyed) -> Iterator[Mapping[str, Entries]]:
        """Yield the entries by name of each key group of this subtask."""
        return (names for group, names in keyed.items() if group in self._groups)

    def own_groups(self, keyed: Keyed) -> Iterator[GroupReader]:
        """Yield the readers of the key groups of this subtask."""
        for group, names in keyed.items():
            if group in self._groups:
                yield GroupReader(self, group, names)

    def wrong_type(self, key: Hashable) -> str | None:
        """Return why ``key`` is not of the declared type of keys, for a message; None if it is, or none is declared."""
        kind = self.key_type
        if kind is None:
            return None
        declared = f"its keys are of type {getattr(kind, '__name__', kind)}"
        try:
            found = self._codec.decode(self._codec.encode(key))
        except CodecError as exc:
            return f"{declared}: {exc}"
        return None if found == key else declared

    def check_place(self, key: Hashable, group: int) -> None:
        """Raise ``RestoreError`` if ``key`` is not of ``group``: it was stored as another type and would be lost."""
        try:
            found, _ = self.place(key)
        except CheckpointError as exc:
            raise RestoreError(
                f"step {self.operator!r} reads a stored key as one that cannot be stored: {exc}"
            ) from exc
        if found != group:
            raise RestoreError(
                f"step {self.operator!r} reads a stored key as {shown(key)}, which is of key group {found}, but it was "
                f"stored in key group {group}. Were keys of another type when they were stored? Use the former type, "
                f"or give the step another name to start without state"
            )

    def place(self, key: Hashable) -> _Place:
        """Return the key group and the bytes of ``key``. Raises ``CheckpointError`` if it has no encoding."""
        try:
            return self.group_of(key), self.stored(key)
        except CodecError as exc:
            raise UnstorableState(
                f"step {self.operator!r} cannot store its state for key {shown(key)}: {exc}"
            ) from exc

    def group_of(self, key: Hashable) -> int:
        """Return the key group of ``key``."""
        return key_group(key, self._count)

    def _encoder(self, key_type: type[Hashable] | None) -> Callable[[Hashable], bytes]:
        return self._stored_as_declared if _takes_ints_too(key_type) else self._codec.encode

    def _stored_as_declared(self, key: Hashable) -> bytes:
        """Return the bytes of 1.0 for the key 1 if it is read as 1.0: changes replace rows with equal bytes."""
        data = self._codec.encode(key)
        read = self._codec.decode(data)
        return self._codec.encode(read) if read == key else data

    def keys(self, stored: Sequence[bytes]) -> list[Hashable]:
        """Return the keys that ``place`` has encoded. Raises as ``key``."""
        try:
            return decode_all(self._codec, stored)
        except CodecError as exc:
            raise RestoreError(f"step {self.operator!r} cannot read a stored key: {exc}") from exc

    def key(self, data: bytes) -> Hashable:
        """Return the key that ``place`` has encoded. Raises ``RestoreError`` for other bytes."""
        try:
            return self._codec.decode(data)
        except CodecError as exc:
            raise RestoreError(f"step {self.operator!r} cannot read a stored key: {exc}") from exc


class GroupReader:
    """Reader of the entries of one key group, in which each key is one object under all names."""

    def __init__(self, key_codec: KeyGroupCodec, group: int, names: Mapping[str, Entries]) -> None:
        self.names: Final = names
        self._key_codec = key_codec
        self._group = group
        #: The keys that were read, by their bytes.
        self._known: dict[bytes, Hashable] = {}

    def read(self, name: str) -> Iterator[Piece]:
        """Yield the keys and values of ``name`` in pieces. Raises ``RestoreError`` as ``KeyGroupCodec.read`` does."""
        known, key_codec = self._known, self._key_codec
        first = True
        for entries in in_pieces(self.names.get(name, ())):
            if first:
                key_codec.check_place(key_codec.key(entries[0][0]), self._group)
                first = False
            stored = [key for key, _ in entries]
            new = [key for key in stored if key not in known]
            if new:
                known.update(zip(new, key_codec.keys(new), strict=True))
            yield [known[key] for key in stored], [data for _, data in entries]


def _takes_ints_too(key_type: type[Hashable] | None) -> bool:
    """Return True if keys of the type, or parts of them, may be ints that are read as another type."""
    schema = "" if key_type is None else str(getattr(codec_for(key_type), "schema", ""))
    return "float" in schema or "Decimal" in schema


@dataclass(frozen=True, slots=True)
class CapturedRows:
    """State of an operator with keyed state at one moment; see ``Captured``."""

    key_codec: KeyGroupCodec
    keyed: KeyedRows
    members: Mapping[str, Members] = field(default_factory=dict[str, Members])
    """Sets of the operator by name, complete if ``keyed`` is."""
    operator: Mapping[str, tuple[bytes, ...]] = field(default_factory=dict[str, tuple[bytes, ...]])
    broadcast: Mapping[str, tuple[bytes, ...]] = field(default_factory=dict[str, tuple[bytes, ...]])
    more: Callable[[], Iterator[None]] = field(default=_nothing, compare=False)
    """Does what else the operator has to do for a capture, in pieces."""

    def gather(self) -> Iterator[None]:
        return chain(self.keyed.gather(), self.more())

    def encoded(self) -> OperatorSnapshot:
        """Return the snapshot; each key is encoded once. Raises ``CheckpointError`` for a key without encoding."""
        places = _Places(self.key_codec.place)
        added = {name: entries.added for name, entries in self.members.items()}
        removed = {name: entries.removed for name, entries in self.members.items()}
        return OperatorSnapshot(
            _described(_filed(places, {**self.keyed.rows, **added}), self.keyed.described),
            self.operator,
            self.broadcast,
            _replaced(places, self.keyed.keys),
            _filed(places, removed),
            frozenset(self.members),
        )


_Place: TypeAlias = tuple[int, bytes]
"""A key group and an encoded key."""


class _Places:
    """Key group and bytes of each key, computed at the first request."""

    __slots__ = ("_find", "_known")

    def __init__(self, find: Callable[[Hashable], _Place]) -> None:
        self._find = find
        #: By key, with its type: equal keys of two types have different bytes.
        self._known: dict[Hashable, tuple[type, _Place]] = {}

    def of(self, key: Hashable) -> _Place:
        known = self._known.get(key)
        if known is not None and known[0] is type(key):
            return known[1]
        place = self._find(key)
        if known is None:
            self._known[key] = type(key), place
        return place


def _filed(places: _Places, named: Mapping[str, Iterable[KeyRow]]) -> Keyed:
    filed: dict[int, dict[str, list[Entry]]] = {}
    for name, entries in named.items():
        groups: dict[int, list[Entry]] = {}
        for key, data in entries:
            group, encoded = places.of(key)
            if group in groups:
                groups[group].append((encoded, data))
            else:
                groups[group] = [(encoded, data)]
        for group, filed_here in groups.items():
            filed.setdefault(group, {})[name] = filed_here
    return {
        group: {name: tuple(entries) for name, entries in names.items()}
        for group, names in filed.items()
    }


def _described(keyed: Keyed, described: Mapping[str, bytes]) -> Keyed:
    """Return ``keyed`` with the descriptions of the states of each group."""
    encoded = {name: (name.encode(), description) for name, description in described.items()}
    return {
        group: {**names, STATES: states}
        if (states := tuple(encoded[name] for name in names if name in encoded))
        else names
        for group, names in keyed.items()
    }


def _replaced(
    places: _Places, keys: Collection[Hashable] | None
) -> Mapping[int, frozenset[bytes]] | None:
    if keys is None:
        return None
    groups: dict[int, set[bytes]] = {}
    for key in keys:
        group, encoded = places.of(key)
        groups.setdefault(group, set()).add(encoded)
    return {group: frozenset(encoded) for group, encoded in groups.items()}


def merge_rows(parts: Iterable[KeyedRows]) -> KeyedRows:
    """Merge rows that have no common name and are either all complete or all changes."""
    parts = list(parts)
    rows: dict[str, Iterable[KeyRow]] = {}
    described: dict[str, bytes] = {}
    keys: set[Hashable] = set()
    complete = False
    for part in parts:
        rows.update(part.rows)
        described.update(part.described)
        complete = complete or part.keys is None
        keys.update(part.keys or ())
    return KeyedRows(rows, None if complete else keys, described, partial(_gather_all, parts))


def _gather_all(parts: Iterable[KeyedRows]) -> Iterator[None]:
    for part in parts:
        yield from part.gather()
