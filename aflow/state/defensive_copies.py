"""Defensive copies of values for code that may change them.

Theory. Most values are immutable and need no copy: numbers, text, moments, and tuples and frozen dataclasses of them.
A look at the value finds that out at far less cost than a copy. All other values are copied deeply.
"""

from __future__ import annotations

import copy
from abc import ABC
from dataclasses import fields
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from functools import cache
from types import NoneType
from typing import Any, Final, Generic, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

T = TypeVar("T")

#: Types whose values are immutable; their subclasses may differ.
_FIXED: Final = frozenset(
    {
        *(int, float, complex, bool, str, bytes, NoneType),
        *(date, datetime, time, timedelta, timezone, ZoneInfo, Decimal, UUID),
    }
)


def defensive_copy(value: T) -> T:
    """Return ``value``, or a deep copy if it or a part of it is mutable.

    Raises the error of ``copy.deepcopy`` for a value that it cannot copy, mostly ``TypeError``.
    """
    # Hot path: once for each read in a transaction.
    return value if type(value) in _FIXED or _fixed(value) else copy.deepcopy(value)


def reader_copy(value: Any) -> Any:
    """Return ``defensive_copy(value)``; the items of a plain list or dict are copied one by one.

    So a list of many immutable items is copied in the time of a look at each. Raises as ``defensive_copy`` does.
    """
    kind: type[Any] = value.__class__
    if kind is list:
        items: list[Any] = value
        return [defensive_copy(item) for item in items]
    if kind is dict:
        entries: dict[Any, Any] = value
        return {defensive_copy(key): defensive_copy(item) for key, item in entries.items()}
    return defensive_copy(value)


def _fixed(value: Any) -> bool:
    """Return True if ``value`` is immutable by ordinary means."""
    kind = value.__class__
    if kind in _FIXED:
        return True
    if kind is tuple or kind is frozenset:
        return all(map(_fixed, value))
    names = _frozen_fields(kind)
    return names is not None and all(_fixed(getattr(value, name)) for name in names)


@cache
def _frozen_fields(kind: Any) -> tuple[str, ...] | None:
    """Return the attributes of a value of class ``kind``; None if it is mutable or may have further ones."""
    if issubclass(kind, Enum):
        return ()
    if kind.__mro__[1:] == (tuple, object):
        return getattr(kind, "_fields", None)  # of a NamedTuple
    # A base class that is no frozen dataclass may add attributes.
    own = [base for base in kind.__mro__ if base not in (object, Generic, ABC)]
    if own and all(map(_is_frozen, own)):
        return tuple(one.name for one in fields(kind))
    return None


def _is_frozen(kind: type[Any]) -> bool:
    params = vars(kind).get("__dataclass_params__")
    return params is not None and bool(params.frozen)
