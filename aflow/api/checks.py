"""Checks of what users hand to the fluent methods, made where it enters so that the message can name the call."""

from __future__ import annotations

from aflow.errors import FlowDefinitionError, shown
from aflow.runtime.calls.checks import is_async
from aflow.state.layouts import state_codec


def check_function(fn: object, method: str) -> None:
    """Refuse what cannot be called, and what would have to be awaited. Raises ``FlowDefinitionError``."""
    if not callable(fn):
        raise FlowDefinitionError(f"{method}() takes a function, not {shown(fn)}")
    if is_async(fn):
        raise FlowDefinitionError(
            f"{method}() calls plain functions, and {shown(fn)} is a coroutine function: its result would be a "
            f"coroutine that nobody awaits. What is to be awaited for each record belongs in map_async(), "
            f"flat_map_async() or filter_async()"
        )


def check_storable(of: type[object] | None, step: str) -> None:
    """Refuse a type by which snapshots could not store values. Raises ``FlowDefinitionError`` that names ``step``."""
    try:
        state_codec(of)
    except FlowDefinitionError as exc:
        raise FlowDefinitionError(f"{step}: of={shown(of)}: {exc}") from exc


def check_count(n: object, method: str) -> None:
    """Refuse what is no number of records from 1 on. Raises ``FlowDefinitionError``."""
    if type(n) is not int or n < 1:
        raise FlowDefinitionError(f"{method}() takes a number of records from 1 on, not {shown(n)}")
