"""Requests and responses of the API, independent of a web framework, and the encoding of values as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Set
from dataclasses import asdict, dataclass, field, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import PurePath
from typing import Any, Final, Protocol
from urllib.parse import parse_qsl, unquote
from uuid import UUID

import msgspec
import orjson

#: Maximum of bytes in the body of a request: a body has a path and some flags.
MAX_BODY: Final = 65_536

JSON: Final = "application/json"


class WebError(Exception):
    """A request that is answered with an error: ``{"error": {"code": …, "message": …}}``."""

    def __init__(
        self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.headers = headers or {}


@dataclass(frozen=True, slots=True)
class WebRequest:
    """A request, with the path below the place where the application is mounted."""

    method: str
    path: str
    """Percent-encoded, with a slash at the beginning: names of steps and keys may contain encoded slashes."""
    query: str
    """Percent-encoded, without the question mark."""
    headers: Mapping[str, str]
    """By names in lower case."""
    body: bytes
    """At most one byte longer than the application allows: longer bodies are cut there, and refused."""

    def segments(self) -> list[str]:
        """Return the decoded parts of the path. Raises ``WebError`` if they are not UTF-8."""
        try:
            return [unquote(part, errors="strict") for part in self.path.split("/")[1:]]
        except UnicodeDecodeError as exc:
            raise WebError(400, "invalid_path", "the path is not UTF-8") from exc

    def arguments(self, *known: str) -> dict[str, str]:
        """Return the parameters of the query. Raises ``WebError`` for one that is not ``known``."""
        try:
            found = dict(parse_qsl(self.query, keep_blank_values=True, errors="strict"))
        except ValueError as exc:
            raise WebError(400, "invalid_query", "the query is not UTF-8") from exc
        for name in found:
            if name not in known:
                takes = f"it takes {', '.join(known)}" if known else "it takes none"
                raise WebError(400, "invalid_query", f"unknown parameter {name!r}; {takes}")
        return found


@dataclass(frozen=True, slots=True)
class WebResponse:
    """A response with its whole body."""

    status: int
    content_type: str
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


class Chunks(Protocol):
    """The body of a stream, pulled by the adapter."""

    @property
    def due(self) -> float:
        """The moment (seconds of the loop) of the next ``take``."""
        ...

    def take(self) -> bytes | None:
        """Return the next part of the body; None at its end."""
        ...

    def dropped(self) -> None:
        """Take notice that the client was too slow."""
        ...

    def close(self) -> None:
        """Release what the stream uses; the adapter calls it in all cases."""
        ...


@dataclass(frozen=True, slots=True)
class WebStream:
    """A response whose body is sent while it is made."""

    status: int
    content_type: str
    chunks: Chunks
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


class WebApplication(Protocol):
    """An application that adapters serve."""

    @property
    def max_body(self) -> int:
        """Maximum of bytes in the body of a request."""
        ...

    async def respond(self, request: WebRequest) -> WebResponse | WebStream:
        """Return the response to a request; raises nothing but a cancellation."""
        ...


def json_response(status: int, value: object) -> WebResponse:
    """Return a response with ``value`` as JSON. Raises ``TypeError`` for a value without a JSON form."""
    return WebResponse(status, JSON, encoded(value))


def error_response(error: WebError) -> WebResponse:
    """Return the response for ``error``."""
    content = {"error": {"code": error.code, "message": error.message}}
    return WebResponse(error.status, JSON, encoded(content), error.headers)


def encoded(value: object) -> bytes:
    """Return ``value`` as JSON. Raises ``TypeError`` for a value without a JSON form.

    Dataclasses and Structs are objects, enums their values, dates and times ISO 8601, durations seconds, sets arrays,
    bytes and decimals strings.
    """
    try:
        return orjson.dumps(value, default=_plain, option=orjson.OPT_NON_STR_KEYS)
    except TypeError:
        # orjson refuses integers of more than 64 bits and text with lone surrogates.
        return _encoded_slowly(value)


def _encoded_slowly(value: object) -> bytes:
    try:
        return json.dumps(value, default=_plain_of_any, allow_nan=False).encode("ascii")
    except (ValueError, RecursionError) as exc:
        raise TypeError(f"the value has no JSON form: {exc}") from exc


def _plain(value: object) -> object:
    """Return a form of ``value`` that orjson encodes. Raises ``TypeError``."""
    match value:
        case timedelta():
            return value.total_seconds()
        case Decimal():
            return str(value)
        case bytes() | bytearray():
            return bytes(value).decode("utf-8", "backslashreplace")
        case PurePath():
            return str(value)
        case msgspec.Struct():
            return msgspec.structs.asdict(value)
        case tuple() | Set():
            return list(_items(value))
        case Mapping():
            return dict(_pairs(value))
        case _:
            raise TypeError(f"{type(value).__name__} has no JSON form")


def _plain_of_any(value: object) -> object:
    """Return a form of ``value`` that ``json`` encodes: of the types that orjson encodes itself, too."""
    match value:
        case Enum():
            return value.value
        case datetime() | date() | time():
            return value.isoformat()
        case UUID():
            return str(value)
        case _ if is_dataclass(value) and not isinstance(value, type):
            return asdict(value)
        case _:
            return _plain(value)


def _items(values: Any) -> list[object]:
    return list(values)


def _pairs(mapping: Any) -> list[tuple[object, object]]:
    return list(mapping.items())
