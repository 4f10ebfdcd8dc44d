"""Python values of Arrow columns, a whole column at a time.

The values are those of ``to_pylist``, with three differences. Moments are in ``datetime.UTC``, also inside structs,
lists and maps. A map is a dict. And a value that Python has no type for raises ``UnsupportedValue`` with the cure.

``to_pylist`` takes 3.7 µs for a moment and 1.1 µs for a local time. numpy makes all values of a column in one call,
which takes 0.1 µs for each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from types import ModuleType
from typing import Any, Final, cast

import msgspec
from msgspec import inspect

from aflow_connectors.declared_types import fields_by_name, without_none

Row = dict[str, Any]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_YEARS: Final = (
    "Python has years 1 to 9999 only; filter such rows out or cast the column to a number or text, "
    "where it is made"
)
_PAIRS: Final = (
    "make an array of structs of the map (in Spark: map_entries(column)), declare the field as "
    "list[tuple[Key, Value]], or make the key a NamedTuple"
)


class UnsupportedValue(ValueError):
    """A column holds a value without Python type. The message names it, and the cure."""


def python_values(arrow: ModuleType, column: Any, want: inspect.Type | None = None) -> list[Any]:
    """Return the values of an Arrow array, for a field of type ``want``; None if no type is declared.

    ``want`` decides only where ``msgspec.convert`` cannot start from a dict: a struct becomes a tuple for a NamedTuple,
    and a map a list of pairs for a list. Raises ``UnsupportedValue``.
    """
    types, kind = arrow.types, column.type
    if types.is_timestamp(kind):
        return _timestamps(arrow, column)
    if types.is_date32(kind):
        return _days(column)
    if types.is_struct(kind):
        return _structs(arrow, column, without_none(want))
    if types.is_map(kind):
        return _maps(arrow, column, without_none(want))
    if types.is_list(kind) or types.is_large_list(kind):
        return _lists(arrow, column, _item_of(without_none(want)))
    if types.is_fixed_size_list(kind):
        return python_values(arrow, column.cast(arrow.list_(kind.value_field)), want)
    return _plain(column)


def refusal(arrow: ModuleType, kind: Any, want: inspect.Type | None = None) -> str | None:
    """Return why values of the Arrow type ``kind`` have no Python value for ``want``; None if they have one."""
    types, want = arrow.types, without_none(want)
    if types.is_map(kind):
        key, value = _entry_of(want)
        # The keys of a NamedTuple are tuples; dicts and lists cannot be keys.
        if types.is_nested(kind.key_type) and not (_is_list(want) or by_place(key)):
            return f"a map with keys of type {kind.key_type} cannot be a dict of Python; {_PAIRS}"
        return refusal(arrow, kind.key_type, key) or refusal(arrow, kind.item_type, value)
    if types.is_struct(kind):
        inner = fields_by_name(want)
        reasons = (refusal(arrow, part.type, _type_of(inner.get(part.name))) for part in kind)
        return next(filter(None, reasons), None)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return refusal(arrow, kind.value_type, _item_of(want))
    return None


def rows_of(names: Sequence[str]) -> Callable[[Sequence[list[Any]]], list[Row]]:
    """Return the function that makes dicts with the keys ``names`` of as many columns, at least one."""
    # A display with the names written out takes 0.4 of the time of dict(zip(names, row)).
    variables = [f"v{index}" for index in range(len(names))]
    display = ", ".join(f"{name!r}: {one}" for name, one in zip(names, variables, strict=True))
    code = f"lambda columns: [{{{display}}} for {', '.join(variables)}, in zip(*columns)]"
    return cast("Callable[[Sequence[list[Any]]], list[Row]]", eval(code, {"zip": zip}))


def with_leaves(arrow: ModuleType, kind: Any, leaf: Callable[[Any], Any]) -> Any:
    """Return an Arrow type whose leaves, in Parquet's order, are replaced by the results of ``leaf``."""
    if arrow.types.is_struct(kind):
        return arrow.struct(
            [field.with_type(with_leaves(arrow, field.type, leaf)) for field in kind]
        )
    if arrow.types.is_map(kind):
        key = with_leaves(arrow, kind.key_type, leaf)
        item = kind.item_field.with_type(with_leaves(arrow, kind.item_type, leaf))
        return arrow.map_(key, item)
    if arrow.types.is_list(kind):
        return arrow.list_(kind.value_field.with_type(with_leaves(arrow, kind.value_type, leaf)))
    return leaf(kind)


# -- Plain columns.


def _timestamps(arrow: ModuleType, column: Any) -> list[Any]:
    if column.type.unit == "ns":  # finer than a datetime
        values = _plain(column)
        return values if column.type.tz is None else [one and one.astimezone(UTC) for one in values]
    if column.type.tz is None:
        return _by_numpy(column.cast(arrow.timestamp("us")))
    micros = column.cast(arrow.timestamp("us", "UTC")).cast(arrow.int64())
    try:
        since = micros.fill_null(0).to_numpy(zero_copy_only=False).view("m8[us]").tolist()
        moments: list[Any] = list(map(_EPOCH.__add__, since))
    except ImportError:  # no numpy
        return [one and one.astimezone(UTC) for one in _plain(column)]
    except (OverflowError, TypeError) as exc:
        raise UnsupportedValue(f"a moment is out of range ({exc}): {_YEARS}") from exc
    return _with_nulls(column, moments)


