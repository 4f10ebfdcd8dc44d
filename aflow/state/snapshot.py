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
    operator: dict[str, tuple[bytes, ...]] = {}
    broadcast: dict[str, tuple[bytes, ...]] = {}
    members: frozenset[str] = frozenset()
    for snapshot in snapshots:
        keyed.update(snapshot.keyed)
        for name, parts in snapshot.operator.items():
            operator[name] = operator.get(name, ()) + parts
        for name, copies in snapshot.broadcast.items():
            broadcast[name] = tuple(dict.fromkeys(broadcast.get(name, ()) + copies))
        members |= snapshot.members
    return OperatorSnapshot(keyed, operator, broadcast, members=members)


def replay(chain: Sequence[OperatorSnapshot]) -> OperatorSnapshot:
    """One complete snapshot of a subtask from a complete one and the changes since, oldest first.

    Goes from the newest to the oldest, so each entry is looked at once: what a newer one says of a key, or of a member
    of a set, is the truth about it.
    """
    if len(chain) == 1:
        return chain[0]
    newest = chain[-1]
    rows: dict[int, dict[str, list[Entry]]] = {}
    known: dict[int, set[bytes]] = {}
    decided: dict[tuple[int, str], set[Entry]] = {}
    members: frozenset[str] = frozenset()
    for snapshot in reversed(chain):
        members |= snapshot.members
        _take_older(snapshot, rows, known, decided)
        for group, names in snapshot.removed.items():
            for name, entries in names.items():
                decided.setdefault((group, name), set()).update(entries)
        for group, keys in (snapshot.replaced or {}).items():
            known.setdefault(group, set()).update(keys)
    keyed = {
        group: {name: tuple(entries) for name, entries in names.items() if entries}
        for group, names in rows.items()
    }
    kept = {group: names for group, names in keyed.items() if names}
    return OperatorSnapshot(kept, newest.operator, newest.broadcast, members=members)


def _take_older(
    snapshot: OperatorSnapshot,
    rows: dict[int, dict[str, list[Entry]]],
    known: Mapping[int, set[bytes]],
    decided: dict[tuple[int, str], set[Entry]],
) -> None:
    """Add the entries of ``snapshot`` that no newer one has decided about."""
    for group, names in snapshot.keyed.items():
        gone = known.get(group, frozenset[bytes]())
        of_group = rows.setdefault(group, {})
        for name, entries in names.items():
            there = of_group.setdefault(name, [])
            if name in snapshot.members:
                settled = decided.setdefault((group, name), set())
                there.extend(entry for entry in entries if entry not in settled)
                settled.update(entries)
            elif name == STATES:
                told = {entry[0] for entry in there}
                there.extend(entry for entry in entries if entry[0] not in told)
            elif gone:
                there.extend(entry for entry in entries if entry[0] not in gone)
            else:
                there.extend(entries)
