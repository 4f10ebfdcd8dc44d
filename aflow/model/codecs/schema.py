"""Schemas: the structure of the bytes of a typed value as data, stored with the values for a later program.

A *schema* describes the bytes, not the class: fields by their stored names, in a map or in the order of an array;
defaults, which show the fields that may be missing; values of an enum, and not the names of its members. So a class
that is renamed or moved, or a dataclass that becomes a ``Struct``, has the same schema.

``Schema.plain`` is the stored form, in lists, dicts and text, and part of the format of snapshots:

====================================  ==================================================
``"int"``, ``["int", {"ge": 0}]``     a scalar, with its limits
``["list", item]``                    so ``set``, ``frozenset`` and ``tuple`` of any length
``["row", first, second, …]``         a tuple of fixed length
``["dict", key, value]``
``["values", name, value, …]``        a ``Literal``, or the enum ``name``
``["one of", option, …]``             a union
``["record", name]``                  described under its name in the second part
====================================  ==================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final, TypeAlias, cast

from aflow.model.codecs.base import CodecError

Limits: TypeAlias = tuple[tuple[str, Any], ...]
"""Names and values of ``msgspec.Meta`` constraints, sorted by name; values are plain."""


@dataclass(frozen=True, slots=True)
class Scalar:
    """A value without parts: ``int``, ``datetime``, ``None`` …"""

    name: str
    limits: Limits = ()

    def __str__(self) -> str:
        return self.name + _limits_text(self.limits)


@dataclass(frozen=True, slots=True)
class Items:
    """Any number of values of one shape; ``kind`` is ``list``, ``set``, ``frozenset`` or ``tuple``."""

    kind: str
    item: Shape
    limits: Limits = ()

    def __str__(self) -> str:
        more = ", ..." if self.kind == "tuple" else ""
        return f"{self.kind}[{self.item}{more}]{_limits_text(self.limits)}"


@dataclass(frozen=True, slots=True)
class TupleShape:
    """A tuple of fixed length."""

    items: tuple[Shape, ...]

    def __str__(self) -> str:
        return f"tuple[{', '.join(map(str, self.items)) or '()'}]"


@dataclass(frozen=True, slots=True)
class Entries:
    """A mapping with any keys."""

    key: Shape
    value: Shape
    limits: Limits = ()

    def __str__(self) -> str:
        return f"dict[{self.key}, {self.value}]{_limits_text(self.limits)}"


@dataclass(frozen=True, slots=True)
class Values:
    """One of some ints and strings: a ``Literal``, or the enum ``name``."""

    values: tuple[int | str, ...]
    name: str = ""

    def __str__(self) -> str:
        return f"{self.name or 'Literal'}[{', '.join(map(repr, self.values))}]"


@dataclass(frozen=True, slots=True)
class OneOf:
    """A union."""

    options: tuple[Shape, ...]

    def __str__(self) -> str:
        return " | ".join(map(str, self.options))


@dataclass(frozen=True, slots=True)
class Ref:
    """A record, by the name under which the schema describes it."""

    name: str

    def __str__(self) -> str:
        return self.name


Shape: TypeAlias = Scalar | Items | TupleShape | Entries | Values | OneOf | Ref


class Form(Enum):
    """The stored form of the fields of a record."""

    MAP = "map"
    """By name: dataclass, TypedDict, Struct."""
    ARRAY = "array"
    """In order; fields after the last known one are skipped: an ``array_like`` Struct."""
    ROW = "row"
    """In order, without further fields: NamedTuple."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field as it is stored."""

    name: str
    """Its stored name."""
    shape: Shape
    required: bool = True
    """True if reading fails without it."""
    default: str = ""
    """Its value if it is missing, as text; empty without one."""
    omitted: bool = False
    """True if it may be omitted from the stored form."""
    called: str = ""
    """Its name in the program, if different."""

    def __str__(self) -> str:
        shown = f"{self.called} (stored as {self.name})" if self.called else self.name
        default = f" = {self.default}" if self.default else "" if self.required else " (optional)"
        return f"{shown}: {self.shape}{default}"


@dataclass(frozen=True, slots=True)
class Record:
    """A value with named fields."""

    fields: tuple[Field, ...]
    form: Form = Form.MAP
    tag: tuple[str, int | str] | None = None
    """Field and value that identify a Struct in a union."""
    closed: bool = False
    """True if reading fails on unknown fields."""

    def __str__(self) -> str:
        begin, end = "{}" if self.form is Form.MAP else "()"
        tag = [f"{self.tag[0]} is {self.tag[1]!r}"] if self.tag else []
        return f"{begin}{', '.join([*tag, *map(str, self.fields)])}{end}"


