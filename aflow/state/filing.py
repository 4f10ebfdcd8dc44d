"""How keyed entries are filed in a snapshot: under the key group of their key, then under the name of a state."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from typing import TypeAlias

from aflow.errors import CheckpointError, RestoreError, shown
from aflow.model.codecs import Codec, CodecError
from aflow.model.key_groups import KeyGroupRange, key_group
from aflow.state.layouts import state_codec
from aflow.state.snapshot import Entry

Keyed: TypeAlias = Mapping[int, Mapping[str, tuple[Entry, ...]]]
"""``keyed[key group][state name]``, as in ``OperatorSnapshot``."""


class KeyedFiling:
    """Files the keyed entries of one operator in one subtask, and finds those that belong to it.

    Whatever an operator keeps for its keys beside declared state (timers, windows) goes through here too, under a name
    that begins with ``@``. ``key_type`` is the type of the keys; without it keys must be plain Python values.
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
        self._groups = key_groups
        self._count = key_group_count

    def file(self, named: Mapping[str, Iterable[tuple[Hashable, bytes]]]) -> Keyed:
        """Encode the keys and file the entries of each name. Raises ``CheckpointError`` for a key without encoding."""
        places: dict[Hashable, tuple[int, bytes]] = {}
        filed: dict[int, dict[str, list[Entry]]] = {}
        for name, entries in named.items():
            for key, data in entries:
                place = places.get(key)
                if place is None:
                    place = places[key] = self._place(key)
                filed.setdefault(place[0], {}).setdefault(name, []).append((place[1], data))
        return {
            group: {name: tuple(entries) for name, entries in names.items()}
            for group, names in filed.items()
        }

    def read(self, keyed: Keyed, name: str) -> Iterator[tuple[Hashable, bytes]]:
        """The entries of ``name`` in this subtask's key groups. Raises ``RestoreError`` for a key it cannot read."""
        for names in self.own(keyed):
            for key, data in names.get(name, ()):
                yield self._key(key), data

    def own(self, keyed: Keyed) -> Iterator[Mapping[str, tuple[Entry, ...]]]:
        """What is filed in the key groups of this subtask, group by group."""
        return (names for group, names in keyed.items() if group in self._groups)

    def _place(self, key: Hashable) -> tuple[int, bytes]:
        try:
            return key_group(key, self._count), self._codec.encode(key)
        except CodecError as exc:
            raise CheckpointError(
                f"step {self.operator!r} cannot store its state for key {shown(key)}: {exc}"
            ) from exc

    def _key(self, data: bytes) -> Hashable:
        try:
            return self._codec.decode(data)
        except CodecError as exc:
            raise RestoreError(f"step {self.operator!r} cannot read a stored key: {exc}") from exc


def filed_together(first: Keyed, second: Keyed) -> Keyed:
    """Both as one; they share no name."""
    return {
        group: {**first.get(group, {}), **second.get(group, {})}
        for group in (*first, *(group for group in second if group not in first))
    }
