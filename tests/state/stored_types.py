# pyright: basic
# Types are made at run time, so checkers do not know their content.
"""Types made up at random, with values that use every part of them: what schemas are tried on.

A *blueprint* is the type as data, so that it can be changed a little; ``made`` makes the Python type, and ``samples``
values of it. The samples cover: each option of a union is taken, each field and item has each of its samples at least
once, collections are empty, of one and of equal ones, what may be left out is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, make_dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import partial
from types import GenericAlias
from typing import Annotated, Any, Literal, NamedTuple, NotRequired, TypeAlias, TypedDict
from uuid import UUID

import msgspec
from hypothesis import strategies as st

SCALARS: dict[Any, list[Any]] = {
    type(None): [None],
    bool: [True, False],
    int: [0, 1, -(2**40), 2**40],
    float: [1.5, 0.0],
    str: ["", "text"],
    bytes: [b"", b"bytes"],
    datetime: [datetime(2020, 1, 1, tzinfo=UTC), datetime(2020, 1, 1)],  # noqa: DTZ001
    date: [date(2020, 1, 1)],
    time: [time(1, 2)],
    timedelta: [timedelta(days=1)],
    UUID: [UUID(int=5)],
    Decimal: [Decimal("1.5")],
}


@dataclass(frozen=True)
class Of:
    """A scalar, with a lower bound if it is an int."""

    kind: Any
    least: int | None = None


@dataclass(frozen=True)
class Several:
    kind: Any
    item: Blueprint


@dataclass(frozen=True)
class Fixed:
    items: tuple[Blueprint, ...]


@dataclass(frozen=True)
class Mapped:
    value: Blueprint


@dataclass(frozen=True)
class Chosen:
    """A literal, or an enum."""

    values: tuple[str, ...]
    enum: bool = False


@dataclass(frozen=True)
class Maybe:
    """A union with None."""

    of: Blueprint


@dataclass(frozen=True)
class Part:
    name: str
    of: Blueprint
    optional: bool = False


@dataclass(frozen=True)
class Fields:
    """A record of a class of ``kind``."""

    kind: str
    parts: tuple[Part, ...]
    closed: bool = False
    tag: str | None = None


Blueprint: TypeAlias = Of | Several | Fixed | Mapped | Chosen | Maybe | Fields

#: Key of mappings, which no field has as its name.
KEY = "k"

KINDS = ("dataclass", "typed dict", "named tuple", "struct", "array", "omitting")
_NAMES = "abcd"

_scalars = st.one_of(
    st.sampled_from([Of(kind) for kind in SCALARS]),
    st.integers(0, 2).map(lambda least: Of(int, least)),
)
_hashable = st.sampled_from([Of(int), Of(float), Of(str), Of(bool), Of(Decimal), Of(date)])


def _records(inner: st.SearchStrategy[Blueprint]) -> st.SearchStrategy[Blueprint]:
    return st.builds(
        lambda kind, names, ofs, optional, closed, tag: _record(
            kind, names[: len(ofs)], ofs, optional, closed, tag
        ),
        st.sampled_from(KINDS),
        st.permutations(_NAMES),
        st.lists(inner, max_size=3),
        st.integers(0, 3),
        st.booleans(),
        st.sampled_from([None, None, "x", "y"]),
    )


def _record(
    kind: str, names: list[str], ofs: list[Blueprint], optional: int, closed: bool, tag: str | None
) -> Fields:
    """The last ``optional`` parts have a default; some settings are for Structs."""
    struct = kind in ("struct", "array", "omitting")
    parts = tuple(
        Part(name, of, optional=index >= len(ofs) - optional)
        for index, (name, of) in enumerate(zip(names, ofs, strict=True))
    )
    return Fields(kind, parts, closed and struct, tag if struct else None)


blueprints: st.SearchStrategy[Blueprint] = st.recursive(
    st.one_of(
        _scalars,
        st.builds(
            lambda values, enum: Chosen(tuple(sorted(values)), enum),
            st.sets(st.sampled_from("xyz"), min_size=1),
            st.booleans(),
        ),
    ),
    lambda inner: st.one_of(
        st.builds(Several, st.just(list), inner),
        st.builds(Several, st.sampled_from([set, frozenset]), _hashable),
        st.builds(Several, st.just(tuple), inner),
        st.lists(inner, max_size=2).map(lambda items: Fixed(tuple(items))),
        inner.map(Mapped),
        inner.map(lambda of: of if isinstance(of, Maybe) or of == Of(type(None)) else Maybe(of)),
        _records(inner),
    ),
    max_leaves=5,
)


@st.composite
def changed(draw: st.DrawFn, before: Blueprint) -> Blueprint:
    """Return ``before``, unchanged or with a small change."""
    if draw(st.integers(0, 3)) == 0:
        return draw(_changed_here(before))
    match before:
        case Several(kind, item) if kind in (list, tuple):
            return Several(kind, draw(changed(item)))
        case Mapped(value):
            return Mapped(draw(changed(value)))
        case Fixed(items):
            return Fixed(tuple(draw(changed(item)) for item in items))
        case Maybe(of):
            inner = draw(changed(of))
            return inner if isinstance(inner, Maybe) or inner == Of(type(None)) else Maybe(inner)
        case Fields(parts=parts):
            return replace(
                before, parts=tuple(replace(one, of=draw(changed(one.of))) for one in parts)
            )
        case _:
            return before


def _changed_here(before: Blueprint) -> st.SearchStrategy[Blueprint]:
    options: list[st.SearchStrategy[Blueprint]] = [blueprints]
    match before:
        case Of():
            options = [_scalars, st.just(Maybe(before)) if before != Of(type(None)) else _scalars]
        case Several(kind, item):
            kinds = [list, tuple, *([set, frozenset] if kind in (set, frozenset) else [])]
            options.append(st.sampled_from([Several(one, item) for one in kinds]))
        case Maybe(of):
            options.append(st.just(of))
        case Fields(parts=parts):
            options = [
                st.sampled_from(KINDS).map(
                    lambda kind: _record(
                        kind,
                        [one.name for one in parts],
                        [one.of for one in parts],
                        sum(one.optional for one in parts),
                        before.closed,
                        before.tag,
                    )
                ),
                st.just(replace(before, parts=parts[:-1])),
                st.just(replace(before, parts=parts[1:])),
                st.builds(
                    lambda of, optional: replace(
                        before,
                        parts=(
                            *parts,
                            Part("e", of, optional or any(one.optional for one in parts)),
                        ),
                    ),
                    _scalars,
                    st.booleans(),
                ),
            ]
        case _:
            pass
    return st.one_of(options)


def made(blueprint: Blueprint) -> Any:
    """Return the Python type of ``blueprint``."""
    match blueprint:
        case Of(kind, None):
            return kind
        case Of(kind, least):
            return Annotated[kind, msgspec.Meta(ge=least)]
        case Several(kind, item):
            return GenericAlias(kind, (made(item), ...) if kind is tuple else (made(item),))
        case Fixed(items):
            return GenericAlias(tuple, tuple(map(made, items)))
        case Mapped(value):
            return GenericAlias(dict, (str, made(value)))
        case Chosen(values, True):
            return Enum("E", {f"M{value}": value for value in values})
        case Chosen(values, _):
            return Literal[values]
        case Maybe(of):
            return made(of) | None
        case Fields():
            return _class(blueprint)


def _class(blueprint: Fields) -> Any:
    kind = blueprint.kind
    typed = [(one, made(one.of)) for one in blueprint.parts]
    if kind == "typed dict":
        annotations = {p.name: NotRequired[of] if p.optional else of for p, of in typed}
        return TypedDict("R", annotations)  # type: ignore[operator]  # made up at random
    defaults = {one.name: next(samples(one.of, made(one.of))) for one, _ in typed if one.optional}
    if kind == "dataclass":
        return make_dataclass(
            "R",
            [
                (p.name, of, field(default_factory=partial(defaults.__getitem__, p.name)))
                if p.optional and not _is_scalar(p.of)
                else (p.name, of, field(default=defaults[p.name]))
                if p.optional
                else (p.name, of)
                for p, of in typed
            ],
        )
    if kind == "named tuple":
        make: Any = NamedTuple  # type checkers want to see its fields
        cls = make("R", [(p.name, of) for p, of in typed])
        cls.__new__.__defaults__ = tuple(defaults.values())
        cls._field_defaults = defaults
        return cls
    return msgspec.defstruct(
        "R",
        [
            (p.name, of, msgspec.field(default_factory=partial(defaults.__getitem__, p.name)))
            if p.optional and not _is_scalar(p.of)
            else (p.name, of, defaults[p.name])
            if p.optional
            else (p.name, of)
            for p, of in typed
        ],
        array_like=kind == "array",
        omit_defaults=kind == "omitting",
        forbid_unknown_fields=blueprint.closed,
        tag=blueprint.tag,
    )


def _is_scalar(blueprint: Blueprint) -> bool:
    return isinstance(blueprint, Of)


def samples(blueprint: Blueprint, of: Any) -> Iterator[Any]:
    """Return values of ``blueprint``, whose type is ``of``."""
    match blueprint:
        case Of(kind, least):
            yield from (one for one in SCALARS[kind] if least is None or one >= least)
        case Several(kind, item):
            inner = list(samples(item, _args(of)[0]))
            yield kind()
            yield from (kind([one]) for one in inner)
            yield kind([inner[0], inner[0]])
        case Fixed(items):
            inner = [list(samples(*pair)) for pair in zip(items, _args(of), strict=True)]
            yield from (tuple(row) for row in _one_by_one(inner))
        case Mapped(value):
            yield {}
            yield from ({KEY: one} for one in samples(value, _args(of)[1]))
        case Chosen(_, True):
            yield from of
        case Chosen(values, _):
            yield from values
        case Maybe(inside):
            yield None
            yield from samples(inside, next(one for one in _args(of) if one is not type(None)))
        case Fields():
            yield from _records_of(blueprint, of)


def _records_of(blueprint: Fields, cls: Any) -> Iterator[Any]:
    hints = _hints(cls)
    inner = [list(samples(one.of, hints[one.name])) for one in blueprint.parts]
    names = [one.name for one in blueprint.parts]
    for row in _one_by_one(inner):
        yield cls(**dict(zip(names, row, strict=True)))
    needed = {
        one.name: values[0]
        for one, values in zip(blueprint.parts, inner, strict=True)
        if not one.optional
    }
    yield cls(**needed)


def _hints(cls: Any) -> dict[str, Any]:
    hints: dict[str, Any] = dict(cls.__annotations__)
    return {
        name: _args(hint)[0] if getattr(hint, "__origin__", None) is NotRequired else hint
        for name, hint in hints.items()
    }


def _args(of: Any) -> tuple[Any, ...]:
    args: tuple[Any, ...] = of.__args__
    return args


def _one_by_one(inner: list[list[Any]]) -> Iterator[list[Any]]:
    """Return rows in which each value occurs: all first ones, then the others one by one."""
    first = [values[0] for values in inner]
    yield first
    for index, values in enumerate(inner):
        for value in values[1:]:
            yield [*first[:index], value, *first[index + 1 :]]
