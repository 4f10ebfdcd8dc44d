"""Datetimes without a time zone inside of values: they cannot be event time or a key.

A type is inspected once. Most types contain no ``datetime``, and their values are never looked at.
``Annotated[datetime, msgspec.Meta(tz=False)]`` declares a datetime without a zone, which is none of those that are
found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from typing import Any, TypeAlias, cast

from msgspec import inspect

from aflow.model.codecs.typed import python_types

Search: TypeAlias = Callable[[Any], str | None]
"""Return the path to the first datetime without a zone in a value, such as ``.at`` or ``[0]``; None without one."""

_Children: TypeAlias = Iterable[tuple[str, Any]]
"""Values inside of a value, with their paths."""


def zoneless_search(of: type[Any] | None) -> Search | None:
    """Return the search for values of type ``of``, or for plain values (None); None if no value can have one."""
    return search_plain if of is None else _Compiler().search(inspect.type_info(of))


def may_hold_zoneless(data: bytes) -> bool:
    """Return False if the bytes of a plain value contain no datetime without a zone, as those of nearly all do."""
    # The code of the extension for a datetime, and the zone None.
    return b"\x06" in data and b"\xc0" in data


def search_plain(value: object) -> str | None:
    """Search in a plain value."""
    if isinstance(value, datetime):
        return _search_datetime(value)
    if isinstance(value, dict):
        items = cast("dict[object, object]", value)
        keys = ((".keys()", key) for key in items)
        held = ((f"[{key!r}]", one) for key, one in items.items())
        return _first(keys, search_plain) or _first(held, search_plain)
    if isinstance(value, list | tuple):
        return _first(_items(cast("list[object]", value)), search_plain)
    if isinstance(value, set | frozenset):
        return _first(_members(cast("set[object]", value)), search_plain)
    return None


def _search_datetime(value: datetime) -> str | None:
    return "" if value.tzinfo is None else None


def _first(children: _Children, search: Search) -> str | None:
    for place, child in children:
        if (path := search(child)) is not None:
            return f"{place}{path}"
    return None


def _items(value: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    return ((f"[{number}]", item) for number, item in enumerate(value))


def _members(value: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    return (("{…}", item) for item in value)


class _Compiler:
    """Makes the searches of a type and of the types inside it."""

    def __init__(self) -> None:
        #: By the id of a description: its search. A recursive type is in it before its search is made.
        self._made: dict[int, Search | None] = {}

    def search(self, part: inspect.Type) -> Search | None:
        """Return the search for values that ``part`` describes."""
        if not self._holds(part, set()):
            return None
        key = id(part)
        if key in self._made:  # inside of itself
            return lambda value: found(value) if (found := self._made[key]) is not None else None
        self._made[key] = None
        made = self._made[key] = self._make(part)
        return made

    def _make(self, part: inspect.Type) -> Search:
        match part:
            case inspect.Metadata():
                return self._some(part.type)
            case inspect.UnionType():
                return self._of_union(part)
            case inspect.ListType() | inspect.VarTupleType():
                items = self._some(part.item_type)
                return lambda value: _first(_items(value), items)
            case inspect.SetType() | inspect.FrozenSetType():
                members = self._some(part.item_type)
                return lambda value: _first(_members(value), members)
            case inspect.TupleType():
                places = [
                    (f"[{number}]", self._some(one)) for number, one in enumerate(part.item_types)
                ]
                return lambda value: _first_of(
                    (place, search, item)
                    for (place, search), item in zip(places, value, strict=False)
                )
            case inspect.DictType():
                return self._of_dict(part)
            case inspect.TypedDictType():
                fields = [(one.name, self._some(one.type)) for one in part.fields]
                return lambda value: _first_of(
                    (f"[{name!r}]", search, value[name]) for name, search in fields if name in value
                )
            case inspect.NamedTupleType() | inspect.DataclassType() | inspect.StructType():
                return self._of_fields(part.fields)
            case _:
                return _search_datetime

    def _some(self, part: inspect.Type) -> Search:
        return self.search(part) or _nothing

    def _of_union(self, part: inspect.UnionType) -> Search:
        options = [(option, self.search(option)) for option in part.types]
        by_type = {
            kind: found
            for option, found in options
            if found is not None
            for kind in python_types(option)
        }

        def search(value: object) -> str | None:
            return by_type.get(type(value), _nothing)(value)

        return search

    def _of_dict(self, part: inspect.DictType) -> Search:
        keys, values = self._some(part.key_type), self._some(part.value_type)

        def search(value: dict[Any, Any]) -> str | None:
            path = _first(((".keys()", key) for key in value), keys)
            return path or _first(((f"[{key!r}]", held) for key, held in value.items()), values)

        return search

    def _of_fields(self, fields: Iterable[inspect.Field]) -> Search:
        made = [(one.name, self.search(one.type)) for one in fields]
        found = [(name, inner) for name, inner in made if inner is not None]

        def search(value: object) -> str | None:
            for name, inner in found:
                if (path := inner(getattr(value, name))) is not None:
                    return f".{name}{path}"
            return None

        return search

    def _holds(self, part: inspect.Type, seen: set[int]) -> bool:
        """Return True if values that ``part`` describes may contain a datetime without a zone."""
        if id(part) in seen:
            return False
        seen.add(id(part))
        if isinstance(part, inspect.DateTimeType):
            return part.tz is None
        return any(self._holds(one, seen) for one in _parts(part))


def _nothing(value: object) -> None:
    """Find nothing."""


def _first_of(children: Iterable[tuple[str, Search, Any]]) -> str | None:
    for place, search, child in children:
        if (path := search(child)) is not None:
            return f"{place}{path}"
    return None


def _parts(part: inspect.Type) -> Iterator[inspect.Type]:
    """Yield the types inside a type."""
    for name in part.__struct_fields__:
        inner: object = getattr(part, name)
        parts = cast("tuple[object, ...]", inner) if isinstance(inner, tuple) else (inner,)
        for one in parts:
            if isinstance(one, inspect.Field):
                yield one.type
            elif isinstance(one, inspect.Type):
                yield one
