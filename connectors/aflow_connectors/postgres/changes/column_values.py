"""Values of columns: from the texts of the server, as bytes, to Python.

Texts, since the stream, the snapshot and the keys in positions must agree, and since each type has one. Types without
an entry here are returned as text, as PostgreSQL writes it: enums, ranges, networks, intervals (ISO 8601) and others.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

import orjson

Load = Callable[[bytes], Any]

_text: Final[Load] = bytes.decode


def _decoded(load: Callable[[str], Any]) -> Load:
    return lambda raw: load(raw.decode())


_SCALARS: Final[dict[int, Load]] = {
    16: lambda raw: raw == b"t",
    17: _decoded(lambda text: bytes.fromhex(text[2:])),
    **dict.fromkeys((20, 21, 23, 26), int),
    **dict.fromkeys((700, 701), float),
    1700: _decoded(Decimal),
    **dict.fromkeys((114, 3802), orjson.loads),
    1082: _decoded(date.fromisoformat),
    **dict.fromkeys((1083, 1266), _decoded(time.fromisoformat)),
    **dict.fromkeys((1114, 1184), _decoded(datetime.fromisoformat)),
    2950: _decoded(UUID),
    **dict.fromkeys((18, 19, 25, 1042, 1043), _text),
}
"""Functions by the oids of types."""

_ARRAYS: Final = {
    1000: 16,
    1001: 17,
    1005: 21,
    1007: 23,
    1016: 20,
    1028: 26,
    1021: 700,
    1022: 701,
    1231: 1700,
    199: 114,
    3807: 3802,
    1182: 1082,
    1183: 1083,
    1270: 1266,
    1115: 1114,
    1185: 1184,
    2951: 2950,
    1002: 18,
    1003: 19,
    1009: 25,
    1014: 1042,
    1015: 1043,
}
"""The types of the elements of arrays, by oids."""

_PART: Final = re.compile(r'[{},]|"((?:[^"\\]|\\.)*)"|([^{},"]+)')
_ESCAPED: Final = re.compile(r"\\(.)")


def loader(oid: int) -> Load:
    """Return the function for values of a type, which raises ``ValueError`` for a value that Python does not have."""
    element = _ARRAYS.get(oid)
    if element is not None:
        load = _SCALARS[element]
        return lambda raw: _array(raw.decode(), load)
    return _SCALARS.get(oid, _text)


def _array(text: str, load: Load) -> list[Any]:
    """Return the elements of an array, nested for several dimensions."""
    top: list[Any] = []
    stack = [top]
    # Bounds that do not begin at 1 precede the elements: [0:1]={7,8}
    for found in _PART.finditer(text, text.index("{")):
        part = found[0]
        if part == "{":
            inner: list[Any] = []
            stack[-1].append(inner)
            stack.append(inner)
        elif part == "}":
            stack.pop()
        elif found[2] is not None:
            stack[-1].append(None if part == "NULL" else load(_ESCAPED.sub(r"\1", part).encode()))
        elif part != ",":
            stack[-1].append(load(_ESCAPED.sub(r"\1", found[1]).encode()))
    elements: list[Any] = top[0]
    return elements
