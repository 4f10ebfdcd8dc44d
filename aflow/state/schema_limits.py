"""Whether values that keep some limits keep another one: ``ge=5`` means ``ge=0`` too."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

#: The limits that imply one, each True if it does so only where its bound is beyond, not at, the other.
_LOWER: Final = {"ge": {"ge": False, "gt": False}, "gt": {"gt": False, "ge": True}}
_UPPER: Final = {"le": {"le": False, "lt": False}, "lt": {"lt": False, "le": True}}


def implied(name: str, value: Any, known: Mapping[str, Any]) -> bool:
    """Whether the limit ``name`` holds for all values that keep ``known``."""
    if known.get(name) == value or (name == "min_length" and value == 0):
        return True
    if name in _LOWER:
        return any(_beyond(known.get(one), value, strict) for one, strict in _LOWER[name].items())
    if name in _UPPER:
        return any(
            _beyond(_negated(known.get(one)), -value, strict)
            for one, strict in _UPPER[name].items()
        )
    if name == "min_length":
        return _beyond(known.get(name), value, False)
    if name == "max_length":
        return _beyond(_negated(known.get(name)), -value, False)
    if name == "multiple_of":
        return name in known and known[name] % value == 0
    return False


def _beyond(bound: Any, value: Any, strict: bool) -> bool:
    return bound is not None and (bound > value if strict else bound >= value)


def _negated(bound: Any) -> Any:
    return None if bound is None else -bound
