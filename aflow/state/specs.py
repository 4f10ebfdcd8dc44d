"""Declarations of keyed state: what a step wants to remember for each key.

Declared as attributes of a process function and reached through its context, ``ctx.state(self.last)``; values never
live in ``self``. With ``of=`` values are stored by their declared type, which is fast, safe, and lets the type change
(added fields with defaults, removed fields); without it they must be plain Python values, see
``aflow.model.codecs.PLAIN``. ``codec=`` in place of ``of=`` stores them in any other way: ``codec=Pickled[Model]()``
for what has no encoding, at the price that Pickled names.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from inspect import iscoroutinefunction
from types import MemberDescriptorType
from typing import Any, Final, Generic, Protocol, TypeGuard, TypeVar

from aflow.errors import FlowDefinitionError, shown
from aflow.model.codecs import Codec
from aflow.model.time import positive_millis
from aflow.state.aggregate import Aggregate, accumulator_codec
from aflow.state.cells import AggregatingCell, ListCell, MapCell, ReducingCell, ValueCell
from aflow.state.layouts import Layout, Many, One, Pairs, state_codec

C_co = TypeVar("C_co", covariant=True)
T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
IN = TypeVar("IN")
ACC = TypeVar("ACC")
OUT = TypeVar("OUT")

#: Names that begin so are those of aflow itself, in the same snapshots.
RESERVED: Final = "@"


class TtlOn(Enum):
    """What makes the time to live of state begin anew."""

    UPDATE = "update"
    """Writing it."""
    READ = "read"
    """Writing it, and reading it too."""


class Cells(Protocol):
    """What makes cells: a backend, which knows how values of each kind are kept."""

    def value_cell(self, spec: ValueState[T]) -> ValueCell[T]: ...

    def list_cell(self, spec: ListState[T]) -> ListCell[T]: ...

    def map_cell(self, spec: MapState[K, V]) -> MapCell[K, V]: ...

    def reducing_cell(self, spec: ReducingState[T]) -> ReducingCell[T]: ...

    def aggregating_cell(
        self, spec: AggregatingState[IN, ACC, OUT]
    ) -> AggregatingCell[IN, OUT]: ...


# Declarations are frozen but not slotted: on Python 3.11 `ValueState[int]("n")` of a frozen, slotted dataclass raises,
# because typing sets `__orig_class__` on it. They compare by identity, which is also their (fast) hash: what is
# declared is this attribute, and two lambdas never compare equal anyway.
@dataclass(frozen=True, eq=False)
class StateSpec(ABC, Generic[C_co]):
    """A declaration; ``C_co`` is the cell that handlers get for it.

    With ``ttl`` what a key has is forgotten once so much processing time has passed since it was last written (or
    read, too, with ``ttl_on=TtlOn.READ``). That is the clock of the machine: when records are replayed at another pace,
    state may be gone where it was not before. A list or a map is one state: it lives and goes as a whole.

    Raises ``FlowDefinitionError`` for a name that cannot be one, for types whose values could not be stored, and for a
    ``ttl`` that is not above zero.
    """

    name: str
    ttl: timedelta | None = field(default=None, kw_only=True)
    ttl_on: TtlOn = field(default=TtlOn.UPDATE, kw_only=True)

    def __post_init__(self) -> None:
        check_name(self.name)
        if self.ttl is not None:
            positive_millis(self.ttl, what=f"the ttl of state {self.name!r}")
        if not isinstance(self.ttl_on, TtlOn):
            raise FlowDefinitionError(
                f"the ttl_on of state {self.name!r} must be TtlOn.UPDATE or TtlOn.READ, not {shown(self.ttl_on)}"
            )
        self._check()

    def _check(self) -> None:
        self._check_types()

    def _check_types(self) -> None:
        try:
            self.layout()
        except FlowDefinitionError as exc:
            raise FlowDefinitionError(f"state {self.name!r}: {exc}") from exc

    @abstractmethod
    def layout(self) -> Layout[Any]:
        """How what a key has under this name is stored."""

    @abstractmethod
    def cell(self, cells: Cells) -> C_co:
        """The cell that ``cells`` makes for this declaration."""

    def view(self, stored: Any) -> object:
        """What somebody outside the handlers sees of ``stored``."""
        return stored


@dataclass(frozen=True, eq=False)
class ValueState(StateSpec[ValueCell[T]]):
    """One value for each key: ``last = ValueState("last", of=Payment)``."""

    of: type[T] | None = field(default=None, kw_only=True)
    codec: Codec[T] | None = field(default=None, kw_only=True)

    def layout(self) -> Layout[T]:
        return One("value", state_codec(self.of, self.codec))

    def cell(self, cells: Cells) -> ValueCell[T]:
        return cells.value_cell(self)


@dataclass(frozen=True, eq=False)
class ListState(StateSpec[ListCell[T]]):
    """A list of values for each key: ``recent = ListState("recent", of=Payment)``, ``of`` being the element."""

    of: type[T] | None = field(default=None, kw_only=True)
    codec: Codec[T] | None = field(default=None, kw_only=True)

    def layout(self) -> Layout[list[T]]:
        return Many(state_codec(self.of, self.codec))

    def cell(self, cells: Cells) -> ListCell[T]:
        return cells.list_cell(self)

    def view(self, stored: list[T]) -> list[T]:
        return list(stored)


@dataclass(frozen=True, eq=False)
class MapState(StateSpec[MapCell[K, V]]):
    """A mapping for each key: ``by_shop = MapState("by shop", key=str, of=int)``; ``of`` is the type of its values.

    A ``codec`` is for the values too.
    """

    key: type[K] | None = field(default=None, kw_only=True)
    of: type[V] | None = field(default=None, kw_only=True)
    codec: Codec[V] | None = field(default=None, kw_only=True)

    def layout(self) -> Layout[dict[K, V]]:
        return Pairs(state_codec(self.key), state_codec(self.of, self.codec))

    def cell(self, cells: Cells) -> MapCell[K, V]:
        return cells.map_cell(self)

    def view(self, stored: dict[K, V]) -> dict[K, V]:
        return dict(stored)


@dataclass(frozen=True, eq=False)
class ReducingState(StateSpec[ReducingCell[T]]):
    """One value for each key, reduced from all that were added: ``ReducingState("highest", max, of=int)``."""

    fn: Callable[[T, T], T]
    of: type[T] | None = field(default=None, kw_only=True)
    codec: Codec[T] | None = field(default=None, kw_only=True)

    def _check(self) -> None:
        _check_plain_function(self.fn, f"state {self.name!r}: the reducing function")
        self._check_types()

    def layout(self) -> Layout[T]:
        return One("reducing", state_codec(self.of, self.codec))

    def cell(self, cells: Cells) -> ReducingCell[T]:
        return cells.reducing_cell(self)


@dataclass(frozen=True, eq=False)
class AggregatingState(StateSpec[AggregatingCell[IN, OUT]], Generic[IN, ACC, OUT]):
    """The accumulator of an ``Aggregate`` for each key; ``of`` is the type of the accumulator.

    The ready-made ones of ``aflow.aggregates`` need no ``of``.
    """

    aggregate: Aggregate[IN, ACC, OUT]
    of: type[ACC] | None = field(default=None, kw_only=True)

    def _check(self) -> None:
        check_aggregate(self.aggregate, f"state {self.name!r}")
        self._check_types()

    def layout(self) -> Layout[ACC]:
        return One("aggregating", accumulator_codec(self.aggregate, self.of))

    def cell(self, cells: Cells) -> AggregatingCell[IN, OUT]:
        return cells.aggregating_cell(self)

    def view(self, stored: ACC) -> OUT:
        return self.aggregate.result(stored)


def declared_states(holder: object) -> tuple[StateSpec[Any], ...]:
    """The declarations among the attributes of ``holder`` and its classes, in the order of definition.

    Raises ``FlowDefinitionError`` if two of them have the same name.
    """
    found: dict[str, StateSpec[Any]] = {}
    for attribute, spec in attributes(holder).items():
        if not _is_spec(spec):
            continue
        if found.setdefault(spec.name, spec) is not spec:
            raise FlowDefinitionError(
                f"{type(holder).__name__}.{attribute}: another state of {type(holder).__name__} is named "
                f"{spec.name!r} too; each needs a name of its own, for snapshots know them by it"
            )
    return tuple(found.values())


def check_aggregate(aggregate: Aggregate[IN, ACC, OUT], where: str) -> None:
    """Raises ``FlowDefinitionError`` unless ``aggregate`` has all methods of an ``Aggregate``, none a coroutine."""
    if isinstance(aggregate, type):
        raise FlowDefinitionError(
            f"{where}: an Aggregate object is needed, not its class; write {aggregate.__name__}()"
        )
    for method in ("create", "add", "merge", "result"):
        what = f"{where}: {type(aggregate).__name__}.{method}"
        _check_plain_function(getattr(aggregate, method, None), what)


def attributes(holder: object) -> dict[str, object]:
    """All attributes by name, those of subclasses and of the object itself in place of those they hide."""
    attributes: dict[str, object] = {}
    for kind in reversed(type(holder).__mro__):
        attributes.update(vars(kind))
    slots = [name for name, value in attributes.items() if isinstance(value, MemberDescriptorType)]
    attributes.update({name: getattr(holder, name, None) for name in slots})
    attributes.update(getattr(holder, "__dict__", {}))
    return attributes


def _is_spec(value: object) -> TypeGuard[StateSpec[Any]]:
    """``isinstance`` that says what declaration it found: one of anything."""
    return isinstance(value, StateSpec)


def check_name(name: object) -> None:
    """Raises ``FlowDefinitionError`` unless ``name`` can be the name of a state."""
    if not isinstance(name, str):
        raise FlowDefinitionError(
            f"the name of a state must be a str, not {type(name).__name__}: {shown(name)}"
        )
    if not name or not name.isprintable() or name != name.strip():
        raise FlowDefinitionError(
            f"{name!r} cannot name a state: it must be printable text, not empty, without space around it"
        )
    if name.startswith(RESERVED):
        raise FlowDefinitionError(
            f"{name!r} cannot name a state: names that begin with {RESERVED!r} are reserved"
        )


def _check_plain_function(fn: object, what: str) -> None:
    if not callable(fn):
        raise FlowDefinitionError(f"{what} must be a function, not {shown(fn)}")
    if iscoroutinefunction(fn) or iscoroutinefunction(getattr(fn, "__call__", None)):  # noqa: B004 - a callable object
        raise FlowDefinitionError(f"{what} must be a plain function, not a coroutine function")
