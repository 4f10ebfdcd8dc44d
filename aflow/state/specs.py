"""Declarations of keyed state.

They are attributes of a process function, whose context gives access to the state: ``ctx.state(self.last)``. Values are
never kept in ``self``. With ``of=`` values are stored by their declared type, which is fast, safe, and allows changes
of the type (added fields with defaults, removed fields). Without it they must be plain Python values, see
``aflow.model.codecs.PLAIN``. ``codec=`` in place of ``of=`` stores them in any other way:
``codec=Pickled[Model]()`` for types without an encoding, with the drawbacks that ``Pickled`` documents.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from datetime import timedelta
from enum import Enum
from inspect import iscoroutinefunction
from types import BuiltinFunctionType, FunctionType, MemberDescriptorType
from typing import Any, Final, Generic, TypeGuard, TypeVar

from aflow.errors import FlowDefinitionError, shown
from aflow.model.codecs import Codec
from aflow.model.time import positive_millis
from aflow.state.aggregate import Aggregate, accumulator_codec
from aflow.state.cells import (
    AggregatingCell,
    CurrentKey,
    ListCell,
    MapCell,
    ReducingCell,
    Rows,
    ValueCell,
)
from aflow.state.layouts import Layout, Many, One, Pairs, state_codec

C_co = TypeVar("C_co", covariant=True)
T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
IN = TypeVar("IN")
ACC = TypeVar("ACC")
OUT = TypeVar("OUT")

#: Prefix of names that aflow itself uses in snapshots.
RESERVED: Final = "@"


class TtlOn(Enum):
    """Access that restarts the time to live of state."""

    UPDATE = "update"
    """Writes."""
    READ = "read"
    """Writes and reads."""


# Declarations are frozen but not slotted: on Python 3.11 `ValueState[int]("n")` of a frozen, slotted dataclass raises,
# because typing sets `__orig_class__` on it. They compare by identity, which makes their hash fast: a declaration is
# an attribute, and two lambdas never compare equal.
@dataclass(frozen=True, eq=False)
class StateSpec(ABC, Generic[C_co]):
    """A declaration; ``C_co`` is the type of its cell.

    With ``ttl`` the state of a key is removed after that much processing time since the last write (or read, with
    ``ttl_on=TtlOn.READ``). This is the clock of the machine: a replay at another pace may find other state. A list or a
    map expires as a whole.

    Raises ``FlowDefinitionError`` for an invalid name, for types whose values cannot be stored, and for a ``ttl`` that
    is not above zero.
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
        self._check_function()
        try:
            self.layout()
        except FlowDefinitionError as exc:
            raise FlowDefinitionError(f"state {self.name!r}: {exc}") from exc

    def _check_function(self) -> None:
        """Raise ``FlowDefinitionError`` if the function or aggregate of the declaration is invalid."""

    @abstractmethod
    def layout(self) -> Layout[Any]:
        """Return the encoding of the state of one key."""

    @abstractmethod
    def cell(self, at: CurrentKey, rows: Rows[Any]) -> C_co:
        """Return a cell of this state for the key of ``at``, over ``rows``."""

    def view(self, stored: Any) -> object:
        """Return ``stored`` for readers outside of handlers."""
        return stored


@dataclass(frozen=True, eq=False)
class ValueState(StateSpec[ValueCell[T]]):
    """Declaration of one value for each key: ``last = ValueState("last", of=Payment)``."""

    of: type[T] | None = field(default=None, kw_only=True)
    codec: Codec[T] | None = field(default=None, kw_only=True)

    def layout(self) -> Layout[T]:
        return One("value", state_codec(self.of, self.codec))

    def cell(self, at: CurrentKey, rows: Rows[Any]) -> ValueCell[T]:
        return ValueCell(at, rows)


@dataclass(frozen=True, eq=False)
class ListState(StateSpec[ListCell[T]]):
    """Declaration of a list for each key: ``recent = ListState("recent", of=Payment)``; ``of`` is the element type."""

    of: type[T] | None = field(default=None, kw_only=True)
    codec: Codec[T] | None = field(default=None, kw_only=True)

    def layout(self) -> Layout[list[T]]:
        return Many(state_codec(self.of, self.codec))

    def cell(self, at: CurrentKey, rows: Rows[Any]) -> ListCell[T]:
        return ListCell(at, rows)

    def view(self, stored: list[T]) -> list[T]:
        return list(stored)