@dataclass(frozen=True, slots=True)
class Schema:
    """The shape of a value, and the records in it; ``str(schema)`` is readable text."""

    root: Shape
    records: tuple[tuple[str, Record], ...] = ()
    by_name: Mapping[str, Record] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_name", dict(self.records))

    def __str__(self) -> str:
        """Return a text such as ``Payment, where Payment{card: str, amount: float = 0.0}``."""
        if isinstance(self.root, Ref) and len(self.records) == 1:
            return f"{self.root}{self.records[0][1]}"
        told = ", ".join(f"{name}{record}" for name, record in self.records)
        return f"{self.root}, where {told}" if told else str(self.root)

    @property
    def plain(self) -> object:
        """The stored form: plain values only."""
        return [_packed(self.root), {name: _packed_record(one) for name, one in self.records}]

    @staticmethod
    def of_plain(data: object) -> Schema:
        """Return the schema that ``plain`` was made from. Raises ``CodecError`` for anything else."""
        try:
            root, records = cast("tuple[Any, dict[str, Any]]", data)
            schema = Schema(
                _unpacked(root), tuple((name, _record(one)) for name, one in records.items())
            )
        except (TypeError, ValueError, KeyError, IndexError, AttributeError) as exc:
            raise CodecError(f"a stored schema cannot be read: {exc!r}") from exc
        return schema


def _limits_text(limits: Limits) -> str:
    return f"({', '.join(f'{name}={value!r}' for name, value in limits)})" if limits else ""


def _packed(shape: Shape) -> object:
    match shape:
        case Scalar(name, limits):
            return [name, dict(limits)] if limits else name
        case Items(kind, item, limits):
            return [kind, _packed(item), *_packed_limits(limits)]
        case TupleShape(items):
            return ["row", *map(_packed, items)]
        case Entries(key, value, limits):
            return ["dict", _packed(key), _packed(value), *_packed_limits(limits)]
        case Values(values, name):
            return ["values", name, *values]
        case OneOf(options):
            return ["one of", *map(_packed, options)]
        case Ref(name):
            return ["record", name]


def _packed_limits(limits: Limits) -> Iterable[object]:
    return [dict(limits)] if limits else []


def _packed_record(record: Record) -> object:
    packed: dict[str, object] = {"fields": [_packed_field(one) for one in record.fields]}
    if record.form is not Form.MAP:
        packed["form"] = record.form.value
    if record.tag is not None:
        packed["tag"] = list(record.tag)
    if record.closed:
        packed["closed"] = True
    return packed


def _packed_field(one: Field) -> object:
    more = {"default": one.default, "omitted": one.omitted, "called": one.called}
    said = {name: value for name, value in more.items() if value}
    if not one.required:
        said["optional"] = True
    return [one.name, _packed(one.shape), *([said] if said else [])]


def _unpacked(data: Any) -> Shape:
    if isinstance(data, str):
        return Scalar(data)
    kind, *parts = data
    unpack = _UNPACKED.get(kind)
    return Scalar(kind, _limits(parts)) if unpack is None else unpack(parts)


def _items(kind: str) -> Callable[[list[Any]], Shape]:
    return lambda parts: Items(kind, _unpacked(parts[0]), _limits(parts[1:]))


_UNPACKED: Final[Mapping[str, Callable[[list[Any]], Shape]]] = {
    **{kind: _items(kind) for kind in ("list", "set", "frozenset", "tuple")},
    "row": lambda parts: TupleShape(tuple(map(_unpacked, parts))),
    "dict": lambda parts: Entries(_unpacked(parts[0]), _unpacked(parts[1]), _limits(parts[2:])),
    "values": lambda parts: Values(tuple(parts[1:]), parts[0]),
    "one of": lambda parts: OneOf(tuple(map(_unpacked, parts))),
    "record": lambda parts: Ref(parts[0]),
}


def _limits(parts: list[Any]) -> Limits:
    return tuple(sorted(parts[0].items())) if parts else ()


def _record(data: dict[str, Any]) -> Record:
    tag = data.get("tag")
    return Record(
        tuple(_field(*one) for one in data["fields"]),
        Form(data.get("form", "map")),
        None if tag is None else (tag[0], tag[1]),
        data.get("closed", False),
    )


def _field(name: str, shape: Any, said: Mapping[str, Any] | None = None) -> Field:
    said = said or {}
    return Field(
        name,
        _unpacked(shape),
        required=not said.get("optional", False),
        default=said.get("default", ""),
        omitted=said.get("omitted", False),
        called=said.get("called", ""),
    )
