"""Snapshots: the state of one operator as data, in bytes that do not depend on the process that wrote them.

Keyed state is grouped by key group, so that subtasks of another parallelism can select their groups. Operator state is
a list of parts for each name: a restore gives all parts to each subtask, and the operator selects. Broadcast state is
the same in all subtasks: each stores a copy, and a restore gives a copy to each subtask.

A snapshot is *complete*, or holds the *changes* since an earlier one. Then it holds all rows, under all names, of the
keys in ``replaced``; such a key without rows was removed. Names in ``members`` are sets instead (timers): ``keyed`` has
their added entries and ``removed`` their removed ones. Operator and broadcast state are always complete.

A snapshot is taken in three steps. ``Operator.capture`` captures the state in the task, at once; later changes are not
visible in it. ``Captured.gather`` collects rows that the capture only refers to, in pieces on the event loop.
``Captured.encoded`` encodes all of it, later and anywhere (in a worker thread).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from aflow.state.stored_entries import Entries, StoredEntries, joined
from aflow.state.stored_entries import Entry as Entry

#: Name of the descriptions of all declared states, in each key group: kind, codecs and schema by name of the state.
STATES: Final = "@states"


@dataclass(frozen=True, slots=True)
class OperatorSnapshot:
    """State of an operator: ``keyed[key group][state name]`` entries, ``operator[state name]`` parts and
    ``broadcast[state name]`` copies, each of which is complete.
    """

    keyed: Mapping[int, Mapping[str, Entries]] = field(
        default_factory=dict[int, Mapping[str, Entries]]
    )
    operator: Mapping[str, tuple[bytes, ...]] = field(default_factory=dict[str, tuple[bytes, ...]])
    broadcast: Mapping[str, tuple[bytes, ...]] = field(default_factory=dict[str, tuple[bytes, ...]])
    replaced: Mapping[int, frozenset[bytes]] | None = None
    """Encoded keys all of whose rows are here, by key group; None: the snapshot is complete."""
    removed: Mapping[int, Mapping[str, Entries]] = field(
        default_factory=dict[int, Mapping[str, Entries]]
    )
    """Removed entries of the names that are sets."""
    members: frozenset[str] = frozenset()
    """Names in ``keyed`` whose entries are members of a set."""

    @property
    def complete(self) -> bool:
        """True unless the snapshot holds changes only."""
        return self.replaced is None

    def restricted_to(self, groups: Container[int]) -> OperatorSnapshot:
        """Return this snapshot with the keyed state of ``groups`` only."""
        keyed = {group: names for group, names in self.keyed.items() if group in groups}
        removed = {group: names for group, names in self.removed.items() if group in groups}
        replaced = self.replaced
        if replaced is not None:
            replaced = {group: keys for group, keys in replaced.items() if group in groups}
        return OperatorSnapshot(
            keyed, self.operator, self.broadcast, replaced, removed, self.members
        )


class Captured(Protocol):
    """State of an operator at one moment, to be encoded. It never changes."""

    def gather(self) -> Iterator[None]:
        """Collect what is not collected yet, in pieces of a millisecond or less, while the operator goes on.

        On the event loop, and to its end before ``encoded`` is called in another thread. Raises ``CheckpointError``.
        """
        ...

    def encoded(self) -> OperatorSnapshot:
        """Return the snapshot. May take long and be called in a worker thread. Raises ``CheckpointError``."""
        ...


@dataclass(frozen=True, slots=True)
class Ready:
    """A capture that is encoded already."""

    snapshot: OperatorSnapshot

    def gather(self) -> Iterator[None]:
        return iter(())

    def encoded(self) -> OperatorSnapshot:
        return self.snapshot


def merge(snapshots: Iterable[OperatorSnapshot]) -> OperatorSnapshot:
    """Merge the snapshots of all subtasks of one operator into one, from which any parallelism can restore.

    Subtasks own disjoint key groups, so keyed state never collides. Equal copies of broadcast state are kept once. All
    snapshots must be complete.
    """
    keyed: dict[int, Mapping[str, Entries]] = {}
    operator: dict[str, list[bytes]] = {}
    broadcast: dict[str, dict[bytes, None]] = {}
    members: frozenset[str] = frozenset()
    for snapshot in snapshots:
        keyed.update(snapshot.keyed)
        for name, parts in snapshot.operator.items():
            operator.setdefault(name, []).extend(parts)
        for name, copies in snapshot.broadcast.items():
            broadcast.setdefault(name, {}).update(dict.fromkeys(copies))
        members |= snapshot.members
    return OperatorSnapshot(
        keyed,
        {name: tuple(parts) for name, parts in operator.items()},
        {name: tuple(copies) for name, copies in broadcast.items()},
        members=members,
    )


def replay(chain: Sequence[OperatorSnapshot]) -> OperatorSnapshot:
    """Return one complete snapshot of a subtask from a complete one and later changes, oldest first.

    There may be several complete ones of different key groups, if several subtasks were merged into one. The replay is
    from the newest to the oldest, so each entry is visited once: the newest snapshot that has a key, or a member of a
    set, determines it.
    """
    newest = chain[-1]
    if len(chain) == 1 and newest.complete:
        return newest
    later = _Replay()
    for snapshot in reversed(chain):
        later.add_older(snapshot)
    return OperatorSnapshot(
        later.keyed(),
        newest.operator,
        newest.broadcast,
        members=frozenset[str]().union(*(snapshot.members for snapshot in chain)),
    )


class _Replay:
    """The joint content of the snapshots from the newest back to an older one.

    Hot path: one set lookup for each row that was not replaced, none in key groups and names without newer rows.
    """

    def __init__(self) -> None:
        #: Valid entries by key group and name, in pieces.
        self._pieces: dict[int, dict[str, list[Entries]]] = {}
        #: Keys that a newer snapshot has replaced, by key group.
        self._replaced: dict[int, set[bytes]] = {}
        #: Members that a newer snapshot has added or removed, by key group and name.
        self._decided: dict[tuple[int, str], set[Entry]] = {}
        #: States that a newer snapshot describes, by key group.
        self._described: dict[int, set[bytes]] = {}

    def add_older(self, snapshot: OperatorSnapshot) -> None:
        for group, names in snapshot.keyed.items():
            pieces = self._pieces.setdefault(group, {})
            for name, entries in names.items():
                valid = self._valid(group, name, entries, name in snapshot.members)
                if valid:
                    pieces.setdefault(name, []).append(valid)
        self._decide(snapshot)

    def _valid(self, group: int, name: str, entries: Entries, of_set: bool) -> Entries:
        """Return the entries that no newer snapshot has replaced."""
        if of_set:
            decided = self._decided.get((group, name))
            return _selected(entries, lambda entry: entry not in decided) if decided else entries
        newer = self._described if name == STATES else self._replaced
        keys = newer.get(group)
        return _selected(entries, lambda entry: entry[0] not in keys) if keys else entries

    def _decide(self, snapshot: OperatorSnapshot) -> None:
        """Record the entries for which older snapshots are obsolete."""
        for group, names in snapshot.keyed.items():
            self._described.setdefault(group, set()).update(key for key, _ in names.get(STATES, ()))
            # No snapshot older than a complete one counts, and it may hold many members.
            if not snapshot.complete:
                for name in names.keys() & snapshot.members:
                    self._decided.setdefault((group, name), set()).update(names[name])
        for group, names in snapshot.removed.items():
            for name, entries in names.items():
                self._decided.setdefault((group, name), set()).update(entries)
        for group, keys in (snapshot.replaced or {}).items():
            self._replaced.setdefault(group, set()).update(keys)

    def keyed(self) -> dict[int, Mapping[str, Entries]]:
        return {
            group: {name: joined(pieces) for name, pieces in names.items()}
            for group, names in self._pieces.items()
            if names
        }


def _selected(entries: Entries, is_valid: Callable[[Entry], bool]) -> Entries:
    def select(some: Entries) -> Entries:
        return tuple(filter(is_valid, some))

    return entries.selected(select) if isinstance(entries, StoredEntries) else select(entries)
