"""Records of HTTP requests for a ``DurablePushSource``: one, a JSON array, or JSON lines in a request.

**202** says that each record of the request is in the log on disk, so that a crash does not lose it. The id of a record
is that of its request (``Idempotency-Key``), with its number if the request has several, or what ``id`` makes of it. So
a repeated request adds nothing. Records are sent to the log together, and share a sync.

Each record has a result: ``accepted``, ``duplicate`` (it was in the log already), ``invalid`` (with a reason),
``refused`` (the log is full, and it is not in it) or ``unknown`` (send it again, with its id). The status follows from
the worst.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Generic, TypeVar, cast

import msgspec
import orjson
from starlette.routing import Router

from aflow.errors import (
    ConnectorError,
    FlowDefinitionError,
    JobStopped,
    SourceError,
    SourceFull,
    described,
    shown,
)
from aflow.runtime.builtin_connectors.durable_push.acknowledgements import Ack
from aflow.runtime.builtin_connectors.durable_push.source import DurablePushSource
from aflow.web.access import Access
from aflow.web.asgi import router_of
from aflow.web.messages import (
    WebError,
    WebRequest,
    WebResponse,
    error_response,
    json_response,
)

T = TypeVar("T")

_log = logging.getLogger("aflow.web")

#: Types of content with a record in each line.
_LINES: Final = frozenset(
    {"application/x-ndjson", "application/jsonl", "application/jsonlines", "application/json-lines"}
)
_JSON: Final = "application/json"

_HEADERS: Final = {"cache-control": "no-store", "x-content-type-options": "nosniff"}

#: Promises that a request may ask for, and the status of a kept one.
_PROMISES: Final = {
    "logged": (Ack.LOGGED, 202),
    "checkpointed": (Ack.CHECKPOINTED, 200),
    "processed": (Ack.PROCESSED, 200),
}

#: Errors of a decoder that mean an invalid record. Those of msgspec are no ValueError; formats raise ConnectorError.
_INVALID: Final = (msgspec.MsgspecError, ValueError, ConnectorError, RecursionError)


@dataclass(frozen=True, slots=True)
class RecordResult:
    """The result of one record."""

    status: str
    reason: str | None = None

    def view(self) -> dict[str, str]:
        """Return the JSON form."""
        reason = {} if self.reason is None else {"reason": self.reason}
        return {"status": self.status, **reason}


@dataclass(frozen=True, slots=True)
class _Entry(Generic[T]):
    """A record of a request: its value, or the result if it has none."""

    value: T | None = None
    id: str | None = None
    result: RecordResult | None = None


@dataclass(frozen=True, slots=True)
class _Body:
    """The bytes of each record, and True if the request has one record and not a list."""

    parts: Sequence[bytes]
    is_single: bool = field(kw_only=True)


def ingest(
    source: DurablePushSource[T],
    *,
    of: type[T] | None = None,
    decode: Callable[[bytes], T] | None = None,
    id: Callable[[T], str] | None = None,
    token: str | None = None,
    max_bytes: int = 1 << 20,
    max_records: int = 10_000,
    ack_timeout: timedelta = timedelta(seconds=30),
) -> Router:
    """Return an ASGI application that sends the records of ``POST`` requests to ``source``, at any path.

    ``Route("/orders", aflow.web.ingest(orders, of=Order))``. A body is JSON, decoded as ``of``, by default as any JSON:
    a record, an array of records, or with the type ``application/x-ndjson`` a record in each line. ``decode`` decodes
    records otherwise, such as ``Json(Order).decode``; it raises ``ValueError`` or ``ConnectorError`` for invalid ones.
    ``id`` maps a record to its id, instead of the header ``Idempotency-Key``.

    Responses: 202 if all records are in the log, 207 if others are invalid, 400 if all are, 503 with ``Retry-After`` if
    the log is full or cannot be written, 413 for more than ``max_bytes`` (1 MiB) or ``max_records`` (10,000), 401
    without ``Authorization: Bearer <token>`` if there is a ``token``. ``?ack=processed`` or ``?ack=checkpointed`` waits
    for that promise, and is answered with 200, or 504 after ``ack_timeout`` (30 seconds). Raises
    ``FlowDefinitionError`` for arguments that are not valid.
    """
    return router_of(IngestApi(source, of, decode, id, token, max_bytes, max_records, ack_timeout))


class IngestApi(Generic[T]):
    """Answers requests with records, independent of a web framework. The arguments are those of ``ingest``."""

    def __init__(
        self,
        source: DurablePushSource[T],
        of: type[T] | None,
        decode: Callable[[bytes], T] | None,
        id: Callable[[T], str] | None,
        token: str | None,
        max_bytes: int,
        max_records: int,
        ack_timeout: timedelta,
    ) -> None:
        if not isinstance(source, DurablePushSource):
            raise FlowDefinitionError(
                f"ingest takes a DurablePushSource, whose records survive a crash, not {shown(source)}"
            )
        if of is not None and decode is not None:
            raise FlowDefinitionError("ingest: of= is for JSON; with decode= leave it out")
        for name, function in (("decode", decode), ("id", id)):
            if function is not None and not callable(function):
                raise FlowDefinitionError(
                    f"ingest: {name}= must be a function, not {shown(function)}"
                )
        for name, number in (("max_bytes", max_bytes), ("max_records", max_records)):
            if type(number) is not int or number < 1:
                raise FlowDefinitionError(
                    f"ingest: {name}= must be a positive int, not {shown(number)}"
                )
        if not isinstance(ack_timeout, timedelta) or ack_timeout <= timedelta(0):
            raise FlowDefinitionError(
                f"ingest: ack_timeout= must be a positive timedelta, not {shown(ack_timeout)}"
            )
        self._source = source
        self._decode = _decoder(of) if decode is None else decode
        self._is_json = decode is None
        self._id = id
        #: None without a token: then requests need none.
        self._access = None if token is None else Access(token, None)
        self._max_records = max_records
        self._ack_timeout = ack_timeout.total_seconds()
        self.max_body = max_bytes

    async def respond(self, request: WebRequest) -> WebResponse:
        """Return the response to a request; raises nothing but a cancellation."""
        try:
            response = await self._respond(request)
        except WebError as error:
            response = error_response(error)
        except Exception:
            _log.exception("%s %s failed", request.method, request.path)
            text = "the request failed in the application; its log has the reason"
            response = error_response(WebError(500, "internal_error", text))
        headers = {**_HEADERS, **response.headers}
        return WebResponse(response.status, response.content_type, response.body, headers)

    async def _respond(self, request: WebRequest) -> WebResponse:
        self._check(request)
        name = request.arguments("ack").get("ack", "logged")
        if name not in _PROMISES:
            raise WebError(400, "invalid_query", f"ack={name} is none of {', '.join(_PROMISES)}")
        promise, kept = _PROMISES[name]
        body = self._body(request)
        if len(body.parts) > self._max_records:
            raise WebError(
                413,
                "too_large",
                f"the request has {len(body.parts):,} records, more than {self._max_records:,}; send several",
            )
        key = request.headers.get("idempotency-key")
        entries = [
            self._entry(part, key if body.is_single or key is None else f"{key} {number}")
            for number, part in enumerate(body.parts)
        ]
        try:
            async with asyncio.timeout(self._ack_timeout if promise is not Ack.LOGGED else None):
                results = await self._send(entries, promise)
        except TimeoutError:
            raise WebError(
                504,
                "timeout",
                f"the records were not {name} within {self._ack_timeout:g} s; send them again, with their ids",
            ) from None
        return _response(results, kept, is_single=body.is_single)

    def _check(self, request: WebRequest) -> None:
        """Raise ``WebError`` for a request that is refused whatever it contains."""
        if request.method != "POST":
            raise WebError(405, "method_not_allowed", "records take POST", {"allow": "POST"})
        if self._access is not None:
            self._access.check_write(request.headers)
        if len(request.body) > self.max_body:
            raise WebError(
                413,
                "too_large",
                f"the request has more than {self.max_body:,} bytes; send its records in several requests",
            )
        if request.headers.get("content-encoding", "identity") != "identity":
            raise WebError(415, "unsupported_encoding", "send the records without Content-Encoding")

    def _body(self, request: WebRequest) -> _Body:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        data = request.body
        if kind in _LINES:
            lines = (line.strip() for line in data.split(b"\n"))
            return _Body([line for line in lines if line], is_single=False)
        if (self._is_json or kind == _JSON) and data.lstrip()[:1] == b"[":
            try:
                parts = msgspec.json.decode(data, type=list[msgspec.Raw])
            except (msgspec.MsgspecError, RecursionError) as exc:
                raise WebError(400, "invalid", f"not a JSON array of records: {exc}") from exc
            return _Body([bytes(part) for part in parts], is_single=False)
        return _Body([data], is_single=True)

    def _entry(self, part: bytes, key: str | None) -> _Entry[T]:
        try:
            value = self._decode(part)
        except _INVALID as exc:
            return _Entry(result=RecordResult("invalid", _text(exc)))
        except Exception as exc:
            return _Entry(result=RecordResult("invalid", f"decode= failed: {described(exc)}"))
        if self._id is not None:
            try:
                key = self._id(value)
            except Exception as exc:
                return _Entry(result=RecordResult("invalid", f"id= failed: {described(exc)}"))
        return _Entry(value, key)

    async def _send(self, entries: Sequence[_Entry[T]], promise: Ack) -> list[RecordResult]:
        """Send the valid records, and return the results of all."""
        valid = [entry for entry in entries if entry.result is None]
        sent = iter(await self._send_valid(valid, promise))
        return [next(sent) if entry.result is None else entry.result for entry in entries]

    async def _send_valid(self, entries: Sequence[_Entry[T]], promise: Ack) -> list[RecordResult]:
        if len(entries) > 1 and all(entry.id is None for entry in entries):
            values = [cast(T, entry.value) for entry in entries]
            try:
                await self._source.send_many(values, ack=promise)
            except FlowDefinitionError:
                pass  # none was sent; one by one they show which is invalid
            except (SourceFull, SourceError, JobStopped) as exc:
                return [_result_of(exc)] * len(entries)
            else:
                return [RecordResult("accepted")] * len(entries)
        if len(entries) == 1:
            return [await self._send_one(entries[0], promise)]
        # Each appends to the log when it starts, so they are in order there, and share a sync.
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._send_one(entry, promise)) for entry in entries]
        return [task.result() for task in tasks]

    async def _send_one(self, entry: _Entry[T], promise: Ack) -> RecordResult:
        try:
            is_new = await self._source.send(cast(T, entry.value), id=entry.id, ack=promise)
        except (FlowDefinitionError, SourceFull, SourceError, JobStopped) as exc:
            return _result_of(exc)
        return RecordResult("accepted" if is_new else "duplicate")


def _result_of(error: Exception) -> RecordResult:
    if isinstance(error, FlowDefinitionError):
        return RecordResult("invalid", str(error))
    return RecordResult("refused" if isinstance(error, SourceFull) else "unknown", str(error))


def _response(results: Sequence[RecordResult], kept: int, *, is_single: bool) -> WebResponse:
    counts = Counter(result.status for result in results)
    status, headers = kept, {}
    if counts["refused"] or counts["unknown"]:
        status, headers = 503, {"retry-after": "1"}
    elif counts["invalid"]:
        status = 400 if counts["invalid"] == len(results) else 207
    if is_single:
        view: object = results[0].view()
    else:
        view = {**counts, "results": [result.view() for result in results]}
    response = json_response(status, view)
    return WebResponse(status, response.content_type, response.body, headers)


def _decoder(of: type[T] | None) -> Callable[[bytes], T]:
    if of is None:
        return cast("Callable[[bytes], T]", orjson.loads)
    try:
        return msgspec.json.Decoder(of).decode
    except TypeError as exc:
        raise FlowDefinitionError(f"ingest: cannot decode JSON into {of!r}: {exc}") from exc


def _text(error: BaseException) -> str:
    """Return the text of an error; those of JSON say nothing about their type."""
    if isinstance(error, (orjson.JSONDecodeError, json.JSONDecodeError)):
        return f"not JSON: {error}"
    return str(error) or described(error)
