"""Fields of a record of any supported type."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final, cast

import msgspec

_MINUTE: Final = timedelta(minutes=1)


def fields_of(record: object) -> Mapping[str, object]:
    """Return names and values of the fields; values are not converted. Raises ``TypeError`` for types without named
    fields.

    Fields of a Struct have the names that ``msgspec.field(name=…)`` or ``rename=`` gives them, as for readers.
    """
    if isinstance(record, dict):
        return cast(dict[str, object], record)
    if isinstance(record, msgspec.Struct):
        return {
            stored: getattr(record, name)
            for name, stored in zip(
                record.__struct_fields__, record.__struct_encode_fields__, strict=True
            )
        }
    names = _dataclass_fields(type(record))
    if names is not None:
        return {name: getattr(record, name) for name in names}
    named = of_named_tuple(record)
    if named is None:
        kind = type(record).__name__
        raise TypeError(
            f"{kind} has no named fields: give a dict, a dataclass, a msgspec.Struct or a NamedTuple"
        )
    return named


def _names_of(cls: type) -> tuple[str, ...] | None:
    """Return the names of the fields of a dataclass; None for another class."""
    return tuple(field.name for field in fields(cls)) if is_dataclass(cls) else None


_dataclass_fields: Callable[[type], tuple[str, ...] | None] = lru_cache(maxsize=256)(_names_of)


def of_named_tuple(record: object) -> dict[str, object] | None:
    """Return the fields of a ``typing.NamedTuple`` or ``collections.namedtuple``; None for other types."""
    if not isinstance(record, tuple):
        return None
    as_dict = getattr(cast(object, record), "_asdict", None)
    return None if as_dict is None else as_dict()


def rfc3339(moment: datetime) -> str:
    """Return ``moment`` as text, exactly; a naive one without offset.

    RFC 3339 has offsets of whole minutes. A moment with another one, such as Amsterdam's +00:19:32 of 1937, is written
    in UTC.
    """
    offset = moment.utcoffset()
    if offset is not None and offset % _MINUTE:
        moment = moment.astimezone(UTC)
    return moment.isoformat()
