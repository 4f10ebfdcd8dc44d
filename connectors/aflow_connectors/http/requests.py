"""Requests with records: their bodies, their keys, and what a service refuses.

A body holds records up to ``max_records`` and ``max_bytes``. A single larger record has a request of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Literal, TypeAlias, TypeGuard, TypeVar

from orjson import dumps

from aflow.connect import SinkError
from aflow.errors import shown
from aflow_connectors.formats import Format, FormatError, Json, Text
from aflow_connectors.json_encoder import STR_KEYS, to_json
from aflow_connectors.message import Message

T = TypeVar("T")

Body: TypeAlias = Literal["array", "lines", "single"]
"""A JSON array of records, a line for each, or one record for each request."""

_TYPES: Final[dict[str, str]] = {"array": "application/json", "lines": "application/x-ndjson"}


# Not slotted: on Python 3.11 RefusedRequest[int](…) of a frozen, slotted generic raises.
@dataclass(frozen=True)
class RefusedRequest(Generic[T]):
    """A request that a service has refused for good, such as with status 400 or 422."""

    url: str
    """Without its query."""
    status: int
    reason: str
    """The reason and the beginning of the response."""
    key: str
    """The idempotency key."""
    body: bytes
    """The records, as they were sent."""
    content_type: str
    records: Sequence[T] | None
    """The records; None after a restart, which has their bytes only."""


@dataclass(frozen=True, slots=True)
class Request:
    """The body of a request, and its records if they are known."""

    body: bytes
    records: Sequence[Any] | None = None


class RequestBuilder(Generic[T]):
    """Collects the records of a sink into the bodies of requests."""

    def __init__(
        self, sink: str, format: Format[Any], body: Body, max_records: int, max_bytes: int
    ) -> None:
        self._sink = sink
        self._format = format
        self._encode = format.encode
        self._body = body
        self._max_records = 1 if body == "single" else max_records
        self._max_bytes = max_bytes
        self._needs_lines = body == "lines" and not _is_json(format)
        #: Records of the next request, encoded, and the bytes of them and their separators.
        self._records: list[T] = []
        self._encoded: list[bytes] = []
        self._size = 0
        self.content_type = content_type(body, format)

    def __len__(self) -> int:
        """Return the number of records of the next request."""
        return len(self._records)

    async def add(self, records: Sequence[T]) -> list[Request]:
        """Add records. Return the requests that are complete. Raises ``SinkError`` with a record that has no form."""
        bodies: Sequence[Any] = records
        if any(issubclass(kind, Message) for kind in set(map(type, records))):
            bodies = [self._body_of(record) for record in records]
        await self._format.before_encoding(bodies)
        # All of them before the first one is added: a cancelled write adds all or none.
        encoded = self._all_encoded(records, bodies)
        complete: list[Request] = []
        start = 0
        while start < len(encoded):
            # Hot path: as many records as the request has room for, if their bytes fit too.
            stop = start + self._max_records - len(self._records)
            size = sum(map(len, encoded[start:stop])) + len(encoded[start:stop])
            if self._size + size > self._max_bytes:
                stop, size = start + 1, len(encoded[start]) + 1
                if self._records and self._size + size > self._max_bytes:
                    complete.append(self.take())
            self._records += records[start:stop]
            self._encoded += encoded[start:stop]
            self._size += size
            start = stop
            if len(self._records) >= self._max_records:
                complete.append(self.take())
        return complete

    def take(self) -> Request:
        """Return the next request, complete or not; it has one record at least."""
        encoded, self._encoded = self._encoded, []
        records, self._records = self._records, []
        self._size = 0
        if self._body == "array":
            return Request(b"[" + b",".join(encoded) + b"]", records)
        if self._body == "lines":
            return Request(b"\n".join(encoded) + b"\n", records)
        return Request(encoded[0], records)

    def _all_encoded(self, records: Sequence[T], bodies: Sequence[Any]) -> list[bytes]:
        if type(self._format) is Json:
            try:
                return [dumps(body, to_json, STR_KEYS) for body in bodies]
            except TypeError:
                pass  # the other way takes other keys, and finds the record that JSON cannot hold
        return [self._encoded_of(*one) for one in zip(records, bodies, strict=True)]

    def _body_of(self, record: T) -> Any:
        if not _is_message(record):
            return record
        if record.value is None:
            raise SinkError(
                f"sink {self._sink!r}: record {shown(record)} is a tombstone, which a request cannot hold"
            )
        return record.value

    def _encoded_of(self, record: T, body: Any) -> bytes:
        try:
            data = self._encode(body)
        except FormatError as exc:
            raise SinkError(f"sink {self._sink!r}: record {shown(record)}: {exc}") from exc
        if self._needs_lines and b"\n" in data:
            raise SinkError(
                f"sink {self._sink!r}: record {shown(record)} has a line break, and body='lines' needs lines"
            )
        return data


def _is_message(record: object) -> TypeGuard[Message[Any, Any]]:
    return isinstance(record, Message)


def _is_json(format: object) -> bool:
    return isinstance(format, Json)


def content_type(body: Body, format: Format[Any]) -> str:
    """Return the type of the content of requests."""
    if body != "single":
        return _TYPES[body]
    if _is_json(format):
        return "application/json"
    return "text/plain; charset=utf-8" if isinstance(format, Text) else "application/octet-stream"
