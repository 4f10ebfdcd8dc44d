"""Stored values for display, without the code of the pipeline: from bytes to plain Python values, and to JSON.

Typed values are MessagePack and are read without their types: a dataclass as a mapping, a NamedTuple as an array, an
enum as its value. Pickled values are never loaded: that would run code.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Any, cast

from aflow.errors import readable
from aflow.model.codecs import PICKLE, PLAIN, CodecError
from aflow.state.descriptions import Description


def json_line(value: object) -> str:
    """Return ``value`` as one line of JSON."""
    return json.dumps(jsonable(value), ensure_ascii=False)


def key_value(data: bytes) -> object:
    """Return a key, or any value that is stored by itself; a mapping with the bytes if it needs its type."""
    try:
        return PLAIN.decode(data)
    except CodecError:
        return {"not readable without its code": data}


def state_value(description: Description | None, data: bytes) -> object:
    """Return the state of one key from its bytes."""
    if description is None:
        return key_value(data)
    codecs = [part.codec for part in description.parts]
    match description.kind:
        case "list":
            return [_part(codecs[0], one) for one in _parts(data)]
        case "map" | "broadcast":
            return [[_part(codecs[0], key), _part(codecs[1], held)] for key, held in _pairs(data)]
        case _:
            return _part(codecs[0], data)


def timer(data: bytes) -> object:
    """Return the time of a timer as text; timers of windows have further data."""
    value = key_value(data)
    if isinstance(value, int):
        return readable(value)
    return value


def opened(data: bytes) -> object:
    """Return a row of aflow itself, such as a window; bytes in it are values of the user and are decoded if possible.

    They are decoded once: the result may be bytes of the user.
    """
    value = key_value(data)
    if isinstance(value, list | tuple):
        return [_or_bytes(one) for one in cast("Iterable[object]", value)]
    return value


def jsonable(value: object) -> Any:
    """Return ``value`` in types of JSON: base64 for bytes, text for all types that JSON does not have."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if isfinite(value) else str(value)
        case bytes():
            return b64encode(value).decode()
        case dict():
            return _mapping(cast("Mapping[object, object]", value))
        case list() | tuple() | set() | frozenset():
            return [jsonable(one) for one in cast("Iterable[object]", value)]
        case _:
            isoformat = getattr(value, "isoformat", None)
            return isoformat() if isoformat is not None else str(value)


def _mapping(value: Mapping[object, object]) -> dict[str, Any]:
    return {
        key if isinstance(key, str) else json_line(key): jsonable(held)
        for key, held in value.items()
    }


def _or_bytes(value: object) -> object:
    if not isinstance(value, bytes):
        return value
    try:
        return PLAIN.decode(value)
    except CodecError:
        return value


def _part(codec: str, data: bytes) -> object:
    return {"pickled": data} if codec == PICKLE.name else key_value(data)


def _parts(data: bytes) -> list[bytes]:
    return cast("list[bytes]", PLAIN.decode(data))


def _pairs(data: bytes) -> list[tuple[bytes, bytes]]:
    parts = iter(_parts(data))
    return list(zip(parts, parts, strict=True))
