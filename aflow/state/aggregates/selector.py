"""Which value of a record an aggregate is about."""

from __future__ import annotations

from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import Any, TypeVar

from aflow.errors import FlowDefinitionError, shown

T = TypeVar("T")


def itself(record: T) -> T:
    """The record."""
    return record


def pick(of: Callable[[Any], Any] | None, what: str, name: str = "of") -> Callable[[Any], Any]:
    """``of``, or what picks the record itself. Raises ``FlowDefinitionError`` unless it is a plain function."""
    if of is None:
        return itself
    if not callable(of):
        raise FlowDefinitionError(
            f"{what}: {name} must be a function of the record, such as lambda record: record.price, not {shown(of)}"
        )
    if iscoroutinefunction(of) or iscoroutinefunction(getattr(of, "__call__", None)):  # noqa: B004 - a callable object
        raise FlowDefinitionError(
            f"{what}: {name} must be a plain function, not a coroutine function; look things up in a step before"
        )
    return of
