"""The state of one operator as data: bytes that do not depend on the process that wrote them.

Keyed state is filed by key group, so that another parallelism can pick the groups of its subtasks. Operator state is a
list of parts for each name: a restore gives every subtask all of them, and the operator picks. Broadcast state is the
same in every subtask: each files a copy, and a restore gives each subtask a whole one.

A snapshot is *complete*, or holds the *changes* since an earlier one: then ``replaced`` names the keys whose rows it
holds anew, all of them, under all names; a key that is named and has no rows has been forgotten. Names in ``members``
are sets instead (timers): of those, ``keyed`` holds what was added and ``removed`` what was taken away, entry by entry.
Operator and broadcast state are always complete.

Taking a snapshot has two steps. ``Operator.capture`` notes what is there, in the task and at once; what it notes does
not change any more. ``Captured.encoded`` makes bytes of it, later and anywhere (in a worker thread).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain as chained
from typing import Final, Protocol

Entry = tuple[bytes, bytes]
"""An encoded key and an encoded value."""

#: In each key group, no rows of keys: the kind, the codecs and the schema of each declared state, by its name.
STATES: Final = "@states"


@dataclass(frozen=True, slots=True)
class OperatorSnapshot:
    """What an operator remembers: ``keyed[key group][state name]`` entries, ``operator[state name]`` parts and
    ``broadcast[state name]`` copies, each of them complete.
    """

    keyed: Mapping[int, Mapping[str, tuple[Entry, ...]]] = field(
        default_factory=dict[int, Mapping[str, tuple[Entry, ...]]]
    )
    operator: Mapping[str, tuple[bytes, ...]] = field(default_factory=dict[str, tuple[bytes, ...]])
    broadcast: Mapping[str, tuple[bytes, ...]] = field(default_factory=dict[str, tuple[bytes, ...]])
    replaced: Mapping[int, frozenset[bytes]] | None = None
    """By key group, the encoded keys whose rows are all here; None: the snapshot is complete."""
    removed: Mapping[int, Mapping[str, tuple[Entry, ...]]] = field(
        default_factory=dict[int, Mapping[str, tuple[Entry, ...]]]
    )
    """What is no longer there of the names that are sets."""
    members: frozenset[str] = frozenset()
    """The names in ``keyed`` whose entries are members of a set, each by itself."""

    @property
    def complete(self) -> bool:
        """False if the snapshot holds changes only."""
        return self.replaced is None

    def restricted_to(self, groups: Container[int]) -> OperatorSnapshot:
        """The same snapshot with the keyed state of ``groups`` only."""
        keyed = {group: names for group, names in self.keyed.items() if group in groups}
        removed = {group: names for group, names in self.removed.items() if group in groups}
        replaced = self.replaced
        if replaced is not None:
            replaced = {group: keys for group, keys in replaced.items() if group in groups}
        return OperatorSnapshot(
            keyed, self.operator, self.broadcast, replaced, removed, self.members
        )


class Captured(Protocol):
    """What an operator remembered at one moment, on its way to bytes. Nothing in it changes any more."""

    def encoded(self) -> OperatorSnapshot:
        """The snapshot; may take long, and may be called in a worker thread. Raises ``CheckpointError``."""
        ...


@dataclass(frozen=True, slots=True)
class Ready:
    """A snapshot that is bytes already."""

    snapshot: OperatorSnapshot

    def encoded(self) -> OperatorSnapshot:
        return self.snapshot


def merge(snapshots: Iterable[OperatorSnapshot]) -> OperatorSnapshot:
    """The snapshots of all subtasks of one operator as one: the ground from which any parallelism can restore.

    Subtasks own disjoint key groups, so keyed state never collides. Copies of broadcast state that are equal, as they
    should be, are kept once. All must be complete.
    """
    keyed: dict[int, Mapping[str, tuple[Entry, ...]]] = {}
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
    """One complete snapshot of a subtask from a complete one and the changes since, oldest first.

    There may be several complete ones if they hold different key groups: what several subtasks left to one.
    Goes from the newest to the oldest, so each entry is looked at once: what a newer one says of a key, or of a member
    of a set, is the truth about it.
    """
    newest = chain[-1]
    if len(chain) == 1 and newest.complete:
        return newest
    replaying = _Replaying()
    for snapshot in reversed(chain):
        replaying.add_older(snapshot)
    return OperatorSnapshot(
        replaying.keyed(),
        newest.operator,
        newest.broadcast,
        members=frozenset[str]().union(*(snapshot.members for snapshot in chain)),
    )


class _Replaying:
    """What the snapshots from the newest back to some older one say.

    Hot path: a row that nothing newer has replaced is looked up in one set, and one of a key group or a name without
    newer rows is not looked at at all.
    """

    def __init__(self) -> None:
        #: By key group and name: entries that are still there, piece by piece.
        self._pieces: dict[int, dict[str, list[Sequence[Entry]]]] = {}
        #: By key group: keys that a newer snapshot has all rows of.
        self._replaced: dict[int, set[bytes]] = {}
        #: By key group and name: members that a newer snapshot has added or removed.
        self._decided: dict[tuple[int, str], set[Entry]] = {}
        #: By key group: the states that a newer snapshot describes.
        self._described: dict[int, set[bytes]] = {}

    def add_older(self, snapshot: OperatorSnapshot) -> None:
        for group, names in snapshot.keyed.items():
            pieces = self._pieces.setdefault(group, {})
            for name, entries in names.items():
                valid = self._valid(group, name, entries, name in snapshot.members)
                if valid:
                    pieces.setdefault(name, []).append(valid)
        self._decide(snapshot)

    def _valid(
        self, group: int, name: str, entries: Sequence[Entry], of_set: bool
    ) -> Sequence[Entry]:
        """Those of ``entries`` about which no newer snapshot says anything else."""
        if of_set:
            decided = self._decided.get((group, name))
            return [entry for entry in entries if entry not in decided] if decided else entries
        told = self._described if name == STATES else self._replaced
        keys = told.get(group)
        return [entry for entry in entries if entry[0] not in keys] if keys else entries

    def _decide(self, snapshot: OperatorSnapshot) -> None:
        """Note what older snapshots need not be asked about."""
        for group, names in snapshot.keyed.items():
            self._described.setdefault(group, set()).update(key for key, _ in names.get(STATES, ()))
            # What is complete has nothing older behind it, and may hold a great many members.
            if not snapshot.complete:
                for name in names.keys() & snapshot.members:
                    self._decided.setdefault((group, name), set()).update(names[name])
        for group, names in snapshot.removed.items():
            for name, entries in names.items():
                self._decided.setdefault((group, name), set()).update(entries)
        for group, keys in (snapshot.replaced or {}).items():
            self._replaced.setdefault(group, set()).update(keys)

    def keyed(self) -> dict[int, Mapping[str, tuple[Entry, ...]]]:
        return {
            group: {name: _one(pieces) for name, pieces in names.items()}
            for group, names in self._pieces.items()
            if names
        }


def _one(pieces: list[Sequence[Entry]]) -> tuple[Entry, ...]:
    return tuple(pieces[0] if len(pieces) == 1 else chained.from_iterable(pieces))
