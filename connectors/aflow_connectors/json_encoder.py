"""Encode records as JSON."""

from __future__ import annotations

from datetime import date, datetime, time
from typing import Final
from uuid import UUID

import msgspec
import orjson

from aflow_connectors.fields import of_named_tuple, rfc3339

#: Types that msgspec leaves to orjson and ``to_json``.
_NATIVE: Final = (datetime, date, time, UUID)

#: Options of orjson for records whose keys are all str.
STR_KEYS: Final = orjson.OPT_PASSTHROUGH_DATETIME

_ANY_KEYS: Final = orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_NON_STR_KEYS


def encode_json(record: object) -> bytes:
    """Return ``record`` as JSON. Raises ``TypeError`` if JSON cannot hold it.

    Datetimes are written as RFC 3339: a naive one without offset, and in UTC if the offset has seconds. Decimals are
    text, bytes base64, sets arrays, NaN and infinity null.
    """
    try:
        return orjson.dumps(record, to_json, STR_KEYS)
    except TypeError:
        # Keys that are not str: slower, and only if there are some.
        return orjson.dumps(record, to_json, _ANY_KEYS)


def to_json(value: object) -> object:
    """Return a value that orjson does not encode by itself as one that it does."""
    if isinstance(value, datetime):
        return rfc3339(value)  # orjson and msgspec round the offset to minutes
    if isinstance(value, date | time):
        return value.isoformat()
    named = of_named_tuple(value)
    if named is not None:
        return named
    return msgspec.to_builtins(value, builtin_types=_NATIVE)
