"""State of a task between two epochs of a stream: stored rows by key, of which an epoch restores some.

Theory. Most epochs change few keys, and their records and timers concern few keys. So a task does not restore the
operator with the state of all keys, but keeps their rows as bytes and restores those of *selected* keys: the keys of
its records, and the keys that are *due*, with a timer, a window or another row that acts before the epoch ends,
although no record has its key. ``Operator.row_times`` says when a row acts; a step without that rule needs all keys.

After the epoch the operator is captured completely, and the capture is compared with the selected rows, byte by byte.
The differences are the changes of the epoch, in the form in which an operator itself captures changes. So a kept state
is at any time what a reader of the chain of parts would read, and may be brought up to date by the parts of other
tasks.

No object of the user is kept: no value, no function and no resource. Each epoch decodes values anew, as it does after
reading files.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from typing import Final, TypeAlias

from aflow.errors import InternalError
from aflow.model.time import MIN_TIMESTAMP, Timestamp
from aflow.operators.base import RowTimes
from aflow.state.key_kinds import KeyKinds
from aflow.state.keyed_entries import KeyGroupCodec
from aflow.state.snapshot import STATES, OperatorSnapshot
from aflow.state.stored_entries import Entries, Entry, batched

#: Bytes of a row beside those of its key and its value: two objects and an entry of a dict.
ROW_BYTES: Final = 150

#: Dead times in the heap of due keys for which it is never made anew.
_FEW: Final = 64
#: Maximum of times of a row that are looked up when the row is removed: a superfluous entry costs one restored key.
_LOOKED_UP: Final = 4

Values: TypeAlias = bytes | tuple[bytes, ...]
"""The stored values of a key under one name: one, nearly always, or several."""

Table: TypeAlias = dict[bytes, Values]
"""Stored values by stored key."""

SelectedKeys: TypeAlias = dict[int, set[bytes]]
"""Stored keys by key group."""


class KeptState:
    """The stored state of one operator, by key group, name and key; begins with a complete ``snapshot``."""

    def __init__(self, snapshot: OperatorSnapshot) -> None:
        if not snapshot.complete:
            raise InternalError("changes are no state of their own")
        self._tables: dict[int, dict[str, Table]] = {}
        #: Descriptions of the states of a key group, by their stored names.
        self._described: dict[int, dict[bytes, bytes]] = {}
        self._members = snapshot.members
        self._operator = snapshot.operator
        self._broadcast = snapshot.broadcast
        self._due = DueKeys()
        self.kinds: Final = KeyKinds()
        """The kinds of all keys, once the state is indexed."""
        self.is_indexed = False
        self.size = 0
        """Bytes that the state takes in memory, as estimated."""
        for group, names in snapshot.keyed.items():
            self._describe(group, names.get(STATES, ()))
            tables = self._tables.setdefault(group, {})
            for name, entries in names.items():
                if name != STATES:
                    table = tables[name] = _tabled(entries)
                    self.size += _table_size(table)

    def __len__(self) -> int:
        """Return the number of keys, or somewhat less if no name has all of them."""
        return sum(
            max((len(table) for table in tables.values()), default=0)
            for tables in self._tables.values()
        )

    def index(self, codec: KeyGroupCodec, times: RowTimes) -> Iterator[None]:
        """Observe the kinds of all keys, and find the keys that will be due, in pieces; once.

        Raises ``RestoreError`` for keys that ``codec`` cannot decode, and the errors of ``times``.
        """
        self.is_indexed = True
        for group, tables in self._tables.items():
            for name, table in tables.items():
                for keys in batched(table):
                    self.kinds.see(codec.keys(keys))
                    if name in times:
                        self.expect({group: set(keys)}, times, MIN_TIMESTAMP)
                    yield

    def take_due(self, until: Timestamp) -> SelectedKeys:
        """Remove and return the keys with a row that acts up to the watermark ``until`` (epoch ms).

        They are due again after a call of ``expect``.
        """
        return self._due.take(until)

    def expect(
        self, keys: Mapping[int, Collection[bytes]], times: RowTimes, after: Timestamp
    ) -> None:
        """Find out when ``keys`` are due again, after the watermark ``after`` (epoch ms).

        A row whose times have passed, and that is there nevertheless, is due at once.
        """
        add = self._due.add
        for group, some in keys.items():
            tables = self._tables.get(group, {})
            for name in times.keys() & tables.keys():
                table, times_of = tables[name], times[name]
                for key in some:
                    for value in _several(table.get(key, ())):
                        if moments := times_of(value):
                            place = bisect_right(moments, after)
                            add(moments[place if place < len(moments) else 0], group, key)

    def complete(self) -> OperatorSnapshot:
        """Return all state."""
        return OperatorSnapshot(
            {
                group: self._with_states(
                    group, {name: _entries(table) for name, table in tables.items() if table}
                )
                for group, tables in self._tables.items()
                if any(tables.values())
            },
            self._operator,
            self._broadcast,
            members=self._members,
        )

    def selected(self, keys: SelectedKeys) -> OperatorSnapshot:
        """Return the state of ``keys`` only, with the state that belongs to no key."""
        keyed: dict[int, Mapping[str, Entries]] = {}
        for group, some in keys.items():
            names: dict[str, Entries] = {}
            for name, table in self._tables.get(group, {}).items():
                found = [
                    (key, value) for key in some if key in table for value in _several(table[key])
                ]
                if found:
                    names[name] = found
            if names:
                keyed[group] = self._with_states(group, names)
        return OperatorSnapshot(keyed, self._operator, self._broadcast, members=self._members)

    def changes(self, keys: SelectedKeys, captured: OperatorSnapshot) -> OperatorSnapshot | None:
        """Return the differences of ``captured``, the whole state of ``keys``, from this state; None if there are none.

        Raises ``InternalError`` for captured keys that are not in ``keys``: their other rows were not restored.
        """
        found = _Changes()
        members = self._members | captured.members
        for group in keys.keys() | captured.keyed.keys():
            found.compare(
                group, keys.get(group, set()), self._tables.get(group, {}), captured, members
            )
        if found.any or (captured.operator, captured.broadcast) != (
            self._operator,
            self._broadcast,
        ):
            return OperatorSnapshot(
                found.keyed,
                captured.operator,
                captured.broadcast,
                found.replaced,
                found.removed,
                members,
            )
        return None

    def apply(self, changes: OperatorSnapshot, times: RowTimes) -> SelectedKeys:
        """Apply the changes of an epoch, and return the keys that may have changed; call ``expect`` with them."""
        if changes.replaced is None:
            raise InternalError("a complete snapshot replaces a state")
        changed: SelectedKeys = {}
        for group, keys in changes.replaced.items():
            changed.setdefault(group, set()).update(keys)
            for name, table in self._tables.get(group, {}).items():
                if name not in self._members:
                    for key in keys & table.keys():
                        self._drop(group, name, key, table.pop(key), times)
        for group, names in changes.removed.items():
            for name, entries in names.items():
                for key, value in entries:
                    changed.setdefault(group, set()).add(key)
                    self._remove(group, name, key, value, times)
        for group, names in changes.keyed.items():
            self._describe(group, names.get(STATES, ()))
            for name, entries in names.items():
                if name != STATES:
                    changed.setdefault(group, set()).update(key for key, _ in entries)
                    self._add(group, name, entries, unique=name in changes.members)
        self._members |= changes.members
        self._operator, self._broadcast = changes.operator, changes.broadcast
        return changed

    def _add(self, group: int, name: str, entries: Entries, *, unique: bool) -> None:
        """Add entries; with ``unique`` only those that are not there."""
        table = self._tables.setdefault(group, {}).setdefault(name, {})
        for key, value in entries:
            known = _several(table.get(key, ()))
            if not unique or value not in known:
                table[key] = (*known, value) if known else value
                self.size += _row_size((key, value))

    def _remove(self, group: int, name: str, key: bytes, value: bytes, times: RowTimes) -> None:
        """Remove a member of a set."""
        table = self._tables.get(group, {}).get(name, {})
        known = _several(table.get(key, ()))
        if value not in known:
            return
        left = tuple(one for one in known if one != value)
        if left:
            table[key] = left if len(left) > 1 else left[0]
        else:
            del table[key]
        self._drop(group, name, key, value, times)

    def _drop(self, group: int, name: str, key: bytes, values: Values, times: RowTimes) -> None:
        """Account for rows that were removed."""
        times_of = times.get(name)
        for value in _several(values):
            self.size -= _row_size((key, value))
            if times_of is not None and len(moments := times_of(value)) <= _LOOKED_UP:
                for at in moments:
                    self._due.discard(at, group, key)

    def _describe(self, group: int, states: Entries) -> None:
        if states:
            self._described.setdefault(group, {}).update(states)

    def _with_states(self, group: int, names: Mapping[str, Entries]) -> Mapping[str, Entries]:
        described = self._described.get(group)
        return {**names, STATES: tuple(described.items())} if described else names


class _Changes:
    """Differences of captured state from kept state."""

    def __init__(self) -> None:
        self.keyed: dict[int, Mapping[str, Entries]] = {}
        self.replaced: dict[int, frozenset[bytes]] = {}
        self.removed: dict[int, Mapping[str, Entries]] = {}

    @property
    def any(self) -> bool:
        """True if there are differences."""
        return bool(self.keyed or self.replaced or self.removed)

    def compare(
        self,
        group: int,
        keys: set[bytes],
        before: Mapping[str, Table],
        captured: OperatorSnapshot,
        members: frozenset[str],
    ) -> None:
        """Add the differences of a key group. Raises ``InternalError`` for captured keys that are not in ``keys``."""
        entries = captured.keyed.get(group, {})
        after = {name: _tabled(some) for name, some in entries.items() if name != STATES}
        names: dict[str, Entries] = {}
        removed: dict[str, Entries] = {}
        replaced: set[bytes] = set()
        for name in before.keys() | after.keys():
            old, new = before.get(name, {}), after.get(name, {})
            if not new.keys() <= keys:
                raise InternalError(
                    f"key group {group} has state {name!r} of keys that were not restored"
                )
            if name in members:
                if added := _missing(new, new, old):
                    names[name] = added
                if gone := _missing(keys & old.keys(), old, new):
                    removed[name] = gone
            else:
                replaced.update(key for key in keys if old.get(key) != new.get(key))
        for name, new in after.items():
            if name not in members and (some := replaced & new.keys()):
                names[name] = [(key, value) for key in some for value in _several(new[key])]
        if names:
            self.keyed[group] = {**names, STATES: entries[STATES]} if STATES in entries else names
        if replaced:
            self.replaced[group] = frozenset(replaced)
        if removed:
            self.removed[group] = removed


class DueKeys:
    """Keys by the time at which they are due."""

    def __init__(self) -> None:
        self._keys: dict[Timestamp, SelectedKeys] = {}
        #: A heap of all times in ``_keys``, and of dead ones.
        self._times: list[Timestamp] = []

    def add(self, at: Timestamp, group: int, key: bytes) -> None:
        """Add a key that is due at ``at`` (epoch ms)."""
        groups = self._keys.get(at)
        if groups is None:
            groups = self._keys[at] = {}
            heappush(self._times, at)
        groups.setdefault(group, set()).add(key)

    def discard(self, at: Timestamp, group: int, key: bytes) -> None:
        """Remove a key, if it is there."""
        groups = self._keys.get(at)
        if groups is None or group not in groups:
            return
        groups[group].discard(key)
        if not groups[group]:
            del groups[group]
        if not groups:
            del self._keys[at]
            if len(self._times) > 2 * len(self._keys) + _FEW:
                self._times = list(self._keys)
                heapify(self._times)

    def take(self, until: Timestamp) -> SelectedKeys:
        """Remove and return all keys that are due at ``until`` or earlier."""
        found: SelectedKeys = {}
        while self._times and self._times[0] <= until:
            for group, keys in self._keys.pop(heappop(self._times), {}).items():
                found.setdefault(group, set()).update(keys)
        return found


def _tabled(entries: Entries) -> Table:
    table: Table = dict(entries)
    if len(table) == len(entries):
        return table
    several: dict[bytes, list[bytes]] = {}
    for key, value in entries:
        several.setdefault(key, []).append(value)
    return {key: tuple(values) if len(values) > 1 else values[0] for key, values in several.items()}


def _several(values: Values) -> Sequence[bytes]:
    return (values,) if isinstance(values, bytes) else values


def _entries(table: Table) -> list[Entry]:
    return [(key, value) for key, values in table.items() for value in _several(values)]


def _missing(keys: Iterable[bytes], table: Table, other: Table) -> list[Entry]:
    """Return the entries of ``keys`` in ``table`` that ``other`` does not have."""
    found: list[Entry] = []
    for key in keys:
        known = _several(other.get(key, ()))
        found += [(key, value) for value in _several(table[key]) if value not in known]
    return found


def _table_size(table: Table) -> int:
    values = table.values()
    if not set(map(type, values)) <= {bytes}:
        return sum(map(_row_size, table.items()))
    return sum(map(len, table)) + sum(map(len, values)) + ROW_BYTES * len(table)


def _row_size(row: tuple[bytes, Values]) -> int:
    key, values = row
    if isinstance(values, bytes):
        return len(key) + len(values) + ROW_BYTES
    return sum(len(key) + len(value) + ROW_BYTES for value in values)
