"""Conversion of Python values for Arrow columns of a declared type, and refusal of values that do not fit.

Arrow alone accepts too much: it makes the integer 1 of 1.5, a UTC instant of a naive datetime and microseconds since
1970 of an int, and drops unknown fields of a struct. Here each of these is an error or is converted by its meaning.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Final, TypeAlias, cast
from uuid import UUID

from aflow.errors import shown
from aflow_connectors.fields import fields_of
from aflow_connectors.spark.dataframe.arrow import pa

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LARGEST_FLOAT32: Final = 3.4028235677973366e38

Convert: TypeAlias = Callable[[Any], Any]


@dataclass(frozen=True, slots=True)
class Cast:
    """Conversion of values to one Arrow type. ``None`` is always accepted: the nullability of a column is checked
    elsewhere.
    """

    native: frozenset[type]
    """Types whose values Arrow accepts unchanged."""
    convert: Convert
    """Converts any other value. Raises ``ValueError`` with the reason."""

    def column(self, values: list[Any], kinds: set[type]) -> list[Any]:
        """Return ``values``, whose types are ``kinds``, converted for Arrow. Raises ``ValueError``."""
        return values if kinds <= self.native else [self.one(value) for value in values]

    def one(self, value: Any) -> Any:
        """Return one value converted for Arrow. Raises ``ValueError``."""
        if type(value) in self.native:
            return value
        # Sources convert the stored value back to the enum.
        return self.convert(value.value if isinstance(value, Enum) else value)


def cast_to(kind: Any) -> Cast:
    """Return the conversion to the Arrow type ``kind``."""
    for holds, make in _NESTED:
        if getattr(pa.types, holds)(kind):
            return _cast(make(kind))
    for holds, convert, *native in _PLAIN:
        if getattr(pa.types, holds)(kind):
            return _cast(convert, *native)
    return _cast(lambda value: value)


def _cast(convert: Convert, *native: type) -> Cast:
    return Cast(frozenset({type(None), *native}), convert)


def _integer(value: Any) -> int:
    if isinstance(value, bool):
        raise ValueError("it is a bool")
    try:
        if isinstance(value, float) and value.is_integer():
            return int(value)
        return operator.index(cast(int, value))  # which tells
    except TypeError:
        raise ValueError("it is no whole number") from None


def _double(value: Any) -> float:
    if isinstance(value, bool | str | bytes):
        raise ValueError(f"it is a {type(value).__name__}")
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise ValueError("it is no number") from None


def _float(value: Any) -> float:
    number = _double(value)
    if abs(number) > _LARGEST_FLOAT32 and not math.isinf(number):
        raise ValueError("it is beyond the largest number of 32 bits; declare the column as double")
    return number


def _only(kind: type, hint: str = "") -> Convert:
    def convert(value: Any) -> Any:
        if isinstance(value, kind):
            return value
        raise ValueError(f"it is no {kind.__name__}{hint}")

    return convert


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, UUID):
        return str(value)
    raise ValueError("it is no str")


def _bool(value: Any) -> bool:
    if type(value).__name__ in ("bool", "bool_"):  # of numpy
        return bool(value)
    raise ValueError("it is no bool")


def _date(value: Any) -> date:
    if isinstance(value, datetime):
        raise ValueError("it has a time of day, too; .date() leaves it out")
    return cast(date, _only(date)(value))


def _moment(value: Any) -> datetime:
    if isinstance(value, datetime):
        if value.utcoffset() is None:
            raise ValueError(
                "it has no time zone; give it one, or declare the column as timestamp_ntz"
            )
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        try:
            return _EPOCH + timedelta(milliseconds=value)
        except OverflowError:
            raise ValueError("as milliseconds since 1970 it is beyond the year 9999") from None
    raise ValueError("it is neither an aware datetime nor milliseconds since 1970")


def _local_time(value: Any) -> datetime:
    if not isinstance(value, datetime):
        raise ValueError("it is no datetime")
    if value.utcoffset() is not None:
        raise ValueError("it has a time zone; declare the column as timestamp")
    return value


def _decimal(value: Any) -> Any:
    if isinstance(value, bool):
        raise ValueError("it is a bool")
    if isinstance(value, Decimal | int):
        return value
    raise ValueError("it is neither a Decimal nor an int")


def _list(kind: Any) -> Convert:
    inner = cast_to(kind.value_type)

    def convert(value: Any) -> list[Any]:
        if isinstance(value, (str, bytes, dict)) or not hasattr(value, "__iter__"):
            raise ValueError("it is no list")
        return [inner.one(item) for item in value]

    return convert


def _map(kind: Any) -> Convert:
    keys, items = cast_to(kind.key_type), cast_to(kind.item_type)

    def convert(value: Any) -> list[tuple[Any, Any]]:
        return [(keys.one(key), items.one(item)) for key, item in _pairs_of(value)]

    return convert


def _pairs_of(value: Any) -> Iterable[tuple[Any, Any]]:
    """Return the entries of a dict or of a list of pairs; struct keys need the latter."""
    if isinstance(value, Mapping):
        return cast("dict[Any, Any]", value).items()
    if isinstance(value, list | tuple):
        pairs = cast("Sequence[Any]", value)
        if all(isinstance(pair, list | tuple) and len(cast("Any", pair)) == 2 for pair in pairs):
            return cast("Sequence[tuple[Any, Any]]", pairs)
    raise ValueError("it is neither a dict nor a list of pairs")


def _struct(kind: Any) -> Convert:
    parts = {part.name: cast_to(part.type) for part in kind}

    def convert(value: Any) -> dict[str, Any]:
        try:
            fields = fields_of(value)
        except TypeError as exc:
            raise ValueError(str(exc)) from None
        if fields.keys() != parts.keys():
            raise ValueError(f"its fields are {sorted(fields)}, and not {sorted(parts)}")
        return {name: part.one(fields[name]) for name, part in parts.items()}

    return convert


def _timestamp(kind: Any) -> Convert:
    return _local_time if kind.tz is None else _moment


#: Keyed by the predicate in ``pyarrow.types`` that recognises the type.
_NESTED: Final = (
    ("is_timestamp", _timestamp),
    ("is_list", _list),
    ("is_large_list", _list),
    ("is_map", _map),
    ("is_struct", _struct),
)

_PLAIN: Final = (
    ("is_integer", _integer, int),
    ("is_float64", _double, float, int),
    ("is_float32", _float),
    ("is_boolean", _bool, bool),
    ("is_string", _text, str),
    ("is_large_string", _text, str),
    ("is_binary", _only(bytes, "; encode() makes bytes of a str"), bytes, bytearray),
    ("is_large_binary", _only(bytes, "; encode() makes bytes of a str"), bytes, bytearray),
    ("is_decimal", _decimal, Decimal, int),
    ("is_date", _date, date),
    ("is_time", _only(time), time),
    ("is_duration", _only(timedelta), timedelta),
    ("is_null", _only(type(None))),
)


def first_mismatch(kind: Any, values: Iterable[Any]) -> tuple[int, str] | None:
    """Return the index of the first of ``values`` that a column of ``kind`` cannot hold, and the reason; None if all
    fit.
    """
    made = cast_to(kind)
    for index, value in enumerate(values):
        try:
            pa.array([made.one(value)], type=kind)
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as exc:
            return index, str(exc) or shown(exc)
    return None
