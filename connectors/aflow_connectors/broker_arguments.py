"""Argument checks shared by the connectors for brokers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, cast

from aflow.errors import FlowDefinitionError, shown
from aflow_connectors.formats import Format


def checked_format(
    owner: str, argument: str, format: Format[Any] | None, default: Format[Any]
) -> Format[Any]:
    """Return ``format``, or ``default`` for None. Raises ``FlowDefinitionError`` for another type."""
    if format is None:
        return default
    if not isinstance(format, Format):
        raise FlowDefinitionError(
            f"{owner}: {argument}= must be a Format, like Json(), not {shown(format)}"
        )
    return format


def checked_names(
    owner: str, argument: str, names: str | Sequence[str] | re.Pattern[str]
) -> tuple[str, ...] | re.Pattern[str]:
    """Return ``names``. Raises ``FlowDefinitionError`` unless they are different names, or a regular expression."""
    if isinstance(names, re.Pattern) and isinstance(names.pattern, str):
        return names
    given: Sequence[object] = [names] if isinstance(names, str) else ()
    if isinstance(names, (list, tuple)):
        given = names
    if not given or not all(isinstance(name, str) and name for name in given):
        raise FlowDefinitionError(
            f"{owner}: the {argument} must be a name, several names or a compiled regular expression, not "
            f"{shown(names)}"
        )
    if len(set(given)) < len(given):
        raise FlowDefinitionError(f"{owner}: the {argument} must be different, not {shown(names)}")
    return tuple(cast("Sequence[str]", given))


def checked_ending(owner: str, until: object) -> bool:
    """Return True if the source ends now. Raises ``FlowDefinitionError`` for anything but "now" and None."""
    if until not in (None, "now"):
        raise FlowDefinitionError(f"{owner}: until= must be 'now' or None, not {shown(until)}")
    return until == "now"


def checked_idle_after(owner: str, idle_after: object) -> float | None:
    """Return ``idle_after`` in seconds. Raises ``FlowDefinitionError`` unless it is None or positive."""
    if idle_after is None:
        return None
    if not isinstance(idle_after, timedelta) or idle_after <= timedelta(0):
        raise FlowDefinitionError(
            f"{owner}: idle_after= must be a positive timedelta or None, not {shown(idle_after)}"
        )
    return idle_after.total_seconds()


def checked_optional_name(owner: str, argument: str, name: object) -> str | None:
    """Return ``name``. Raises ``FlowDefinitionError`` unless it is None or a text that is not empty."""
    if name is not None and not (isinstance(name, str) and name):
        raise FlowDefinitionError(
            f"{owner}: {argument}= must be the name of a {argument}, not {shown(name)}"
        )
    return name


def checked_function(owner: str, argument: str, function: Any) -> Any:
    """Return ``function``. Raises ``FlowDefinitionError`` unless it is None or callable."""
    if function is not None and not callable(function):
        raise FlowDefinitionError(
            f"{owner}: {argument}= must be a function of the record, not {shown(function)}"
        )
    return function
