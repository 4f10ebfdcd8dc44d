"""Checks of the arguments of fluent methods, made at the call so that the message can name it."""

from __future__ import annotations

from aflow.errors import FlowDefinitionError, shown
from aflow.runtime.calls.checks import is_async
from aflow.state.layouts import state_codec


def check_function(fn: object, method: str) -> None:
    """Raise ``FlowDefinitionError`` unless ``fn`` is callable and no coroutine function."""
    if not callable(fn):
        raise FlowDefinitionError(f"{method}() takes a function, not {shown(fn)}")
    if is_async(fn):
        raise FlowDefinitionError(
            f"{method}() calls plain functions, and {shown(fn)} is a coroutine function: the coroutines that it "
            f"returns would never be awaited; use map_async(), flat_map_async() or filter_async()"
        )


def check_storable(of: type[object] | None, step: str) -> None:
    """Raise ``FlowDefinitionError``, naming ``step``, if snapshots cannot store values by the type ``of``."""
    try:
        state_codec(of)
    except FlowDefinitionError as exc:
        raise FlowDefinitionError(f"{step}: of={shown(of)}: {exc}") from exc


def check_count(n: object, method: str) -> None:
    """Raise ``FlowDefinitionError`` unless ``n`` is a number of records from 1 on."""
    if type(n) is not int or n < 1:
        raise FlowDefinitionError(f"{method}() takes a number of records from 1 on, not {shown(n)}")
