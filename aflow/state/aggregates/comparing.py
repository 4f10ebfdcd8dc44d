"""What ranks before what, NaN included."""

from __future__ import annotations

from typing import Any, Protocol


class Comparable(Protocol):
    """What has an order: ``<`` among values of the same type."""

    def __lt__(self, other: Any, /) -> bool: ...


def greater(value: Any, other: Any) -> bool:
    """Whether ``value`` ranks before ``other`` where the greatest comes first; NaN comes last."""
    # Only NaN differs from itself. Without a place of its own the result would depend on which record came first.
    return True if other < value else bool(other != other and value == value)


def smaller(value: Any, other: Any) -> bool:
    """Whether ``value`` ranks before ``other`` where the smallest comes first; NaN comes last."""
    return True if value < other else bool(other != other and value == value)
