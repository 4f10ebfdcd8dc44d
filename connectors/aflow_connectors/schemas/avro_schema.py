"""The Avro schema of a declared type.

| Python | Avro |
|---|---|
| bool, int, float, str, bytes, None | boolean, long, double, string, bytes, null |
| ``datetime`` | long, timestamp-micros; with ``msgspec.Meta(tz=False)`` local-timestamp-micros |
| ``date``, ``time``, ``UUID`` | int, date; long, time-micros; string, uuid |
| ``Annotated[Decimal, decimal(precision, scale)]`` | bytes, decimal |
| ``Enum`` of str that are names, of other str, of int | enum, string, long |
| ``Literal`` of str, of int | string, long |
| list, set, frozenset, ``tuple[X, ...]`` | array |
| ``dict[str, X]`` | map |
| ``X | None``, and other unions that msgspec decodes | union |
| dataclass, ``msgspec.Struct``, TypedDict, NamedTuple | record, named like the class |

A default of a field is its default in Avro if JSON can express it: None, bool, int, float, str, bytes, members of
enums, and empty collections.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Final, cast

import msgspec
from msgspec import inspect

from aflow.errors import FlowDefinitionError, shown

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_DECIMAL: Final = "avro_decimal"
_ALIASES: Final = "avro_aliases"

_SIMPLE: Final[Mapping[type[inspect.Type], object]] = {
    inspect.NoneType: "null",
    inspect.BoolType: "boolean",
    inspect.IntType: "long",
    inspect.FloatType: "double",
    inspect.StrType: "string",
    inspect.BytesType: "bytes",
    inspect.DateType: {"type": "int", "logicalType": "date"},
    inspect.TimeType: {"type": "long", "logicalType": "time-micros"},
    inspect.UUIDType: {"type": "string", "logicalType": "uuid"},
}

_RECORDS: Final = (
    inspect.DataclassType,
    inspect.StructType,
    inspect.TypedDictType,
    inspect.NamedTupleType,
)

_ARRAYS: Final = (
    inspect.ListType,
    inspect.SetType,
    inspect.FrozenSetType,
    inspect.VarTupleType,
)

#: Defaults that say which branch of a union is theirs.
_BRANCH_OF: Final[Mapping[type, str]] = {
    bool: "boolean",
    int: "long",
    float: "double",
    str: "string",
    bytes: "bytes",
    list: "array",
    dict: "map",
}


def decimal(precision: int, scale: int) -> msgspec.Meta:
    """Annotate a ``Decimal`` of at most ``precision`` digits, ``scale`` of them after the point:
    ``Annotated[Decimal, decimal(12, 2)]``. Raises ``FlowDefinitionError``.
    """
    if type(precision) is not int or type(scale) is not int or not 0 <= scale <= precision > 0:
        raise FlowDefinitionError(
            f"decimal(precision, scale) takes whole numbers with 0 <= scale <= precision, not {shown(precision)} and "
            f"{shown(scale)}"
        )
    return msgspec.Meta(extra={_DECIMAL: (precision, scale)})


def aliases(*names: str) -> msgspec.Meta:
    """Annotate a field that had other names: ``card: Annotated[str, aliases("number")]``.

    Records that were written with one of them are decoded too. Raises ``FlowDefinitionError``.
    """
    for name in names:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise FlowDefinitionError(f"aliases takes names of fields, not {shown(name)}")
    return msgspec.Meta(extra={_ALIASES: list(names)})


def derived_schema(of: Any, name: str | None) -> object:
    """Return the schema of ``of``; ``name`` is the full name of its record, by default that of the class.

    Raises ``FlowDefinitionError`` for types without a place in the table at the top of the module.
    """
    try:
        declared = inspect.type_info(of)
    except TypeError as exc:
        raise FlowDefinitionError(f"Avro: cannot decode into {of!r}: {exc}") from exc
    return _Derivation(name).schema(declared, shown(of))


class _Derivation:
    """The derivation of one schema; each record and enum is defined once and then named."""

    def __init__(self, name: str | None) -> None:
        self._top = name
        #: The classes of records and enums by their names.
        self._named: dict[str, type] = {}

    def schema(self, want: inspect.Type, place: str) -> object:
        """Return the schema of ``want``; ``place`` is its field, for messages."""
        extra: Mapping[str, Any] = {}
        while isinstance(want, inspect.Metadata):
            extra = {**_extra_of(want), **extra}
            want = want.type
        simple = _SIMPLE.get(type(want))
        if simple is not None:
            return dict(cast("dict[str, object]", simple)) if isinstance(simple, dict) else simple
        if isinstance(want, inspect.DecimalType):
            return _decimal_schema(extra, place)
        if isinstance(want, inspect.DateTimeType):
            kind = "local-timestamp-micros" if want.tz is False else "timestamp-micros"
            return {"type": "long", "logicalType": kind}
        if isinstance(want, inspect.LiteralType):
            return _literal_schema(want, place)
        if isinstance(want, inspect.EnumType):
            return self._enum(want.cls, place)
        if isinstance(want, _ARRAYS):
            return {"type": "array", "items": self.schema(want.item_type, f"items of {place}")}
        if isinstance(want, inspect.DictType):
            return self._map(want, place)
        if isinstance(want, inspect.UnionType):
            return self._union(want, place)
        if isinstance(want, _RECORDS):
            return self._record(want, place)
        raise _refused(place, f"{type(want).__name__.removesuffix('Type')} has no Avro type")

    def _map(self, want: inspect.DictType, place: str) -> object:
        key = want.key_type
        while isinstance(key, inspect.Metadata):
            key = key.type
        if not isinstance(key, inspect.StrType):
            raise _refused(place, "keys of an Avro map are str")
        return {"type": "map", "values": self.schema(want.value_type, f"values of {place}")}

    def _union(self, want: inspect.UnionType, place: str) -> list[object]:
        if sum(isinstance(_bare(one), _RECORDS) for one in want.types) > 1:
            raise _refused(
                place, "records of several classes in a union are not told apart when decoded"
            )
        branches = [self.schema(one, place) for one in want.types]
        return sorted(branches, key=lambda branch: branch != "null")

    def _enum(self, cls: type[Enum], place: str) -> object:
        values = [member.value for member in cls]
        if all(type(value) is int for value in values):
            return "long"
        if not all(isinstance(value, str) for value in values):
            raise _refused(place, f"the values of {cls.__name__} are not all str, or all int")
        if not all(_NAME.fullmatch(value) for value in values):
            return "string"
        symbols = [str(value) for value in values]
        return self._defined(cls, place) or {
            "type": "enum",
            "name": cls.__name__,
            "symbols": symbols,
        }

    def _record(self, want: Any, place: str) -> object:
        cls: type = want.cls
        if getattr(want, "array_like", False):
            raise _refused(place, f"{cls.__name__} is array_like")
        name, self._top = self._top or cls.__name__, None
        known = self._defined(cls, place, name)
        if known is not None:
            return known
        fields = [self._field(field, cls) for field in want.fields]
        return {"type": "record", "name": name, "fields": fields}

    def _defined(self, cls: type, place: str, name: str = "") -> str | None:
        """Return the name of ``cls`` if it was defined before. Raises ``FlowDefinitionError`` for a second one."""
        if getattr(cls, "__parameters__", ()):
            raise _refused(place, f"{cls.__name__} is generic")
        for known, other in self._named.items():
            if other is cls:
                return known
        name = name or cls.__name__
        if name in self._named:
            raise _refused(place, f"there are two classes named {name}")
        self._named[name] = cls
        return None

    def _field(self, field: inspect.Field, cls: type) -> dict[str, object]:
        name, place = field.encode_name, f"{cls.__name__}.{field.name}"
        if not _NAME.fullmatch(name):
            raise _refused(place, f"{name!r} is not the name of a field in Avro")
        not_required = not field.required and _default_of(field) is msgspec.NODEFAULT
        if not_required and field.default_factory is msgspec.NODEFAULT:
            raise _refused(
                place, "a record of Avro has all of its fields, so NotRequired has no place"
            )
        found: dict[str, object] = {"name": name, "type": self.schema(field.type, place)}
        if isinstance(field.type, inspect.Metadata):
            known = _extra_of(field.type).get(_ALIASES)
            if known:
                found["aliases"] = known
        default = _default_of(field)
        if default is not msgspec.NODEFAULT:
            _add_default(found, default)
        return found


def _add_default(field: dict[str, object], default: object) -> None:
    """Add ``default`` to ``field``. In a union its branch has to be the first one."""
    schema = field["type"]
    if isinstance(schema, list):
        branches = cast("list[object]", schema)
        kind = "null" if default is None else _BRANCH_OF[type(default)]
        of_kind = [one for one in branches if one == kind or _is_kind(one, default, kind)]
        if not of_kind:
            return
        field["type"] = [of_kind[0], *(one for one in branches if one is not of_kind[0])]
        schema = of_kind[0]
    if isinstance(schema, dict) and "logicalType" in schema:
        return  # its default would be that of the type below it
    if isinstance(default, int) and schema == "double":
        default = float(default)
    field["default"] = default.decode("latin-1") if isinstance(default, bytes) else default


def _is_kind(branch: object, default: object, kind: str) -> bool:
    if not isinstance(branch, dict):
        return False
    found = cast("dict[str, object]", branch)
    if found["type"] == "enum":
        return default in cast("Sequence[object]", found["symbols"])
    return found["type"] == kind and "logicalType" not in found


def _extra_of(want: inspect.Metadata) -> Mapping[str, Any]:
    return cast("dict[str, Any] | None", want.extra) or {}  # pyright: ignore[reportUnknownMemberType]


def _default_of(field: inspect.Field) -> object:
    """Return the default of ``field`` if JSON can express it, else ``NODEFAULT``."""
    factory = field.default_factory
    if factory in (list, set, frozenset, tuple):
        return []
    if factory is dict:
        return {}
    default: object = field.default
    if isinstance(default, Enum):
        default = default.value
    if isinstance(default, float) and not math.isfinite(default):
        return msgspec.NODEFAULT
    if default in ((), frozenset()):
        return []
    is_plain = default is None or type(default) in (bool, int, float, str, bytes)
    return default if is_plain else msgspec.NODEFAULT


def _decimal_schema(extra: Mapping[str, Any], place: str) -> object:
    known = extra.get(_DECIMAL)
    if known is None:
        raise _refused(
            place, "a Decimal needs its digits: Annotated[Decimal, decimal(precision, scale)]"
        )
    precision, scale = known
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


def _literal_schema(want: inspect.LiteralType, place: str) -> object:
    kinds = {type(value) for value in want.values}
    if kinds == {str}:
        return "string"
    if kinds == {int}:
        return "long"
    raise _refused(place, "a Literal has values that are all str, or all int")


def _bare(want: inspect.Type) -> inspect.Type:
    while isinstance(want, inspect.Metadata):
        want = want.type
    return want


def _refused(place: str, reason: str) -> FlowDefinitionError:
    return FlowDefinitionError(
        f"Avro: there is no schema of {place}: {reason}. Give one with schema=…"
    )
