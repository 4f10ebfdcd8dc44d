"""The state of one operator as data: bytes that do not depend on the process that wrote them.

Keyed state is filed by key group, so that another parallelism can pick the groups of its subtasks. Operator state is a
list of parts for each name, which a restore deals out to the subtasks there are. Broadcast state is the same in every
subtask: each files a copy, and a restore gives each subtask a whole one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from aflow.model.key_groups import KeyGroupRange

Entry = tuple[bytes, bytes]
"""An encoded key and an encoded value."""


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

    def restricted_to(self, groups: KeyGroupRange) -> OperatorSnapshot:
        """The same snapshot with the keyed state of ``groups`` only."""
        keyed = {group: names for group, names in self.keyed.items() if group in groups}
        return OperatorSnapshot(keyed, self.operator, self.broadcast)


def merge(snapshots: Iterable[OperatorSnapshot]) -> OperatorSnapshot:
    """The snapshots of all subtasks of one operator as one: the ground from which any parallelism can restore.

    Subtasks own disjoint key groups, so keyed state never collides. Copies of broadcast state that are equal, as they
    should be, are kept once.
    """
    keyed: dict[int, Mapping[str, tuple[Entry, ...]]] = {}
    operator: dict[str, tuple[bytes, ...]] = {}
    broadcast: dict[str, tuple[bytes, ...]] = {}
    for snapshot in snapshots:
        keyed.update(snapshot.keyed)
        for name, parts in snapshot.operator.items():
            operator[name] = operator.get(name, ()) + parts
        for name, copies in snapshot.broadcast.items():
            broadcast[name] = tuple(dict.fromkeys(broadcast.get(name, ()) + copies))
    return OperatorSnapshot(keyed, operator, broadcast)
