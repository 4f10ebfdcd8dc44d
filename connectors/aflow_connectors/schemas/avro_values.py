"""Records as the values that fastavro encodes, checked against the schema.

fastavro encodes some values that are not of the schema: 3.7 as the int 3, a naive datetime in the time zone of the
machine, a large number as an int of 32 bits that no reader accepts, or as an infinite float. So each value is checked
here, and an error names the field.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Any, Final, TypeAlias, cast
from uuid import UUID

from aflow.errors import shown
from aflow_connectors.fields import fields_of
from aflow_connectors.formats.format import FormatError
from aflow_connectors.schemas.field_path import within

Convert: TypeAlias = Callable[[Any], Any]

_INTS: Final = {"int": 2**31, "long": 2**63}

#: The smallest number that a float of 32 bits rounds to an infinite one.
_INFINITE: Final = 2.0**128 - 2.0**103


def avro_converter(schema: object, named: Mapping[str, Any]) -> Convert:
    """Return the function that returns a record as a value of ``schema``, and raises ``FormatError`` if it is none.

    ``schema`` and its ``named`` types are in the form of ``fastavro.parse_schema``.
    """
    return _Converters(named).of(schema)


class _Converters:
    def __init__(self, named: Mapping[str, Any]) -> None:
        self._named = named
        self._made: dict[str, Convert] = {}

    def of(self, schema: Any) -> Convert:
        if isinstance(schema, list):
            branches = cast("list[object]", schema)
            return self._union([self.of(branch) for branch in branches], branches)
        if isinstance(schema, str):
            return _PLAIN[schema] if schema in _PLAIN else self._by_name(schema)
        kind: Any = schema["type"]
        logical = schema.get("logicalType")
        if isinstance(kind, str) and (kind, logical) in _LOGICAL:
            return _LOGICAL[kind, logical]  # that of another type has no meaning
        match kind:
            case "record" | "error":
                return self._record(schema)
            case "enum":
                return _enum(schema)
            case "fixed":
                return _fixed(schema["size"])
            case "array":
                return _array(self.of(schema["items"]))
            case "map":
                return _map(self.of(schema["values"]))
            case _:
                return self.of(kind)

    def _by_name(self, name: str) -> Convert:
        """Return the converter of a type that may be being made."""
        if name not in self._made:
            made: list[Convert] = []

            def later(value: Any) -> Any:
                if not made:
                    made.append(self.of(self._named[name]))
                return made[0](value)

            self._made[name] = later
        return self._made[name]

    def _record(self, schema: Any) -> Convert:
        name: str = schema["name"]
        fields = [(one["name"], self.of(one["type"]), "default" in one) for one in schema["fields"]]
        names = frozenset(one[0] for one in fields)

        def convert(record: Any) -> dict[str, Any]:
            # Hot path: once for each encoded record.
            try:
                given = fields_of(record)
            except TypeError:
                raise _not(name, record) from None
            out: dict[str, Any] = {}
            field = ""
            try:
                for field, convert_field, has_default in fields:
                    if field in given:
                        out[field] = convert_field(given[field])
                    elif not has_default:
                        raise FormatError("it is missing")
            except FormatError as exc:
                raise within(field, exc) from None
            if len(out) < len(given):
                undeclared = sorted(map(str, set(given) - names))
                raise FormatError(f"the schema has no field {', '.join(map(repr, undeclared))}")
            return out

        return convert

    def _union(self, branches: list[Convert], schema: Any) -> Convert:
        if len(branches) == 2 and schema[0] == "null":
            other = branches[1]
            return lambda value: None if value is None else other(value)

        def convert(value: Any) -> Any:
            reasons: list[FormatError] = []
            for branch in branches:
                try:
                    return branch(value)
                except FormatError as exc:
                    reasons.append(exc)
            if len(reasons) == 2 and "null" in schema:
                raise reasons[1 - schema.index("null")]
            raise FormatError(
                f"{shown(value)} is of none of the {len(branches)} types of the union"
            )

        return convert


def _enum(schema: Any) -> Convert:
    symbols = frozenset(schema["symbols"])

    def convert(value: Any) -> Any:
        value = value.value if isinstance(value, Enum) else value
        if not isinstance(value, str) or value not in symbols:  # others may have no hash
            raise FormatError(f"{shown(value)} is not one of {', '.join(schema['symbols'])}")
        return value

    return convert


def _fixed(size: int) -> Convert:
    def convert(value: Any) -> bytes:
        data = _bytes(value)
        if len(data) != size:
            raise FormatError(f"{len(data)} bytes, and the type has {size}")
        return data

    return convert


def _array(of: Convert) -> Convert:
    def convert(value: Any) -> list[Any]:
        if not isinstance(value, (list, tuple, set, frozenset)):
            raise _not("array", value)
        items = cast("Iterable[object]", value)
        return [of(item) for item in items]

    return convert


def _map(of: Convert) -> Convert:
    def convert(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise _not("map", value)
        entries = cast("dict[object, object]", value)
        return {_string(key): of(item) for key, item in entries.items()}

    return convert


def _null(value: Any) -> None:
    if value is not None:
        raise _not("null", value)


def _boolean(value: Any) -> bool:
    if type(value) is not bool:
        raise _not("boolean", value)
    return value


def _whole(kind: str) -> Convert:
    bound = _INTS[kind]

    def convert(value: Any) -> int:
        if type(value) is not int:
            value = value.value if isinstance(value, Enum) else value
            if type(value) is not int:
                raise _not(kind, value)
        if not -bound <= value < bound:
            raise FormatError(f"{value} is too large for {kind}")
        return value

    return convert


def _number(value: Any) -> float:
    if type(value) is float:
        return value
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        raise _not("double", value)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if value != number:
        raise FormatError(f"{shown(value)} is not exactly a double")
    return number


def _single(value: Any) -> float:
    number = _number(value)
    if _INFINITE <= abs(number) < math.inf:
        raise FormatError(f"{value} is too large for float")
    return number


def _bytes(value: Any) -> bytes:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise _not("bytes", value)
    return bytes(cast(bytes, value))


def _string(value: Any) -> str:
    if type(value) is str:
        return value
    value = value.value if isinstance(value, Enum) else value
    if not isinstance(value, str):
        raise _not("string", value)
    return value


def _timestamp(value: Any) -> datetime:
    if not isinstance(value, datetime):
        raise _not("timestamp, a datetime", value)
    if value.tzinfo is None:
        raise FormatError(f"{value!r} has no time zone, which a timestamp needs")
    return value


def _local_timestamp(value: Any) -> datetime:
    if not isinstance(value, datetime):
        raise _not("local timestamp, a datetime", value)
    if value.tzinfo is not None:
        raise FormatError(f"{value!r} has a time zone, and a local timestamp has none")
    return value


def _date(value: Any) -> date:
    if type(value) is not date:
        raise _not("date", value)
    return value


def _time(value: Any) -> time:
    if not isinstance(value, time):
        raise _not("time", value)
    if value.tzinfo is not None:
        raise FormatError(f"{value!r} has a time zone, which a time of Avro cannot have")
    return value


def _decimal(value: Any) -> Decimal:
    if not isinstance(value, Decimal):
        raise _not("decimal", value)
    if not value.is_finite():
        raise FormatError(f"{value} is not a finite number")
    return value


def _uuid(value: Any) -> UUID:
    if not isinstance(value, UUID):
        raise _not("uuid", value)
    return value


def _not(kind: str, value: object) -> FormatError:
    return FormatError(f"{shown(value)} is not of type {kind}")


_PLAIN: Final[Mapping[str, Convert]] = {
    "null": _null,
    "boolean": _boolean,
    "int": _whole("int"),
    "long": _whole("long"),
    "float": _single,
    "double": _number,
    "bytes": _bytes,
    "string": _string,
}

_LOGICAL: Final[Mapping[tuple[str, Any], Convert]] = {
    ("long", "timestamp-millis"): _timestamp,
    ("long", "timestamp-micros"): _timestamp,
    ("long", "local-timestamp-millis"): _local_timestamp,
    ("long", "local-timestamp-micros"): _local_timestamp,
    ("int", "date"): _date,
    ("int", "time-millis"): _time,
    ("long", "time-micros"): _time,
    ("bytes", "decimal"): _decimal,
    ("fixed", "decimal"): _decimal,
    ("string", "uuid"): _uuid,
}
