"""Broadcast state: a mapping of which each subtask of a step has a copy, updated by a control stream.

It belongs to no key. Handlers of records read it through a ``BroadcastView``; only the handler of control records has
the ``BroadcastCell`` that writes it. In a snapshot each subtask stores a *copy* of the same mapping, and a restore
needs one of them, for any parallelism.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeGuard, TypeVar, overload

from aflow.errors import FlowDefinitionError, OperatorError, RestoreError, UnstorableState
from aflow.model.codecs import PLAIN, CodecError
from aflow.state.layouts import Pairs, check_description, description, state_codec
from aflow.state.specs import StateSpec, attributes, check_name, declared_states

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
D = TypeVar("D")


# Not slotted, and compared by identity, for the reasons given in `aflow.state.specs`.
@dataclass(frozen=True, eq=False)
class BroadcastState(Generic[K, V]):
    """Declaration of a mapping for all keys and subtasks: ``rules = BroadcastState("rules", key=str, of=Rule)``.

    ``key`` and ``of`` are the types by which snapshots store keys and values; without them both must be plain Python
    values. Raises ``FlowDefinitionError`` for an invalid name and for types whose values cannot be stored.
    """

    name: str
    key: type[K] | None = field(default=None, kw_only=True)
    of: type[V] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        check_name(self.name)
        try:
            self.layout()
        except FlowDefinitionError as exc:
            raise FlowDefinitionError(f"broadcast state {self.name!r}: {exc}") from exc

    def layout(self) -> Pairs[K, V]:
        """Return the encoding of the mapping."""
        return Pairs(state_codec(self.key), state_codec(self.of), kind="broadcast")


def broadcast_states(holder: object) -> tuple[BroadcastState[Any, Any], ...]:
    """Return the declarations of broadcast state among the attributes of ``holder``, in the order of definition.

    Raises ``FlowDefinitionError`` if two states, keyed ones included, have the same name.
    """
    found: dict[str, object] = {spec.name: spec for spec in declared_states(holder)}
    specs: list[BroadcastState[Any, Any]] = []
    for attribute, spec in attributes(holder).items():
        if not _is_broadcast(spec) or spec in specs:
            continue
        if found.setdefault(spec.name, spec) is not spec:
            raise FlowDefinitionError(
                f"{type(holder).__name__}.{attribute}: another state of {type(holder).__name__} is named "
                f"{spec.name!r} too; give each its own name"
            )
        specs.append(spec)
    return tuple(specs)


def keyed_states(holder: object) -> tuple[StateSpec[Any], ...]:
    """Return ``declared_states`` for a function without a control stream.

    Raises ``FlowDefinitionError`` for broadcast state too: no handler could write it.
    """
    for attribute, spec in attributes(holder).items():
        if _is_broadcast(spec):
            raise FlowDefinitionError(
                f"{type(holder).__name__}.{attribute}: broadcast state {spec.name!r} is written by a control stream "
                f"and can only be declared in a BroadcastProcess; use MapState for a mapping of each key"
            )
    return declared_states(holder)


class BroadcastStore:
    """The broadcast states of one step in one subtask."""

    def __init__(self, step: str, specs: Sequence[BroadcastState[Any, Any]]) -> None:
        self._step = step
        self._tables: Final[dict[str, _Table]] = {
            spec.name: _Table(spec.layout(), {}) for spec in specs
        }
        #: True in the handler of control records.
        self.writable = False
        self.views: Final[Mapping[BroadcastState[Any, Any], BroadcastView[Any, Any]]] = {
            spec: BroadcastView(self._tables[spec.name].rows) for spec in specs
        }
        self.cells: Final[Mapping[BroadcastState[Any, Any], BroadcastCell[Any, Any]]] = {
            spec: BroadcastCell(self._tables[spec.name].rows, self) for spec in specs
        }

    def __len__(self) -> int:
        """Return the number of entries of all states."""
        return sum(len(table.rows) for table in self._tables.values())

    def check_writable(self) -> None:
        """Raise ``OperatorError`` outside of the handler of control records."""
        if not self.writable:
            raise OperatorError(
                f"step {self._step!r} wrote broadcast state outside of process_broadcast; only there all subtasks "
                f"write the same values",
                operator=self._step,
            )

    def snapshot(self) -> dict[str, tuple[bytes, ...]]:
        """Return a copy of each state that is not empty. Raises ``CheckpointError`` if it cannot be encoded."""
        return {name: (self._encoded(name),) for name, table in self._tables.items() if table.rows}

    def restore(self, copies: Mapping[str, Sequence[bytes]]) -> None:
        """Replace each state by its first readable copy.

        Raises ``RestoreError`` if none of the copies of a state can be read, and for states that are not declared.
        """
        for name in copies:
            if name not in self._tables:
                raise RestoreError(
                    f"the snapshot of step {self._step!r} holds broadcast state {name!r}, which the step does not "
                    f"declare; renamed or removed? declared: {', '.join(map(repr, self._tables)) or 'none'}"
                )
        for name, table in self._tables.items():
            table.rows.clear()
            if parts := copies.get(name):
                table.rows.update(self._first_readable(name, parts))

    def _encoded(self, name: str) -> bytes:
        table = self._tables[name]
        try:
            return PLAIN.encode([description(table.layout), table.layout.encode(table.rows)])
        except CodecError as exc:
            raise UnstorableState(f"{self._what(name)} cannot be stored: {exc}") from exc

    def _first_readable(self, name: str, parts: Sequence[bytes]) -> dict[Any, Any]:
        failures: list[Exception] = []
        for part in parts:
            try:
                return self._decoded(name, part)
            except (CodecError, RestoreError) as exc:
                failures.append(exc)
        raise RestoreError(
            f"{self._what(name)} cannot be read from any of its {len(parts)} copies: {failures[0]}"
        ) from failures[0]

    def _decoded(self, name: str, part: bytes) -> dict[Any, Any]:
        layout = self._tables[name].layout
        match PLAIN.decode(part):
            case [bytes(described), bytes(data)]:
                check_description(layout, described, what=self._what(name))
                return layout.decode(data)
            case other:
                raise CodecError(f"a {type(other).__name__} is no copy of a broadcast state")

    def _what(self, name: str) -> str:
        return f"broadcast state {name!r} of step {self._step!r}"


@dataclass(frozen=True, slots=True)
class _Table:
    layout: Pairs[Any, Any]
    rows: dict[Any, Any]


class BroadcastView(Generic[K, V]):
    """Read access to broadcast state. Its values must not be changed: other subtasks would not see the change."""

    __slots__ = ("_rows",)

    def __init__(self, rows: dict[K, V]) -> None:
        self._rows = rows

    @overload
    def get(self, key: K) -> V | None: ...
    @overload
    def get(self, key: K, default: V | D) -> V | D: ...
    def get(self, key: K, default: V | D | None = None) -> V | D | None:
        return self._rows.get(key, default)

    def items(self) -> list[tuple[K, V]]:
        return list(self._rows.items())

    def keys(self) -> list[K]:
        return list(self._rows)

    def values(self) -> list[V]:
        return list(self._rows.values())

    def __iter__(self) -> Iterator[K]:
        """Iterate over a copy of the keys."""
        return iter(self.keys())

    def __contains__(self, key: object) -> bool:
        return key in self._rows

    def __len__(self) -> int:
        return len(self._rows)


class BroadcastCell(BroadcastView[K, V]):
    """Write access to broadcast state, in the handler of control records."""

    __slots__ = ("_store",)

    def __init__(self, rows: dict[K, V], store: BroadcastStore) -> None:
        super().__init__(rows)
        self._store = store

    def put(self, key: K, value: V) -> None:
        """Add an entry or replace it. Raises ``OperatorError`` outside the handler of control records."""
        self._store.check_writable()
        self._rows[key] = value

    def remove(self, key: K) -> bool:
        """Remove the entry of ``key``. Return False if there was none. Raises as ``put`` does."""
        self._store.check_writable()
        if key not in self._rows:
            return False
        del self._rows[key]
        return True

    def clear(self) -> None:
        """Remove all entries. Raises as ``put`` does."""
        self._store.check_writable()
        self._rows.clear()


def _is_broadcast(value: object) -> TypeGuard[BroadcastState[Any, Any]]:
    """Return True for a declaration of any types."""
    return isinstance(value, BroadcastState)
