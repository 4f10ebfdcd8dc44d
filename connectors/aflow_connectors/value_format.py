"""The format of the values of a source: JSON of a declared type, or another one."""

from __future__ import annotations

from typing import Any

from aflow.errors import FlowDefinitionError
from aflow_connectors.broker_arguments import checked_format
from aflow_connectors.formats import Format, Json


def checked_value_format(
    owner: str, of: type[Any] | None, format: Format[Any] | None
) -> Format[Any]:
    """Return JSON of type ``of``, or ``format``. Raises ``FlowDefinitionError`` if both are given."""
    if format is None:
        return Json(of)
    if of is not None:
        raise FlowDefinitionError(f"{owner}: of= is for JSON; with format= leave it out")
    return checked_format(owner, "format", format, Json())
