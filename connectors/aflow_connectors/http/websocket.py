"""``HttpWebSocket``: the messages of a WebSocket."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, TypeAlias, TypedDict, TypeVar, Unpack, cast, overload

import aiohttp
import orjson

from aflow.connect import BadRecord, Position, Reader, Source, SourceError, Split, Tag
from aflow.errors import FlowDefinitionError, described, shown
from aflow_connectors.arguments import checked_dead_letters
from aflow_connectors.bad_records import BadRecords
from aflow_connectors.formats import Format
from aflow_connectors.http.arguments import (
    checked_count,
    checked_format,
    checked_function,
    checked_optional_seconds,
    checked_seconds,
)
from aflow_connectors.http.client import LOST, Endpoint, check_busy, closed, endpoint_of
from aflow_connectors.http.pushed import PushedReader, Received, StreamEnded
from aflow_connectors.messages import MessageDecoder, RawMessage
from aflow_connectors.reconnect import Reconnect, Retries, checked_reconnect

T = TypeVar("T")
V = TypeVar("V")

Outgoing: TypeAlias = str | bytes | dict[str, Any] | list[Any]
"""A message to the server: text, bytes, or an object or array that is sent as JSON."""

_HEARTBEAT: Final = timedelta(seconds=30)
_IDLE_AFTER: Final = timedelta(seconds=5)
_TIMEOUT: Final = timedelta(seconds=30)

#: Messages that are returned together, at most.
_MOST: Final = 1024

_TEXT: Final = aiohttp.WSMsgType.TEXT

#: With a parameter that pyright does not find.
_timeouts: Any = aiohttp.ClientWSTimeout

#: Seconds for the farewell of a server.
_CLOSING: Final = 1.0

#: Codes with which a server ends a connection in order, and codes that mean that it may be back soon.
_ENDS: Final = frozenset({1000, 1001})
_LOST_CODES: Final = frozenset({1005, 1006, 1011, 1012, 1013, 1014})
_TOO_LARGE: Final = 1009


class WebSocketOptions(TypedDict, total=False):
    """The arguments of ``HttpWebSocket`` that have no influence on the type of its records."""

    start: Position | None
    dead_letters: Tag[BadRecord] | None
    reconnect: Reconnect
    subscribe: Sequence[Outgoing]
    resume: Callable[[Any], Outgoing | None] | None
    reconnect_on: Collection[int]
    heartbeat: timedelta | None
    idle_after: timedelta | None
    timeout: timedelta
    max_bytes: int
    client: Mapping[str, object] | None


class HttpWebSocket(Source[T]):
    """Read the messages of a WebSocket at ``url``. Each is a record: JSON of type ``of``, or another ``format``.

    ``subscribe`` are messages that are sent after each connection. A server that can continue needs two functions:
    ``position`` maps a record to the position after it, as plain data or None if it has none, and ``resume`` maps the
    position to the message that is sent, after those of ``subscribe``, to continue there; ``start`` is the first
    position. Then no record is lost or repeated, as far as the server keeps them. Without them, what the server sends
    between two connections is lost, and the source is not replayable, as the plan of the job tells.

    The server must answer pings within half of ``heartbeat`` (30 seconds), or the connection is renewed; None: no
    pings. A source without messages for ``idle_after`` (5 seconds) does not hold event time back. ``timeout`` (30
    seconds) is for a connection, ``max_bytes`` (16 MiB) for a message. Busy servers and lost connections are repeated
    (``reconnect``), as are connections that the server ends with a code of ``reconnect_on``; other codes of refusal,
    such as 1008, all from 3000 on, and statuses such as 401 raise ``SourceError``. ``client`` are settings of
    ``aiohttp.ClientSession``, and ``ssl``.
    """

    bounded = False

    @overload
    def __init__(
        self: HttpWebSocket[Any],
        url: str,
        *,
        position: Callable[[Any], Position | None] | None = None,
        **options: Unpack[WebSocketOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: HttpWebSocket[V],
        url: str,
        *,
        of: type[V],
        position: Callable[[V], Position | None] | None = None,
        **options: Unpack[WebSocketOptions],
    ) -> None: ...

    @overload
    def __init__(
        self: HttpWebSocket[V],
        url: str,
        *,
        format: Format[V],
        position: Callable[[V], Position | None] | None = None,
        **options: Unpack[WebSocketOptions],
    ) -> None: ...

    def __init__(
        self,
        url: str,
        *,
        of: type[Any] | None = None,
        format: Format[Any] | None = None,
        start: Position | None = None,
        dead_letters: Tag[BadRecord] | None = None,
        reconnect: Reconnect = Reconnect(),  # noqa: B008  # it is immutable
        subscribe: Sequence[Outgoing] = (),
        position: Callable[[Any], Position | None] | None = None,
        resume: Callable[[Any], Outgoing | None] | None = None,
        reconnect_on: Collection[int] = (),
        heartbeat: timedelta | None = _HEARTBEAT,
        idle_after: timedelta | None = _IDLE_AFTER,
        timeout: timedelta = _TIMEOUT,
        max_bytes: int = 16 << 20,
        client: Mapping[str, object] | None = None,
    ) -> None:
        owner = "HttpWebSocket"
        checked_dead_letters(owner, dead_letters)
        self.dead_letters = dead_letters
        self._format = checked_format(owner, of, format)
        self._reconnect = checked_reconnect(owner, reconnect)
        self._position = checked_function(owner, "position", position)
        self._resume = checked_function(owner, "resume", resume)
        if (position is None) != (resume is None):
            raise FlowDefinitionError(
                f"{owner}: position= and resume= belong together: one tells where to continue, the other asks for it"
            )
        if start is not None and resume is None:
            raise FlowDefinitionError(f"{owner}: start= needs resume=, which asks for it")
        self._start = start
        self.replayable = position is not None
        self._subscribe = _checked_messages(owner, subscribe)
        self._reconnect_on = _checked_codes(owner, reconnect_on)
        self._heartbeat = checked_optional_seconds(owner, "heartbeat", heartbeat)
        self._idle_after = checked_optional_seconds(owner, "idle_after", idle_after)
        self._timeout = checked_seconds(owner, "timeout", timeout)
        self._max_bytes = checked_count(owner, "max_bytes", max_bytes)
        self._endpoint = endpoint_of(owner, url, client, schemes=("http", "https", "ws", "wss"))

    async def splits(self) -> Sequence[Split]:
        return [Split("url")]

    async def reader(self, split: Split, position: Position | None) -> Reader[T]:
        place = self._endpoint.place
        feed = WebSocketFeed(
            self._endpoint,
            self._subscribe,
            self._resume,
            lost_codes=_LOST_CODES | self._reconnect_on,
            heartbeat=self._heartbeat,
            timeout=self._timeout,
            max_bytes=self._max_bytes,
        )
        reader = PushedReader[T](
            place,
            feed,
            MessageDecoder(place, self._format, dead_letters=self.dead_letters),
            BadRecords(place, self.dead_letters),
            Retries(place, self._reconnect, lost=LOST, failed=SourceError),
            self._start if position is None else position,
            idle_after=self._idle_after,
            position_of=self._position,
        )
        try:
            await reader.open()
        except BaseException:
            await reader.close()
            raise
        return reader


class WebSocketFeed:
    """The connection of a WebSocket."""

    #: The protocol has no delay that a server asks for.
    pause: float | None = None

    def __init__(
        self,
        endpoint: Endpoint,
        subscribe: Sequence[Outgoing],
        resume: Callable[[Any], Outgoing | None] | None,
        *,
        lost_codes: frozenset[int],
        heartbeat: float | None,
        timeout: float,
        max_bytes: int,
    ) -> None:
        self._endpoint = endpoint
        self._subscribe = subscribe
        self._resume = resume
        self._lost_codes = lost_codes
        self._heartbeat = heartbeat
        self._timeout = timeout
        self._max_bytes = max_bytes
        self._session: aiohttp.ClientSession | None = None
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        #: Messages that ``receive`` has not returned yet: it may be cancelled.
        self._received: list[Received] = []
        #: The end of the connection after these messages; None while there is one.
        self._end: Exception | None = None

    async def connect(self, position: Position | None) -> None:
        await self._leave()
        if self._session is None:
            self._session = self._endpoint.open_session(refuses_redirects=True)
        async with asyncio.timeout(self._timeout):
            self._socket = await self._opened(self._session)
            for message in self._subscribe:
                await _send(self._socket, message)
            if position is not None and self._resume is not None:
                message = self._resumed(self._resume, position)
                if message is not None:
                    await _send(self._socket, message)

    async def receive(self) -> Sequence[Received]:
        received = self._received
        assert self._socket is not None
        if not received and self._end is None:
            self._add(await self._socket.receive())
        next_message = self._socket.receive
        try:
            async with asyncio.timeout(0):
                # Hot path. Until it would wait: messages that have arrived already are returned at once.
                while self._end is None and len(received) < _MOST:
                    message = await next_message()
                    if message.type is _TEXT:
                        received.append(RawMessage(message.data.encode()))
                    else:
                        self._add(message)
        except TimeoutError:
            pass
        if not received and self._end is not None:
            raise self._end
        self._received = []
        return received

    async def close(self) -> None:
        await self._leave()
        session, self._session = self._session, None
        await closed(session)

    async def _leave(self) -> None:
        socket, self._socket = self._socket, None
        self._received, self._end = [], None
        if socket is not None:
            await socket.close()

    async def _opened(self, session: aiohttp.ClientSession) -> aiohttp.ClientWebSocketResponse:
        place = self._endpoint.place
        try:
            return await session.ws_connect(
                self._endpoint.url,
                heartbeat=self._heartbeat,
                max_msg_size=self._max_bytes,
                timeout=_timeouts(ws_close=_CLOSING),
            )
        except aiohttp.WSServerHandshakeError as exc:
            check_busy(exc.status, str(exc.status), exc.headers or {})
            hint = "; credentials are settings of client=" if exc.status in (401, 403) else ""
            reason = self._endpoint.without_secrets(exc.message)
            raise SourceError(
                f"{place} refuses the WebSocket: {exc.status} {reason}{hint}"
            ) from None
        except aiohttp.ConnectionTimeoutError:  # its text has the query of the URL
            raise TimeoutError(f"no connection to {place} in time") from None
        except aiohttp.ClientConnectorCertificateError as exc:
            raise SourceError(f"{place}: the certificate is not valid: {exc}") from exc
        except aiohttp.ClientResponseError as exc:
            raise aiohttp.ClientPayloadError(f"the answer is no HTTP: {exc.message}") from exc

    def _add(self, message: aiohttp.WSMessage) -> None:
        """Keep a message, or the end of the connection."""
        if message.type is _TEXT:
            self._received.append(RawMessage(cast(str, message.data).encode()))
        elif message.type is aiohttp.WSMsgType.BINARY:
            self._received.append(RawMessage(bytes(message.data)))
        elif message.type is aiohttp.WSMsgType.CLOSE:
            self._end = self._end_of(cast("int | None", message.data), message.extra)
        elif message.type is aiohttp.WSMsgType.ERROR:
            self._end = self._broken(message.data)
        else:
            self._end = ConnectionResetError("the connection was cut")

    def _end_of(self, code: int | None, reason: object) -> Exception:
        number = 1005 if code is None else code
        if number in _ENDS:
            return StreamEnded()
        text = self._endpoint.without_secrets(f"{number} {reason or ''}".strip())
        if number in self._lost_codes:
            return ConnectionResetError(f"the server ended the connection with code {text}")
        return SourceError(
            f"{self._endpoint.place}: the server ended the WebSocket with code {text}; reconnect_on=[{number}] would "
            f"take it for a lost connection"
        )

    def _broken(self, error: object) -> Exception:
        if isinstance(error, aiohttp.WebSocketError) and error.code == _TOO_LARGE:
            return SourceError(
                f"{self._endpoint.place}: a message has more than {self._max_bytes:,} bytes; raise max_bytes"
            )
        if isinstance(error, BaseException):
            return ConnectionResetError(described(error))
        return ConnectionResetError("the connection failed")

    def _resumed(self, resume: Callable[[Any], Outgoing | None], position: Position) -> Any:
        try:
            return resume(position)
        except Exception as exc:
            raise SourceError(
                f"{self._endpoint.place}: resume= failed for position {shown(position)}: {described(exc)}"
            ) from exc


async def _send(socket: aiohttp.ClientWebSocketResponse, message: Outgoing) -> None:
    if isinstance(message, str):
        await socket.send_str(message)
    elif isinstance(message, bytes):
        await socket.send_bytes(message)
    else:
        await socket.send_str(orjson.dumps(message).decode())


def _checked_messages(owner: str, messages: object) -> tuple[Outgoing, ...]:
    if type(messages) in (list, tuple):
        given = cast("Sequence[object]", messages)
        if all(isinstance(one, (str, bytes, dict, list)) for one in given):
            return tuple(cast("Sequence[Outgoing]", given))
    raise FlowDefinitionError(
        f"{owner}: subscribe= must be several messages (str, bytes, dicts or lists), like [{{'op': 'subscribe'}}], not "
        f"{shown(messages)}"
    )


def _checked_codes(owner: str, codes: object) -> frozenset[int]:
    if type(codes) in (list, tuple, set, frozenset):
        given = frozenset(cast("Collection[object]", codes))
        if all(type(one) is int and 1000 <= one < 5000 for one in given):
            return cast("frozenset[int]", given)
    raise FlowDefinitionError(
        f"{owner}: reconnect_on= must be several codes of WebSockets, like [4000], not {shown(codes)}"
    )
