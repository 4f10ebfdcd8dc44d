"""The schema of a declared type."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from types import NoneType
from typing import Any, Final, cast, get_args
from uuid import UUID

from msgspec import NODEFAULT, Struct, inspect

from aflow.model.codecs.schema import (
    Entries,
    Field,
    Form,
    Items,
    Limits,
    OneOf,
    Record,
    Ref,
    Scalar,
    Schema,
    Shape,
    TupleShape,
    Values,
)


def schema_of(described: inspect.Type) -> Schema:
    """Return the schema of a type that ``codec_for`` accepts."""
    builder = _SchemaBuilder()
    root = builder.shape(described)
    return Schema(root, tuple(builder.finished()))


#: The stored name of each type without parts, and the Python types of its values.
SCALARS: Final[dict[type[inspect.Type], tuple[str, tuple[type, ...]]]] = {
    inspect.NoneType: ("None", (NoneType,)),
    inspect.BoolType: ("bool", (bool,)),
    inspect.IntType: ("int", (int,)),
    inspect.FloatType: ("float", (float, int)),  # as type checkers do, accept an int for a float
    inspect.StrType: ("str", (str,)),
    inspect.BytesType: ("bytes", (bytes,)),
    inspect.ByteArrayType: ("bytes", (bytearray,)),
    inspect.DateTimeType: ("datetime", (datetime,)),
    inspect.TimeType: ("time", (time,)),
    inspect.DateType: ("date", (date,)),
    inspect.TimeDeltaType: ("timedelta", (timedelta,)),
    inspect.UUIDType: ("UUID", (UUID,)),
    inspect.DecimalType: ("Decimal", (Decimal,)),
}

_ITEMS: Final[dict[type[inspect.Type], str]] = {
    inspect.ListType: "list",
    inspect.SetType: "set",
    inspect.FrozenSetType: "frozenset",
    inspect.VarTupleType: "tuple",
}

_LIMITS: Final = tuple(
    sorted(("ge", "gt", "le", "lt", "max_length", "min_length", "multiple_of", "pattern", "tz"))
)


class _SchemaBuilder:
    """Collects the records of one type. A recursive type refers to the same description object again."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}
        self._kept: list[inspect.Type] = []  # so that no id is used twice
        self._records: dict[str, Record | None] = {}

    def finished(self) -> list[tuple[str, Record]]:
        return [(name, record) for name, record in self._records.items() if record is not None]

    def shape(self, part: inspect.Type) -> Shape:
        if (scalar := SCALARS.get(type(part))) is not None:
            return Scalar(scalar[0], _limits(part))
        if (kind := _ITEMS.get(type(part))) is not None:
            item = cast("inspect.Type", getattr(part, "item_type"))  # noqa: B009 - all four have it
            return Items(kind, self.shape(item), _limits(part))
        match part:
            case inspect.Metadata():
                return self.shape(part.type)
            case inspect.TupleType():
                return TupleShape(tuple(map(self.shape, part.item_types)))
            case inspect.DictType():
                return Entries(
                    self.shape(part.key_type), self.shape(part.value_type), _limits(part)
                )
            case inspect.UnionType():
                return OneOf(tuple(map(self.shape, part.types)))
            case inspect.LiteralType():
                return _literal(part.values)
            case inspect.EnumType():
                return Values(tuple(one.value for one in part.cls), _plain_name(part.cls))
            case inspect.StructType():
                return self._ref(part, part.cls, _struct)
            case inspect.DataclassType() | inspect.TypedDictType():
                return self._ref(part, part.cls, _map)
            case inspect.NamedTupleType():
                return self._ref(part, part.cls, _row)
            case _:  # codec_for has refused it
                raise TypeError(f"{type(part).__name__} has no schema")

    def _ref(self, part: Any, cls: Any, make: Callable[[Any, tuple[Field, ...]], Record]) -> Ref:
        name = self._names.get(id(part))
        if name is None:
            name = self._names[id(part)] = self._free_name(cls)
            self._kept.append(part)
            self._records[name] = None  # its place, and its name, are taken
            self._records[name] = make(part, tuple(self._field(one, part) for one in part.fields))
        return Ref(name)

    def _free_name(self, cls: Any) -> str:
        base = _plain_name(cls)
        name, number = base, 1
        while name in self._records:
            number += 1
            name = f"{base} #{number}"
        return name

    def _field(self, one: inspect.Field, part: inspect.Type) -> Field:
        return Field(
            one.encode_name,
            self.shape(one.type),
            required=one.required,
            default=_default_text(one),
            omitted=not one.required and _may_be_omitted(one, part),
            called="" if one.name == one.encode_name else one.name,
        )


def _plain_name(cls: Any) -> str:
    """Return its name without that of the function in which it was defined."""
    name = cls.__qualname__ if isinstance(cls, type) and not get_args(cls) else str(cls)
    return name.rpartition("<locals>.")[2]


def _struct(part: inspect.StructType, fields: tuple[Field, ...]) -> Record:
    tag = None if part.tag_field is None or part.tag is None else (part.tag_field, part.tag)
    form = Form.ARRAY if part.array_like else Form.MAP
    return Record(fields, form, tag, part.forbid_unknown_fields)


def _map(_: object, fields: tuple[Field, ...]) -> Record:
    return Record(fields)


def _row(_: object, fields: tuple[Field, ...]) -> Record:
    return Record(fields, Form.ROW)


def _literal(values: tuple[Any, ...]) -> Shape:
    """Return the shape of a literal. None is no value of it, but a type of its own: as in ``Literal["a"] | None``."""
    there = tuple(sorted((one for one in values if one is not None), key=repr))
    if None not in values:
        return Values(there)
    return OneOf((Values(there), Scalar("None"))) if there else Scalar("None")


def _limits(part: inspect.Type) -> Limits:
    said = ((name, getattr(part, name, None)) for name in _LIMITS)
    return tuple((name, value) for name, value in said if value is not None)


def _may_be_omitted(one: inspect.Field, part: inspect.Type) -> bool:
    if one.default is NODEFAULT and one.default_factory is NODEFAULT:
        return True  # NotRequired in a TypedDict, or UNSET
    if not isinstance(part, inspect.StructType) or part.array_like:
        return False
    if one.default is NODEFAULT and one.default_factory not in _EMPTY:
        return False  # its result is unknown, so the field is always stored
    cls: type[Struct] = getattr(part.cls, "__origin__", part.cls)
    return cls.__struct_config__.omit_defaults


#: Results of the factories that ``msgspec`` supports, as text.
_EMPTY: Final[dict[Any, str]] = {list: "[]", dict: "{}", set: "set()"}


def _default_text(one: inspect.Field) -> str:
    if one.default is not NODEFAULT:
        value: Any = one.default.value if isinstance(one.default, Enum) else one.default
        text = repr(value)  # one that has an address in it would be another one in each process
        return text if " at 0x" not in text else f"{type(value).__qualname__}(…)"
    if one.default_factory is NODEFAULT:
        return ""
    made: str | None = _EMPTY.get(one.default_factory)
    return made or f"{getattr(one.default_factory, '__qualname__', '…')}()"