def _days(column: Any) -> list[Any]:
    return _by_numpy(column)


def _by_numpy(column: Any) -> list[Any]:
    try:
        values: list[Any] = column.to_numpy(zero_copy_only=False).tolist()
    except ImportError:  # no numpy
        return _plain(column)
    # numpy returns numbers for values outside the range of datetime or date.
    if int in set(map(type, values)):
        raise UnsupportedValue(f"a {column.type} is out of range: {_YEARS}")
    return values


def _plain(column: Any) -> list[Any]:
    try:
        return cast("list[Any]", column.to_pylist())
    except (OverflowError, ValueError) as exc:
        raise UnsupportedValue(f"a value has no Python value: {exc}") from exc


def _with_nulls(column: Any, values: list[Any]) -> list[Any]:
    if column.null_count:
        for index, valid in enumerate(column.is_valid().to_pylist()):
            if not valid:
                values[index] = None
    return values


# -- Columns of structs, lists and maps.


def _structs(arrow: ModuleType, column: Any, want: inspect.Type | None) -> list[Any]:
    names = [part.name for part in column.type]
    if len(set(names)) < len(names):
        raise UnsupportedValue(f"two fields of the struct have the same name: {', '.join(names)}")
    fields = fields_by_name(want)
    parts = {
        name: python_values(arrow, part, _type_of(fields.get(name)))
        for name, part in zip(names, column.flatten(), strict=True)
    }
    if by_place(want):
        rows: list[Any] = list(zip(*_by_place(fields, parts, len(column)), strict=True))
    elif names:
        rows = list(rows_of(names)(list(parts.values())))
    else:
        rows = [{} for _ in range(len(column))]
    return _with_nulls(column, rows)


def _by_place(
    fields: dict[str, inspect.Field], parts: dict[str, list[Any]], count: int
) -> list[list[Any]]:
    """Return the columns of a class with positional fields, up to the first missing one."""
    columns: list[list[Any]] = []
    for name, field in fields.items():
        if name in parts:
            columns.append(parts[name])
        elif field.default is not msgspec.NODEFAULT:
            columns.append([field.default] * count)
        elif field.default_factory is not msgspec.NODEFAULT:
            columns.append([field.default_factory() for _ in range(count)])
        else:
            break
    return columns or [[]] * count


def _lists(arrow: ModuleType, column: Any, item: inspect.Type | None) -> list[Any]:
    offsets = column.offsets.to_pylist()
    first, last = offsets[0], offsets[-1]
    items = python_values(arrow, column.values.slice(first, last - first), item)
    rows = [items[begin - first : end - first] for begin, end in pairwise(offsets)]
    return _with_nulls(column, rows)


def _maps(arrow: ModuleType, column: Any, want: inspect.Type | None) -> list[Any]:
    key, value = _entry_of(want)
    offsets = column.offsets.to_pylist()
    first, count = offsets[0], offsets[-1] - offsets[0]
    keys = python_values(arrow, column.keys.slice(first, count), key)
    items = python_values(arrow, column.items.slice(first, count), value)
    make: Callable[[list[Any], list[Any]], Any] = _pairs if _is_list(want) else _dict
    rows = [
        make(keys[begin - first : end - first], items[begin - first : end - first])
        for begin, end in pairwise(offsets)
    ]
    return _with_nulls(column, rows)


def _pairs(keys: list[Any], items: list[Any]) -> list[Any]:
    return list(zip(keys, items, strict=True))


def _dict(keys: list[Any], items: list[Any]) -> dict[Any, Any]:
    try:
        made = dict(zip(keys, items, strict=True))
    except TypeError as exc:
        raise UnsupportedValue(
            f"a map has keys that a dict of Python cannot have ({exc}): {_PAIRS}"
        ) from exc
    if len(made) < len(keys):
        raise UnsupportedValue(f"a map has a key twice, which a dict cannot have: {_PAIRS}")
    return made


# -- Declared types of nested values.


def _type_of(field: inspect.Field | None) -> inspect.Type | None:
    return None if field is None else field.type


def _item_of(want: inspect.Type | None) -> inspect.Type | None:
    return without_none(getattr(want, "item_type", None))


def _entry_of(want: inspect.Type | None) -> tuple[inspect.Type | None, inspect.Type | None]:
    """Return the declared types of a map's keys and values, as a dict or as a list of pairs."""
    if isinstance(want, inspect.DictType):
        return without_none(want.key_type), without_none(want.value_type)
    pair = _item_of(want)
    if isinstance(pair, inspect.TupleType) and len(pair.item_types) == 2:
        return pair.item_types
    return None, None


def _is_list(want: inspect.Type | None) -> bool:
    return isinstance(want, inspect.ListType | inspect.VarTupleType)


def by_place(want: inspect.Type | None) -> bool:
    """Return True if ``msgspec.convert`` makes the class ``want`` of a list instead of a dict."""
    return isinstance(want, inspect.NamedTupleType) or (
        isinstance(want, inspect.StructType) and want.array_like
    )
