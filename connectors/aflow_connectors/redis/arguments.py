"""Argument checks of the source and the sinks."""

from __future__ import annotations

from typing import Any

import msgspec

from aflow.errors import FlowDefinitionError, shown
from aflow_connectors.formats import Format


def checked_field(owner: str, argument: str, name: object) -> str:
    """Return ``name``. Raises ``FlowDefinitionError`` unless it is a text that is not empty."""
    if isinstance(name, str) and name:
        return name
    raise FlowDefinitionError(
        f"{owner}: {argument}= must be the name of a field, not {shown(name)}"
    )


def checked_fields_type(
    owner: str, of: type[Any] | None, format: Format[Any] | None
) -> type[Any] | None:
    """Return ``of``. Raises ``FlowDefinitionError`` for a type that fields cannot be converted to."""
    if of is not None and format is not None:
        raise FlowDefinitionError(
            f"{owner}: of= is for the fields of an entry; with format= leave it out"
        )
    if of is not None:
        try:
            msgspec.convert({}, of, strict=False)
        except msgspec.ValidationError:
            pass  # a field is missing
        except TypeError as exc:
            raise FlowDefinitionError(f"{owner}: cannot convert fields to {of!r}: {exc}") from exc
    return of
