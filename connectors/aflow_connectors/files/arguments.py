"""Argument checks of file sources and sinks, for users without a type checker."""

from __future__ import annotations

from aflow.errors import FlowDefinitionError, shown


def checked_delimiter(owner: str, delimiter: object) -> str:
    """Return ``delimiter``. Raises ``FlowDefinitionError`` for a character that cannot separate fields."""
    if not isinstance(delimiter, str) or len(delimiter) != 1 or delimiter in '"\r\n':
        raise FlowDefinitionError(
            f"{owner}: the delimiter must be one character, and no quote or line end, not {shown(delimiter)}"
        )
    return delimiter


def checked_line_bound(owner: str, max_line_bytes: object) -> int:
    """Return ``max_line_bytes``. Raises ``FlowDefinitionError`` for an invalid value."""
    if not isinstance(max_line_bytes, int):
        raise FlowDefinitionError(
            f"{owner}: max_line_bytes= must be an int, not {shown(max_line_bytes)}"
        )
    if max_line_bytes < 1024:
        raise FlowDefinitionError(
            f"{owner}: max_line_bytes must be at least 1,024, not {max_line_bytes:,}"
        )
    return max_line_bytes


def checked_encoding(owner: str, encoding: object) -> str:
    """Return ``encoding``. Raises ``FlowDefinitionError`` if lines cannot be separated in it byte by byte."""
    if not isinstance(encoding, str):
        raise FlowDefinitionError(
            f"{owner}: encoding= must be the name of one, like 'utf-8', not {shown(encoding)}"
        )
    try:
        line_feed = "\n".encode(encoding)
    except LookupError as exc:
        raise FlowDefinitionError(
            f"{owner}: {encoding!r} is no encoding that Python knows"
        ) from exc
    if line_feed != b"\n":
        raise FlowDefinitionError(
            f"{owner}: in {encoding!r} a line feed is not the single byte 0A, so lines cannot be separated; "
            f"convert the files first: iconv -f {encoding} -t UTF-8"
        )
    return encoding


def checked_concurrency(owner: str, concurrency: int | None) -> int | None:
    """Return ``concurrency``: a number of files from 1 on, or None for all. Raises ``FlowDefinitionError``."""
    if concurrency is not None and (type(concurrency) is not int or concurrency < 1):
        raise FlowDefinitionError(
            f"{owner}: concurrency is a number of files from 1 on, or None for all, not {shown(concurrency)}"
        )
    return concurrency
