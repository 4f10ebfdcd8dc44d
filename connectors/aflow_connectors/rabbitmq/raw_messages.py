"""Messages of AMQP as ``RawMessage``: key, headers and timestamp from their properties."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

import orjson

from aflow_connectors.messages import Headers, RawMessage

#: Header with the time in ms, as of RabbitMQ's plug-in for timestamps. The property of AMQP has seconds.
MILLISECONDS: Final = "timestamp_in_ms"


def raw_message(delivered: Any, offset: int | str) -> RawMessage:
    """Return a delivered message; its key is the routing key."""
    properties = delivered.header.properties
    table: Mapping[str, object] = properties.headers or {}
    key: str = delivered.delivery.routing_key or ""
    # Most messages have no headers.
    headers = _headers(table) if table else ()
    return RawMessage(
        delivered.body, key.encode(), headers, _timestamp(properties.timestamp, table), offset
    )


def _timestamp(property: object, table: Mapping[str, object]) -> int | None:
    exact = table.get(MILLISECONDS)
    if type(exact) is int:
        return exact
    if isinstance(property, datetime):
        aware = property if property.tzinfo is not None else property.replace(tzinfo=UTC)
        return int(aware.timestamp()) * 1000
    return None


def _headers(table: Mapping[str, object]) -> Headers:
    return tuple((name, _encoded(value)) for name, value in table.items())


def _encoded(value: object) -> bytes:
    """Return the value of a header: bytes as they are, text as UTF-8, all others as JSON."""
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    if isinstance(value, str):
        return value.encode()
    return orjson.dumps(value, default=_plain, option=orjson.OPT_NON_STR_KEYS)


def _plain(value: object) -> object:
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, (bytes, bytearray)):
        return bytes(value).decode("utf-8", "backslashreplace")
    return str(value)
