"""The adapter to ``nats-py``: the only module that imports it.

It checks the addresses and settings of users, and sorts the errors of the client: a lost connection is repeated by
``Retries`` with a new one, all others fail at once. The client does not reconnect by itself, since it cannot know which
messages may be sent again. Requests to JetStream are JSON, as in the documentation of its API.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from inspect import signature
from typing import Any, Final, TypeVar, cast
from urllib.parse import urlsplit

import orjson

from aflow.connect import ConnectorError
from aflow.errors import FlowDefinitionError, described, shown
from aflow_connectors.optional import load
from aflow_connectors.reconnect import Reconnect, Retries, checked_reconnect

T = TypeVar("T")

_WANTED: Final = {"package": "nats-py", "extra": "nats", "purpose": "aflow_connectors.nats"}

# Its types are incomplete.
_nats: Any = load("nats.aio.client", **_WANTED)
_errors: Any = load("nats.errors", **_WANTED)

#: Default bound of the answer to a request, and of an attempt to connect.
TIMEOUT: Final = timedelta(seconds=30)

#: Errors that no further attempt can change.
_REFUSED: Final = (
    _errors.AuthorizationError,
    _errors.InvalidUserCredentialsError,
    _errors.SecureConnRequiredError,
    _errors.SecureConnWantedError,
    _errors.SecureConnFailedError,
)

_LOST: Final = (
    _errors.ConnectionClosedError,
    _errors.ConnectionReconnectingError,
    _errors.ConnectionDrainingError,
    _errors.NoServersError,
    _errors.StaleConnectionError,
    _errors.NoRespondersError,  # JetStream starts, or has no leader
    _errors.OutboundBufferLimitError,
    _errors.TimeoutError,
    OSError,
    TimeoutError,
)

#: Arguments of the client that the connector chooses.
_RESERVED: Final = frozenset(
    {
        "self",
        "servers",
        "error_cb",
        "disconnected_cb",
        "closed_cb",
        "discovered_server_cb",
        "reconnected_cb",
        "lame_duck_mode_cb",
        "reconnect_to_server_handler",
        "allow_reconnect",
        "connect_timeout",
        "reconnect_time_wait",
        "max_reconnect_attempts",
        "dont_randomize",
        "flush_timeout",
        "pending_size",
        "verbose",
        "pedantic",
        "no_echo",
    }
)

_PERMISSIONS: Final = "permissions violation"

#: Words of errors while a connection is opened, which have no class of their own.
_DENIED: Final = ("authorization", "authentication")

#: Texts of errors of connections that end before the server has introduced itself, which have no class of their own.
#: A proxy ends connections in this way while the server is away.
_ENDED_EARLY: Final = ("expecting INFO message", "info message, json parse error")

NOT_FOUND: Final = 404


class NatsUnavailable(Exception):
    """The connection to the server is lost, or JetStream cannot answer now."""


class JetStreamError(Exception):
    """JetStream has refused a request. ``code`` is like a status of HTTP, ``number`` is its own."""

    def __init__(self, answer: Mapping[str, Any]) -> None:
        super().__init__(str(answer.get("description", "refused")))
        self.code = int(answer.get("code", 0))
        self.number = int(answer.get("err_code", 0))

    @property
    def is_temporary(self) -> bool:
        """True if JetStream is not ready: it starts, or has no leader."""
        return self.code == 503 and self.number not in _FULL


#: Numbers of errors of a full server or stream, which have the code of a server that is not ready.
_FULL: Final = frozenset({10023, 10028, 10047, 10077, 10122})


@dataclass(frozen=True, slots=True)
class NatsServers:
    """Addresses, and the settings of the client. Raises ``FlowDefinitionError`` for invalid ones."""

    owner: str
    given: str | Sequence[str] = field(repr=False)
    client: Mapping[str, object] | None = field(default=None, repr=False)
    reconnect: Reconnect = field(default_factory=Reconnect)
    timeout: timedelta = TIMEOUT

    def __post_init__(self) -> None:
        if not self.urls or not all(map(_is_address, self.urls)):
            # They may contain passwords.
            raise FlowDefinitionError(
                f"{self.owner}: the servers must be URLs like 'nats://localhost:4222', one, several in a list or with "
                f"commas"
            )
        if self.client is not None:
            self._check_settings(self.client)
        if not isinstance(self.timeout, timedelta) or self.timeout <= timedelta(0):
            raise FlowDefinitionError(
                f"{self.owner}: timeout= must be a positive timedelta, not {shown(self.timeout)}"
            )
        checked_reconnect(self.owner, self.reconnect)

    @property
    def urls(self) -> Sequence[str]:
        given: object = self.given
        if isinstance(given, str):
            return [one.strip() for one in given.split(",")]
        return cast("Sequence[str]", given) if isinstance(given, (list, tuple)) else ()

    @property
    def place(self) -> str:
        """Hosts and ports, without credentials."""
        return ",".join(urlsplit(url).netloc.rpartition("@")[2] for url in self.urls)

    async def connect(self, closed: Callable[[], None]) -> NatsSession:
        """Connect to the first server that answers. ``closed`` is called when the connection is lost."""
        failure: BaseException = NatsUnavailable("no server")
        for url in self.urls:
            session = NatsSession(self.timeout.total_seconds(), closed)
            try:
                await session.open(url, {} if self.client is None else self.client)
            except (*_LOST, NatsUnavailable) as exc:
                failure = exc
            except BaseException:
                await session.close()
                raise
            else:
                return session
            await session.close()
        raise failure

    def _check_settings(self, client: object) -> None:
        if not isinstance(client, Mapping):
            raise FlowDefinitionError(
                f"{self.owner}: client= must be a mapping of arguments of nats.connect, not a {type(client).__name__}"
            )
        known = frozenset(signature(_nats.Client.connect).parameters) - _RESERVED
        given = sorted(str(name) for name in self.client or ())
        if wrong := [name for name in given if name not in known]:
            chosen = set(wrong) <= _RESERVED
            reason = "are chosen by other arguments" if chosen else "are no arguments of it"
            raise FlowDefinitionError(
                f"{self.owner}: client= has {', '.join(wrong)}, which {reason}; nats.connect has "
                f"{', '.join(sorted(known))}"
            )


class NatsSession:
    """One connection."""

    def __init__(self, timeout: float, closed: Callable[[], None]) -> None:
        self._client = _nats.Client()
        self._timeout = timeout
        self._closed = closed
        #: The last error that the server has sent without a request, such as a missing permission.
        self.refusal: str | None = None
        #: Bounds of the requests that wait for an answer: the client does not end them when the connection is lost.
        self._limits: set[asyncio.Timeout] = set()

    async def open(self, url: str, settings: Mapping[str, object]) -> None:
        async def on_error(exc: Exception) -> None:
            if _PERMISSIONS in str(exc).lower():
                self.refusal = str(exc)
                self._end_waiting()

        async def on_closed() -> None:
            self._end_waiting()

        try:
            await self._client.connect(
                servers=[url],
                allow_reconnect=False,
                max_reconnect_attempts=1,
                reconnect_time_wait=0,
                connect_timeout=self._timeout,
                error_cb=on_error,
                closed_cb=on_closed,
                **settings,
            )
        except _errors.Error as exc:
            if any(text in str(exc) for text in _ENDED_EARLY):
                raise NatsUnavailable(described(exc)) from exc
            raise

    @property
    def is_closed(self) -> bool:
        return bool(self._client.is_closed)

    @property
    def max_payload(self) -> int:
        """The maximum size of a message in bytes, headers included."""
        return int(self._client.max_payload)

    def new_inbox(self) -> str:
        """Return a subject for answers."""
        inbox: str = self._client.new_inbox()
        return inbox

    async def request(self, call: str, body: Mapping[str, object] | None = None) -> dict[str, Any]:
        """Return the answer to ``call`` of the API of JetStream. Raises ``JetStreamError``."""
        data = b"" if body is None else orjson.dumps(body)
        async with self.limit():
            answer = await self._client.request(f"$JS.API.{call}", data, timeout=self._timeout)
        return checked_answer(answer.data)

    async def subscribe(self, subject: str, on_message: Callable[[Any], None]) -> Any:
        """Call ``on_message`` with each message of ``subject``. Return the subscription."""

        async def received(message: Any) -> None:
            on_message(message)

        return await self._client.subscribe(
            subject, cb=received, pending_msgs_limit=0, pending_bytes_limit=0
        )

    async def publish(
        self, subject: str, data: bytes, reply: str, headers: Mapping[str, str] | None = None
    ) -> None:
        await self._client.publish(subject, data, reply=reply, headers=headers)

    async def publish_acknowledged(
        self, subject: str, data: bytes, headers: Mapping[str, str]
    ) -> int:
        """Publish to a stream. Return the sequence. Raises ``JetStreamError``."""
        async with self.limit():
            answer = await self._client.request(
                subject, data, timeout=self._timeout, headers=dict(headers)
            )
        return int(checked_answer(answer.data)["seq"])

    @asynccontextmanager
    async def limit(self) -> AsyncGenerator[None]:
        """Raise ``TimeoutError`` after the timeout, or when the connection is lost."""
        async with asyncio.timeout(self._timeout) as limit:
            self._limits.add(limit)
            try:
                if self.is_closed:
                    raise NatsUnavailable("the connection is closed")
                yield
            finally:
                self._limits.discard(limit)

    def _end_waiting(self) -> None:
        now = asyncio.get_running_loop().time()
        for limit in self._limits:
            limit.reschedule(now)
        self._closed()

    async def close(self) -> None:
        with suppress(Exception):
            # A server that does not answer must not keep it: what remains is not needed.
            transport = self._client._transport
            if transport is not None and self._client._pending_data_size:
                self._client._pending, self._client._pending_data_size = [], 0
            async with asyncio.timeout(1):
                await self._client.close()


class NatsLink:
    """The connection of one reader or writer, which is opened at first use and replaced after a loss.

    ``what`` names it in messages. ``failed`` is raised for all that is no lost connection.
    """

    def __init__(self, servers: NatsServers, what: str, failed: type[ConnectorError]) -> None:
        self.servers = servers
        self._what = what
        self._failed = failed
        self._session: NatsSession | None = None
        #: Called when the connection is lost.
        self.on_closed: Callable[[], None] = _noop
        self._retries = Retries(
            f"{what} at {servers.place}",
            servers.reconnect,
            lost=(NatsUnavailable,),
            failed=failed,
        )

    def error(self, reason: str) -> ConnectorError:
        """Return ``reason`` as a failure of this reader or writer."""
        return self._failed(f"{self._what}: NATS at {self.servers.place}: {reason}")

    async def request(self, call: str, body: Mapping[str, object] | None = None) -> dict[str, Any]:
        """Return the answer to ``call``, which must be idempotent. Raises ``JetStreamError``."""

        async def once(session: NatsSession) -> dict[str, Any]:
            return await session.request(call, body)

        return await self.run(once)

    async def run(self, operation: Callable[[NatsSession], Awaitable[T]]) -> T:
        """Return the result of ``operation``, which is repeated with a new connection after each loss."""

        async def once() -> T:
            try:
                return await operation(await self._opened())
            except _REFUSED as exc:
                raise self.error(
                    f"access is denied: {described(exc)}; check the user and the password"
                ) from exc
            except _LOST as exc:
                self._check_permissions(exc)
                reason = self._reason(exc)
                await self.close()
                raise NatsUnavailable(reason) from exc
            except NatsUnavailable as exc:
                self._check_permissions(exc)
                await self.close()
                raise
            except JetStreamError as exc:
                if exc.is_temporary:
                    raise NatsUnavailable(str(exc)) from exc
                raise
            except _errors.Error as exc:
                if any(word in str(exc).lower() for word in _DENIED):
                    raise self.error(
                        f"access is denied: {exc}; check the user and the password"
                    ) from exc
                raise self.error(str(exc)) from exc

        return await self._retries.run(once)

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _opened(self) -> NatsSession:
        if self._session is None or self._session.is_closed:
            await self.close()
            self._session = await self.servers.connect(lambda: self.on_closed())
        return self._session

    def _reason(self, exc: BaseException) -> str:
        """Return the text of a lost connection, or of JetStream without an answer on one that works."""
        session = self._session
        if isinstance(exc, TimeoutError) and session is not None and not session.is_closed:
            timeout = self.servers.timeout
            return f"JetStream has not answered within timeout={timeout}: is the disk of the server full?"
        return described(exc)

    def _check_permissions(self, cause: BaseException) -> None:
        """Raise ``failed`` if the server has refused something: a request for it gets no answer."""
        refusal = None if self._session is None else self._session.refusal
        if refusal is not None:
            raise self.error(f"access is denied: {refusal}") from cause


def checked_answer(data: bytes) -> dict[str, Any]:
    """Return an answer of JetStream. Raises ``JetStreamError`` for an error."""
    answer: Any = orjson.loads(data)
    if "error" in answer:
        raise JetStreamError(answer["error"])
    return cast("dict[str, Any]", answer)


def _noop() -> None:
    return None


def _is_address(url: object) -> bool:
    try:
        parts = urlsplit(cast(str, url))
        return parts.scheme in ("nats", "tls", "ws", "wss") and bool(
            parts.hostname and parts.port is not False
        )
    except (AttributeError, TypeError, ValueError):
        return False
