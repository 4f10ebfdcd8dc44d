"""Declared types of records, as msgspec describes them."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import inspect


def without_none(want: inspect.Type | None) -> inspect.Type | None:
    """Return ``want`` without constraints and without None; None for a union of several other types."""
    while isinstance(want, inspect.Metadata):
        want = want.type
    if isinstance(want, inspect.UnionType):
        options = [one for one in want.types if not isinstance(one, inspect.NoneType)]
        return without_none(options[0]) if len(options) == 1 else None
    return want


def fields_by_name(want: inspect.Type | None) -> dict[str, inspect.Field]:
    """Return the fields of a class by their names in stored records; empty for other types."""
    fields: Sequence[inspect.Field] = getattr(want, "fields", ())
    return {field.encode_name: field for field in fields}
