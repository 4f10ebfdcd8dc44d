"""Copies of values for somebody who may change them while the original must stay as it is.

Theory. Most values cannot be changed, and need no copy: numbers, text, moments, and tuples and frozen dataclasses of
them. That is seen by looking at the value, which costs far less than a copy; all else is copied deeply.
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

#: Types, not their subclasses, whose values cannot be changed.
_FIXED: Final = frozenset(
    {
        *(int, float, complex, bool, str, bytes, NoneType),
        *(date, datetime, time, timedelta, timezone, ZoneInfo, Decimal, UUID),
    }
)


def defensive_copy(value: T) -> T:
    """``value``, or a deep copy if it, or something in it, could be changed.

    Raises what ``copy.deepcopy`` raises for a value that it cannot copy, ``TypeError`` most of the time.
    """
    # Hot path: once for each read in a transaction.
    return value if type(value) in _FIXED or _fixed(value) else copy.deepcopy(value)


def _fixed(value: Any) -> bool:
    """Whether nobody can change ``value`` in the ordinary way."""
    kind = value.__class__
    if kind in _FIXED:
        return True
    if kind is tuple or kind is frozenset:
        return all(map(_fixed, value))
    names = _frozen_fields(kind)
    return names is not None and all(_fixed(getattr(value, name)) for name in names)


@cache
def _frozen_fields(kind: Any) -> tuple[str, ...] | None:
    """Which attributes make up a value of the class ``kind``; None if there may be others, or they can be replaced."""
    if issubclass(kind, Enum):
        return ()
    if kind.__mro__[1:] == (tuple, object):
        return getattr(kind, "_fields", None)  # that of a NamedTuple
    # A class between that is no frozen dataclass may add attributes.
    own = [base for base in kind.__mro__ if base not in (object, Generic, ABC)]
    if own and all(map(_is_frozen, own)):
        return tuple(one.name for one in fields(kind))
    return None


def _is_frozen(kind: type[Any]) -> bool:
    params = vars(kind).get("__dataclass_params__")
    return params is not None and bool(params.frozen)
