"""Decode JSON into declared types, with NamedTuples as arrays or as objects.

msgspec reads a NamedTuple from an array only. ``JsonLinesSink`` writes it as an object, with the names of its fields.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain, repeat
from typing import TypeVar, cast

import msgspec
from msgspec import inspect

from aflow_connectors.declared_types import fields_by_name, without_none

T = TypeVar("T")


def json_decoder(of: type[T]) -> Callable[[bytes | str], T]:
    """Return the function that decodes a text as ``of``. Raises ``TypeError`` if msgspec cannot decode into ``of``.

    An object without a field of its NamedTuple gets the default of the field.
    """
    decode = msgspec.json.Decoder(of).decode
    declared = inspect.type_info(of)
    if not _contains_named_tuple(declared, set()):
        return decode

    def decode_arrays_or_objects(text: bytes | str) -> T:
        try:
            return decode(text)
        except msgspec.ValidationError:
            arrays = _with_arrays(msgspec.json.decode(text), declared)
            return msgspec.convert(arrays, of, str_keys=True)

    return decode_arrays_or_objects


def converter(of: type[T]) -> Callable[[object], T]:
    """Return the function that converts dicts and plain values to ``of``, in the way of ``json_decoder``.

    Raises ``TypeError`` if msgspec cannot convert to ``of``; the function raises ``msgspec.ValidationError``.
    """
    declared = inspect.type_info(of)
    if not _contains_named_tuple(declared, set()):
        return lambda value: msgspec.convert(value, of, str_keys=True)
    return lambda value: msgspec.convert(_with_arrays(value, declared), of, str_keys=True)


def _contains_named_tuple(want: inspect.Type, seen: set[int]) -> bool:
    if id(want) in seen:  # a recursive type
        return False
    seen.add(id(want))
    return isinstance(want, inspect.NamedTupleType) or any(
        _contains_named_tuple(part, seen) for part in _parts_of(want)
    )


def _parts_of(want: inspect.Type) -> Iterable[inspect.Type]:
    match want:
        case inspect.Metadata():
            yield want.type
        case inspect.UnionType():
            yield from want.types
        case inspect.DictType():
            yield want.value_type
        case _:
            yield from (field.type for field in getattr(want, "fields", ()))
            yield from getattr(want, "item_types", ())
            if (item := getattr(want, "item_type", None)) is not None:
                yield item


def _with_arrays(value: object, want: inspect.Type | None) -> object:
    """Return ``value`` with arrays instead of the objects that are declared as NamedTuples."""
    want = without_none(want)
    if isinstance(value, dict):
        record = cast("dict[str, object]", value)
        if isinstance(want, inspect.NamedTupleType):
            return [_with_arrays(_field_value(record, field), field.type) for field in want.fields]
        fields, other = fields_by_name(want), getattr(want, "value_type", None)
        return {
            name: _with_arrays(one, fields[name].type if name in fields else other)
            for name, one in record.items()
        }
    if isinstance(value, list):
        items = zip(cast("list[object]", value), _items_of(want), strict=False)
        return [_with_arrays(one, part) for one, part in items]
    return value


def _field_value(record: dict[str, object], field: inspect.Field) -> object:
    if field.encode_name in record:
        return record[field.encode_name]
    if field.required:
        raise msgspec.ValidationError(f"Object missing required field `{field.encode_name}`")
    return field.default


def _items_of(want: inspect.Type | None) -> Iterable[inspect.Type | None]:
    """Return the types of the items of an array."""
    fields = [field.type for field in getattr(want, "fields", ())]
    declared: list[inspect.Type] = fields or list(getattr(want, "item_types", ()))
    # Undeclared items have no type: they are kept, so that the decoder refuses them.
    return chain(declared, repeat(getattr(want, "item_type", None)))