@dataclass(frozen=True, eq=False)
class MapState(StateSpec[MapCell[K, V]]):
    """Declaration of a mapping for each key: ``by_shop = MapState("by shop", key=str, of=int)``.

    ``of`` and ``codec`` are those of the values.
    """

    key: type[K] | None = field(default=None, kw_only=True)
    of: type[V] | None = field(default=None, kw_only=True)
    codec: Codec[V] | None = field(default=None, kw_only=True)

    def layout(self) -> Layout[dict[K, V]]:
        return Pairs(state_codec(self.key), state_codec(self.of, self.codec))

    def cell(self, at: CurrentKey, rows: Rows[Any]) -> MapCell[K, V]:
        return MapCell(at, rows)

    def view(self, stored: dict[K, V]) -> dict[K, V]:
        return dict(stored)


@dataclass(frozen=True, eq=False)
class ReducingState(StateSpec[ReducingCell[T]]):
    """Declaration of one value for each key, reduced from all added ones: ``ReducingState("highest", max, of=int)``."""

    fn: Callable[[T, T], T]
    of: type[T] | None = field(default=None, kw_only=True)
    codec: Codec[T] | None = field(default=None, kw_only=True)

    def _check_function(self) -> None:
        _check_plain_function(self.fn, f"state {self.name!r}: the reducing function")

    def layout(self) -> Layout[T]:
        return One("reducing", state_codec(self.of, self.codec))

    def cell(self, at: CurrentKey, rows: Rows[Any]) -> ReducingCell[T]:
        return ReducingCell(at, rows, self.fn)


@dataclass(frozen=True, eq=False)
class AggregatingState(StateSpec[AggregatingCell[IN, OUT]], Generic[IN, ACC, OUT]):
    """Declaration of an accumulator of an ``Aggregate`` for each key; ``of`` is the type of the accumulator.

    The ready-made ones of ``aflow.aggregates`` need no ``of``.
    """

    aggregate: Aggregate[IN, ACC, OUT]
    of: type[ACC] | None = field(default=None, kw_only=True)

    def _check_function(self) -> None:
        check_aggregate(self.aggregate, f"state {self.name!r}")

    def layout(self) -> Layout[ACC]:
        return One("aggregating", accumulator_codec(self.aggregate, self.of))

    def cell(self, at: CurrentKey, rows: Rows[Any]) -> AggregatingCell[IN, OUT]:
        return AggregatingCell(at, rows, self.aggregate)

    def view(self, stored: ACC) -> OUT:
        return self.aggregate.result(stored)


def declared_states(holder: object) -> tuple[StateSpec[Any], ...]:
    """Return the declarations among the attributes of ``holder`` and its classes, in the order of definition.

    Raises ``FlowDefinitionError`` if two of them have the same name.
    """
    found: dict[str, StateSpec[Any]] = {}
    for attribute, spec in attributes(holder).items():
        if not _is_spec(spec):
            continue
        if found.setdefault(spec.name, spec) is not spec:
            raise FlowDefinitionError(
                f"{type(holder).__name__}.{attribute}: another state of {type(holder).__name__} is named "
                f"{spec.name!r} too; give each its own name, by which snapshots identify it"
            )
    return tuple(found.values())


def check_aggregate(aggregate: Aggregate[IN, ACC, OUT], where: str) -> None:
    """Raise ``FlowDefinitionError`` unless ``aggregate`` has all methods of an ``Aggregate``, none a coroutine."""
    if isinstance(aggregate, type):
        raise FlowDefinitionError(
            f"{where}: an Aggregate object is needed, not its class; write {aggregate.__name__}()"
        )
    if isinstance(aggregate, FunctionType | BuiltinFunctionType):
        raise FlowDefinitionError(
            f"{where}: an Aggregate object is needed, not the function {aggregate.__name__}; "
            f"call one of aflow.aggregates, as in count()"
        )
    for method in ("create", "add", "merge", "result"):
        what = f"{where}: {type(aggregate).__name__}.{method}"
        _check_plain_function(getattr(aggregate, method, None), what)


def attributes(holder: object) -> dict[str, object]:
    """Return all attributes by name; subclasses and the object itself override their bases."""
    attributes: dict[str, object] = {}
    for kind in reversed(type(holder).__mro__):
        attributes.update(vars(kind))
    slots = [name for name, value in attributes.items() if isinstance(value, MemberDescriptorType)]
    attributes.update({name: getattr(holder, name, None) for name in slots})
    attributes.update(getattr(holder, "__dict__", {}))
    return attributes


def _is_spec(value: object) -> TypeGuard[StateSpec[Any]]:
    """Return True for a declaration of any type."""
    return isinstance(value, StateSpec)


def check_name(name: object) -> None:
    """Raise ``FlowDefinitionError`` unless ``name`` is a valid name of a state."""
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
