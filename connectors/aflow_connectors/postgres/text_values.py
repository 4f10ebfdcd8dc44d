"""Values of Python as text that the server reads: in rows of COPY, and as parameters.

Text, since the server knows how to read each of its types, while binary formats need a codec for each. It reads a value
exactly as in an SQL literal of the column's type.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime, time, timedelta
from enum import Enum
from typing import Any, Final, cast

import orjson

from aflow_connectors.fields import rfc3339
from aflow_connectors.json_encoder import encode_json

#: A row as text; None is NULL.
TextRow = tuple[str | None, ...]

_SPECIAL: Final = re.compile(r"[\\\n\r\t]")
_ESCAPES: Final = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_DAY_SECONDS: Final = 86_400


def to_text(value: object) -> str | None:
    """Return ``value`` as the server reads it. Raises ``TypeError`` for an unsupported type."""
    kind = type(value)
    # Hot path of the sinks.
    if kind is str:
        return cast(str, value)
    if kind is int or value is None:
        return None if value is None else str(value)
    if kind is float:
        return repr(value)
    return _other_to_text(value)


def _other_to_text(value: object) -> str | None:
    match value:
        case Enum():
            return to_text(value.value)
        case bool():
            return "true" if value else "false"
        # Subclasses lose what they add to these.
        case str():
            return str.__str__(value)
        case int():
            return int.__repr__(value)
        case float():
            return float.__repr__(value)
        case bytes() | bytearray() | memoryview():
            return "\\x" + value.hex()
        case datetime():
            return rfc3339(value)
        case date() | time():
            return value.isoformat()
        case timedelta():
            seconds = value.days * _DAY_SECONDS + value.seconds
            # Both parts have the sign of their own: the server adds them.
            return f"{seconds} seconds {value.microseconds} microseconds"
        case _:
            return str(value) if type(value).__module__ in _WITH_TEXT else json_text(value)


#: Modules with types whose text is a literal of a type of the server: Decimal, UUID, IP addresses and networks.
_WITH_TEXT: Final = frozenset({"decimal", "uuid", "ipaddress"})


def json_text(value: object) -> str | None:
    """Return ``value`` as JSON; None is NULL. Raises ``TypeError`` for an unsupported type."""
    return None if value is None else encode_json(value).decode()


def array_text(value: object) -> str | None:
    """Return a list as a literal of an array; anything else in the way of ``to_text``."""
    if not isinstance(value, (list, tuple)):
        return to_text(value)
    return "{" + ",".join(_element(one) for one in cast(Sequence[object], value)) + "}"


def _element(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return array_text(cast(object, value)) or ""
    text = to_text(value)
    if text is None:
        return "NULL"
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def zoned_text(value: object) -> str | None:
    """Convert a value for a column ``timestamp with time zone``. Raises ``ValueError`` for a time without zone."""
    if isinstance(value, datetime) and value.tzinfo is None:
        raise ValueError(
            f"the column has a time zone, and {value!r} has none: give it one, like tzinfo=UTC"
        )
    return to_text(value)


def float_text(value: object) -> str | None:
    """Convert a value for a column of floating-point numbers."""
    return to_text(value)


def converter(base_type: str, category: str) -> Callable[[Any], str | None]:
    """Return the function for values of a column, by the name and the category of its type."""
    if base_type in ("json", "jsonb"):
        return json_text
    if category == "A":
        return array_text
    if base_type in ("float4", "float8"):
        return float_text
    return zoned_text if base_type == "timestamptz" else to_text


def texts_of(
    convert: Callable[[Any], str | None], values: Sequence[object]
) -> Sequence[str | None]:
    """Return ``values`` of a column, converted by ``convert``."""
    if convert is to_text or convert is float_text:
        # Hot path of the sinks: loops in C for columns of one type.
        kinds = set(map(type, values))
        if kinds == {str}:
            return cast(Sequence[str], values)
        if kinds == {int}:
            return _texts_of_ints(values)
        if kinds == {float}:
            return _texts_of_floats(values, exact=convert is to_text)
    return list(map(convert, values))


def _texts_of_ints(values: Sequence[object]) -> Sequence[str]:
    try:
        # Twice as fast as str.
        return orjson.dumps(values).decode()[1:-1].split(",")
    except TypeError:  # more than 64 bits
        return list(map(str, values))


def _texts_of_floats(values: Sequence[object], *, exact: bool) -> Sequence[str]:
    """Return the shortest texts of floats; in the form of Python if ``exact``, as for columns of text."""
    if not exact:
        # Five times faster than repr. The exponents of large numbers have another form.
        texts = orjson.dumps(values).decode()
        if "n" not in texts:  # null: it is no finite number
            return texts[1:-1].split(",")
    return list(map(repr, values))


def text_array(texts: Sequence[str | None]) -> str:
    """Return ``texts`` as a literal of an array of texts, in which None is NULL."""
    if None not in texts:
        # Hot path of the upserts: loops in C for texts that need no escapes.
        joined = '","'.join(cast(Sequence[str], texts))
        if "\\" not in joined and joined.count('"') == 2 * max(len(texts) - 1, 0):
            return f'{{"{joined}"}}' if texts else "{}"
    return "{" + ",".join(map(_element, texts)) + "}"


class TextRejected(Exception):
    """Raised for row ``index`` with text that is none: half of a surrogate pair."""

    def __init__(self, index: int, reason: Exception) -> None:
        super().__init__(str(reason))
        self.index = index


def copy_lines(columns: Iterable[Sequence[str | None]]) -> list[str]:
    """Return rows, given by ``columns``, as lines of the text format of COPY."""
    return list(map("\t".join, zip(*map(_copied, columns), strict=True)))


def values_of_line(line: str) -> list[str | None]:
    """Return the values of a line of COPY, for messages: escapes are kept."""
    return [None if value == "\\N" else value for value in line.split("\t")]


def copy_payload(lines: Sequence[str]) -> bytes:
    """Return ``lines`` for COPY. Raises ``TextRejected``."""
    try:
        return ("\n".join(lines) + "\n").encode() if lines else b""
    except UnicodeEncodeError:
        for index, line in enumerate(lines):
            refuse_surrogates(index, (line,))
        raise


def _copied(column: Sequence[str | None]) -> Sequence[str]:
    if None not in column:
        texts = cast(Sequence[str], column)
        joined = "".join(texts)
        if not any(special in joined for special in _ESCAPES):
            return texts
    return ["\\N" if value is None else _escaped(value) for value in column]


def refuse_surrogates(index: int, row: TextRow) -> None:
    """Raise ``TextRejected`` if ``row`` has text that cannot be encoded."""
    try:
        "".join(value for value in row if value is not None).encode()
    except UnicodeEncodeError as exc:
        raise TextRejected(index, exc) from exc


def _escaped(value: str) -> str:
    return _SPECIAL.sub(lambda found: _ESCAPES[found[0]], value)
