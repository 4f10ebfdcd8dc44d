"""``HttpEvents``: a stream of server-sent events."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any, Final, Literal, TypedDict, TypeVar, Unpack, cast, overload

import aiohttp

from aflow.connect import BadRecord, Position, Reader, Source, SourceError, Split, Tag
from aflow.errors import FlowDefinitionError, shown
from aflow_connectors.arguments import checked_dead_letters, checked_texts
from aflow_connectors.bad_records import BadRecords
from aflow_connectors.formats import Format
from aflow_connectors.http.arguments import (
    checked_count,
    checked_format,
    checked_optional_seconds,
    checked_seconds,
)
from aflow_connectors.http.client import LOST, Endpoint, check_status, closed, endpoint_of, request
from aflow_connectors.http.event_parser import EventParser, ServerSentEvent
from aflow_connectors.http.pushed import (
    BadMessage,
    PushedReader,
    Received,
    SkippedMessage,
    StreamEnded,
)
from aflow_connectors.message import Message
from aflow_connectors.messages import MessageDecoder, RawMessage
from aflow_connectors.reconnect import Reconnect, Retries, checked_reconnect

T = TypeVar("T")
V = TypeVar("V")

_logger = logging.getLogger("aflow.connectors")

_HEARTBEAT: Final = timedelta(minutes=1)
_IDLE_AFTER: Final = timedelta(seconds=5)
_TIMEOUT: Final = timedelta(seconds=30)

#: Bytes that are parsed at once, at most.
_PIECE: Final = 1 << 16

_TYPE: Final = "text/event-stream"


class EventOptions(TypedDict, total=False):
    """The arguments of ``HttpEvents`` that have no influence on the type of its records."""

    start: str | None
    dead_letters: Tag[BadRecord] | None
    reconnect: Reconnect
    events: Collection[str] | None
    replays: bool
    heartbeat: timedelta | None
    idle_after: timedelta | None
    timeout: timedelta
    max_bytes: int
    client: Mapping[str, object] | None


class HttpEvents(Source[T]):
    """Read the server-sent events of ``url``. The data of each is a record: JSON of type ``of``, or another ``format``.

    With ``messages=True`` the records are ``Message``, with the type of the event in the header "event", and its id as
    ``offset``. ``events`` are the types that are read, by default all.

    The id of the last event is the position, and is sent as ``Last-Event-ID`` after a restart and after each lost
    connection. A server that keeps its events sends those after it, so none is lost or repeated. Otherwise, events
    between two connections are lost: say so with ``replays=False``, and the plan of the job tells it. ``start`` is the
    id for the first connection.

    A connection on which nothing arrives for ``heartbeat`` (1 minute), comments included, is renewed; None: never. A
    source without events for ``idle_after`` (5 seconds) does not hold event time back. ``retry`` fields of the server
    delay connections. Status 204 ends the source. ``timeout`` (30 seconds) is for a connection, ``max_bytes`` (16 MiB)
    for an event. Busy servers and lost connections are repeated (``reconnect``); other statuses and other types of
    content raise ``SourceError``. ``client`` are settings of ``aiohttp.ClientSession``, and ``ssl``.
    """

    bounded = False

    @overload
    def __init__(
        self: HttpEvents[Any],
        url: str,
        *,
        messages: Literal[False] = False,
        **options: Unpack[EventOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: HttpEvents[V],
        url: str,
        *,
        of: type[V],
        messages: Literal[False] = False,
        **options: Unpack[EventOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: HttpEvents[V],
        url: str,
        *,
        format: Format[V],
        messages: Literal[False] = False,
        **options: Unpack[EventOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: HttpEvents[Message[bytes, V]],
        url: str,
        *,
        of: type[V],
        messages: Literal[True],
        **options: Unpack[EventOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: HttpEvents[Message[bytes, V]],
        url: str,
        *,
        format: Format[V],
        messages: Literal[True],
        **options: Unpack[EventOptions],
    ) -> None: ...

    def __init__(
        self,
        url: str,
        *,
        of: type[Any] | None = None,
        format: Format[Any] | None = None,
        messages: bool = False,
        start: str | None = None,
        dead_letters: Tag[BadRecord] | None = None,
        reconnect: Reconnect = Reconnect(),  # noqa: B008  # it is immutable
        events: Collection[str] | None = None,
        replays: bool = True,
        heartbeat: timedelta | None = _HEARTBEAT,
        idle_after: timedelta | None = _IDLE_AFTER,
        timeout: timedelta = _TIMEOUT,
        max_bytes: int = 16 << 20,
        client: Mapping[str, object] | None = None,
    ) -> None:
        owner = "HttpEvents"
        checked_dead_letters(owner, dead_letters)
        self.dead_letters = dead_letters
        self.replayable = replays
        self._format = checked_format(owner, of, format)
        self._messages = messages
        self._start = _checked_id(owner, start)
        self._reconnect = checked_reconnect(owner, reconnect)
        self._types = None if events is None else frozenset(checked_texts(owner, "events", events))
        self._idle_after = checked_optional_seconds(owner, "idle_after", idle_after)
        self._endpoint = endpoint_of(owner, url, client)
        self._timeout = aiohttp.ClientTimeout(
            total=None,
            sock_connect=checked_seconds(owner, "timeout", timeout),
            sock_read=checked_optional_seconds(owner, "heartbeat", heartbeat),
        )
        self._max_bytes = checked_count(owner, "max_bytes", max_bytes)

    async def splits(self) -> Sequence[Split]:
        return [Split("url")]

    async def reader(self, split: Split, position: Position | None) -> Reader[T]:
        place = self._endpoint.place
        feed = EventFeed(
            self._endpoint, self._types, self._timeout, self._max_bytes, warns=self.replayable
        )
        reader = PushedReader[T](
            place,
            feed,
            MessageDecoder(
                place, self._format, messages=self._messages, dead_letters=self.dead_letters
            ),
            BadRecords(place, self.dead_letters),
            Retries(place, self._reconnect, lost=LOST, failed=SourceError),
            self._start if position is None else _decoded(position, place),
            idle_after=self._idle_after,
        )
        try:
            await reader.open()
        except BaseException:
            await reader.close()
            raise
        return reader


class EventFeed:
    """The connection to a stream of events. ``warns``: log a warning if events have no ids."""

    def __init__(
        self,
        endpoint: Endpoint,
        types: frozenset[str] | None,
        timeout: aiohttp.ClientTimeout,
        max_bytes: int,
        *,
        warns: bool,
    ) -> None:
        self._endpoint = endpoint
        self._types = types
        self._timeout = timeout
        self._max_bytes = max_bytes
        self._warns = warns
        self._session: aiohttp.ClientSession | None = None
        self._parser = EventParser(max_bytes=max_bytes)
        self._response: aiohttp.ClientResponse | None = None
        #: Closes the response.
        self._open = AsyncExitStack()
        self.pause: float | None = None

    async def connect(self, position: Position | None) -> None:
        await self._leave()
        if self._session is None:
            self._session = self._endpoint.open_session()
        last_id = cast(str, position or "")
        headers = {"Accept": _TYPE, "Cache-Control": "no-store"}
        if last_id:
            headers["Last-Event-ID"] = last_id
        async with AsyncExitStack() as stack:
            async with asyncio.timeout(self._timeout.sock_connect):
                response = await stack.enter_async_context(
                    request(
                        self._endpoint,
                        self._session,
                        "GET",
                        self._endpoint.url,
                        failed=SourceError,
                        timeout=self._timeout,
                        headers=headers,
                    )
                )
                await check_status(self._endpoint, response, SourceError)
                if response.status == 204:
                    raise StreamEnded(for_good=True)
                if response.content_type != _TYPE:
                    raise SourceError(
                        f"{self._endpoint.place}: the response has the type {response.content_type!r}, not {_TYPE!r}"
                    )
            self._open = stack.pop_all()
        self._response = response
        self._parser = EventParser(max_bytes=self._max_bytes, last_id=last_id)

    async def receive(self) -> Sequence[Received]:
        assert self._response is not None
        piece = await self._response.content.read(_PIECE)
        if not piece:
            raise StreamEnded
        events = self._parser.feed(piece)
        if self._parser.retry is not None:
            self.pause = self._parser.retry
        types = self._types
        received = [
            self._received(event) for event in events if types is None or event.type in types
        ]
        if types is not None and events and events[-1].type not in types:
            received.append(SkippedMessage(events[-1].id))
        return received

    async def close(self) -> None:
        await self._leave()
        session, self._session = self._session, None
        await closed(session)

    async def _leave(self) -> None:
        self._response = None
        open, self._open = self._open, AsyncExitStack()
        await open.aclose()

    def _received(self, event: ServerSentEvent) -> Received:
        if self._warns and not event.id:
            self._warns = False
            extra = {"event": "events_without_id", "place": self._endpoint.place}
            _logger.warning(
                "%s: an event has no id, so the server cannot send later ones again after a lost connection, and they "
                "are lost; replays=False says so in the plan",
                self._endpoint.place,
                extra=extra,
            )
        if event.is_too_large:
            reason = f"the event has more than {self._max_bytes:,} bytes (max_bytes)"
            return BadMessage(event.data, reason, event.id)
        return RawMessage(event.data, None, (("event", event.type.encode()),), None, event.id)


def _checked_id(owner: str, start: object) -> str | None:
    if start is None or (isinstance(start, str) and start.isprintable() and start):
        return start
    raise FlowDefinitionError(f"{owner}: start= must be the id of an event, not {shown(start)}")


def _decoded(position: Position, place: str) -> str:
    if isinstance(position, str):
        return position
    raise SourceError(
        f"{place} cannot continue at {shown(position)}: the checkpoint is of another kind of source"
    )
