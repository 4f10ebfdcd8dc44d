"""The path to a field in an error."""

from __future__ import annotations

from aflow_connectors.formats.format import FormatError


def within(field: str, exc: FormatError) -> FormatError:
    """Return ``exc`` for a value in ``field``: "field order.card: …"."""
    text = str(exc)
    if text.startswith("field "):
        return FormatError(f"field {field}.{text.removeprefix('field ')}")
    return FormatError(f"field {field}: {text}")
