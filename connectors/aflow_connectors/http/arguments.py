"""Checks of arguments that the sources and the sink share."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from aflow.errors import FlowDefinitionError, shown
from aflow_connectors import broker_arguments
from aflow_connectors.formats import Format, Json


def checked_format(owner: str, of: type[Any] | None, format: Format[Any] | None) -> Format[Any]:
    """Return ``format``, by default JSON of type ``of``. Raises ``FlowDefinitionError`` for both and other types."""
    if format is not None and of is not None:
        raise FlowDefinitionError(f"{owner}: of= is for JSON; with format= leave it out")
    return broker_arguments.checked_format(owner, "format", format, Json(of))


def checked_seconds(owner: str, argument: str, duration: object) -> float:
    """Return seconds. Raises ``FlowDefinitionError`` unless ``duration`` is a positive ``timedelta``."""
    if not isinstance(duration, timedelta) or duration <= timedelta(0):
        raise FlowDefinitionError(
            f"{owner}: {argument}= must be a positive timedelta, not {shown(duration)}"
        )
    return duration.total_seconds()


def checked_optional_seconds(owner: str, argument: str, duration: object) -> float | None:
    """Return seconds, or None for None. Raises as ``checked_seconds``."""
    return None if duration is None else checked_seconds(owner, argument, duration)


def checked_function(owner: str, argument: str, function: Any) -> Any:
    """Return ``function``, which may be None. Raises ``FlowDefinitionError`` if it cannot be called."""
    if function is not None and not callable(function):
        raise FlowDefinitionError(f"{owner}: {argument}= must be a function, not {shown(function)}")
    return function


def checked_count(owner: str, argument: str, number: object) -> int:
    """Return ``number``. Raises ``FlowDefinitionError`` unless it is a positive int."""
    if type(number) is not int or number < 1:
        raise FlowDefinitionError(
            f"{owner}: {argument}= must be a positive int, not {shown(number)}"
        )
    return number
