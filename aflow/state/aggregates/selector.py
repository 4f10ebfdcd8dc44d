"""Selectors: the functions ``of=`` and ``by=`` that select the value of a record which an aggregate is about."""

from __future__ import annotations

from collections.abc import Callable
from inspect import iscoroutinefunction, signature
from typing import Any, TypeVar

from aflow.errors import FlowDefinitionError, shown

T = TypeVar("T")


def itself(record: T) -> T:
    """Return the record."""
    return record


def select(of: Callable[[Any], Any] | None, what: str, name: str = "of") -> Callable[[Any], Any]:
    """Return ``of``, or the identity if it is None.

    Raises ``FlowDefinitionError`` unless it is a plain function of one argument.
    """
    if of is None:
        return itself
    if not callable(of):
        raise FlowDefinitionError(
            f"{what}: {name} must be a function of the record, such as lambda record: record.price, not {shown(of)}"
        )
    if iscoroutinefunction(of) or iscoroutinefunction(getattr(of, "__call__", None)):  # noqa: B004 - a callable object
        raise FlowDefinitionError(
            f"{what}: {name} must be a plain function, not a coroutine function; do lookups in a step before"
        )
    if not _takes_one_argument(of):
        hint = f"; a type is given as stored_as={of.__name__}" if isinstance(of, type) else ""
        raise FlowDefinitionError(
            f"{what}: {name} must be a function of one argument, the record, not {shown(of)}{hint}"
        )
    return of


def _takes_one_argument(of: Callable[[Any], Any]) -> bool:
    try:
        signature(of).bind(None)
    except TypeError:
        return False
    except ValueError:  # some callables in C have no signature
        return True
    return True
