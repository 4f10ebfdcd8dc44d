"""The adapter to ``redis``: the only module that imports it.

It checks the address and the settings of users, and sorts the errors of the client: a lost connection is repeated by
``Retries``, all others fail at once. The repetitions of the client itself are switched off, since it does not know
which operations may be repeated.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from inspect import signature
from typing import Any, Final, TypeVar
from urllib.parse import parse_qs, unquote, urlsplit

from aflow.connect import ConnectorError
from aflow.errors import FlowDefinitionError, described, shown
from aflow_connectors.optional import load
from aflow_connectors.reconnect import Reconnect, Retries, checked_reconnect

T = TypeVar("T")

_WANTED: Final = {"package": "redis", "extra": "redis", "purpose": "aflow_connectors.redis"}

# Its types are incomplete: results are unions of plain values and awaitables.
_redis: Any = load("redis.asyncio", **_WANTED)
_retry: Any = load("redis.asyncio.retry", **_WANTED)
_backoff: Any = load("redis.backoff", **_WANTED)
_errors: Any = load("redis.exceptions", **_WANTED)

#: Default bound of the answer to a command, and of an attempt to connect.
TIMEOUT: Final = timedelta(seconds=30)

_OLDEST: Final = 7

#: Errors that no further attempt can change. Some are connection errors for the client.
_REFUSED: Final = (
    _errors.AuthenticationError,
    _errors.AuthenticationWrongNumberOfArgsError,
    _errors.AuthorizationError,
    _errors.NoPermissionError,
)

#: Errors of a server that is away, or about to be back: after a failover the former primary is read-only.
_LOST: Final = (
    _errors.ConnectionError,
    _errors.TimeoutError,
    _errors.BusyLoadingError,
    _errors.ReadOnlyError,
    _errors.MasterDownError,
    _errors.TryAgainError,
    OSError,
)

#: Settings that the connector chooses, or that are in the URL.
_RESERVED: Final = frozenset(
    {
        "self",
        "host",
        "port",
        "db",
        "decode_responses",
        "encoding",
        "encoding_errors",
        "protocol",
        "connection_pool",
        "auto_close_connection_pool",
        "single_connection_client",
        "retry",
        "retry_on_timeout",
        "retry_on_error",
        "socket_timeout",
        "socket_connect_timeout",
        "maint_notifications_config",
    }
)


class RedisUnavailable(Exception):
    """The connection to the server is lost, or it cannot answer now."""


@dataclass(frozen=True, slots=True)
class RedisServer:
    """Address of a server, and the settings of the client. Raises ``FlowDefinitionError`` for invalid ones."""

    owner: str
    url: str = field(repr=False)
    client: Mapping[str, object] | None = field(default=None, repr=False)
    reconnect: Reconnect = field(default_factory=Reconnect)
    timeout: timedelta = TIMEOUT

    def __post_init__(self) -> None:
        parts = urlsplit(self.url) if isinstance(self.url, str) else None
        if parts is None or parts.scheme not in ("redis", "rediss", "unix"):
            # It may contain a password.
            raise FlowDefinitionError(
                f"{self.owner}: the address must be a URL like 'redis://localhost:6379/0'"
            )
        self._check_query(parts.query)
        if self.client is not None:
            self._check_settings(self.client)
        if not isinstance(self.timeout, timedelta) or self.timeout <= timedelta(0):
            raise FlowDefinitionError(
                f"{self.owner}: timeout= must be a positive timedelta, not {shown(self.timeout)}"
            )
        checked_reconnect(self.owner, self.reconnect)
        try:
            self.open()
        except Exception as exc:
            # The text of the client may contain parts of the URL.
            raise FlowDefinitionError(
                f"{self.owner}: the client cannot use the address or a setting of client= "
                f"({type(exc).__name__}): is it a URL like 'redis://localhost:6379/0'?"
            ) from None

    @property
    def place(self) -> str:
        """Host, port and database, without credentials."""
        parts = urlsplit(self.url)
        return f"{unquote(parts.netloc.rpartition('@')[2])}{parts.path}"

    def open(self, *, as_text: bool = False) -> Any:
        """Return a client, which connects at its first command. ``as_text``: answers are text, not bytes.

        Bytes that are not UTF-8 are surrogates then.
        """
        seconds = self.timeout.total_seconds()
        return _redis.Redis.from_url(
            self.url,
            **{} if self.client is None else self.client,
            protocol=2,
            socket_timeout=seconds,
            socket_connect_timeout=seconds,
            retry=_retry.Retry(_backoff.NoBackoff(), 0),
            decode_responses=as_text,
            encoding_errors="surrogateescape",
        )

    def _check_query(self, query: str) -> None:
        """Raise ``FlowDefinitionError`` for an option of the URL that the connector chooses.

        The client would prefer it to the argument. ``db`` is the only place of the database in "unix://" addresses.
        """
        if wrong := sorted(parse_qs(query).keys() & (_RESERVED - {"db"})):
            raise FlowDefinitionError(
                f"{self.owner}: the query of the URL has {', '.join(wrong)}, which the connector or other arguments "
                f"choose"
            )

    def _check_settings(self, client: object) -> None:
        if not isinstance(client, Mapping):
            raise FlowDefinitionError(
                f"{self.owner}: client= must be a mapping of settings of redis.asyncio.Redis, not a "
                f"{type(client).__name__}"
            )
        known = frozenset(signature(_redis.Redis.__init__).parameters) - _RESERVED
        given = sorted(str(name) for name in self.client or ())
        if wrong := [name for name in given if name not in known]:
            chosen = set(wrong) <= _RESERVED
            reason = "are chosen by the URL or other arguments" if chosen else "are no settings"
            raise FlowDefinitionError(
                f"{self.owner}: client= has {', '.join(wrong)}, which {reason}; redis.asyncio.Redis has "
                f"{', '.join(sorted(known))}"
            )


class RedisLink:
    """The connection of one reader or writer. ``what`` names it in messages.

    ``failed`` is raised for all that is no lost connection.
    """

    def __init__(
        self,
        server: RedisServer,
        what: str,
        failed: type[ConnectorError],
        *,
        as_text: bool = False,
    ) -> None:
        self.server = server
        #: Lost connections so far.
        self.losses = 0
        self._what = what
        self._failed = failed
        self._client = server.open(as_text=as_text)
        # Raw answers: the client makes dicts of fields, and drops fields of equal names.
        for name in ("XRANGE", "XREADGROUP"):
            self._client.set_response_callback(name, _unchanged)
        self._retries = Retries(
            f"{what} at {server.place}", server.reconnect, lost=(RedisUnavailable,), failed=failed
        )

    def error(self, reason: str) -> ConnectorError:
        """Return ``reason`` as a failure of this reader or writer."""
        return self._failed(f"{self._what}: Redis at {self.server.place}: {reason}")

    async def check(self) -> None:
        """Raise ``failed`` unless the server is Redis 7 or newer, and no cluster."""
        info: Any = await self.run(lambda: self._client.execute_command("INFO"), "INFO")
        version = str(info.get("redis_version", "0"))
        if int(version.partition(".")[0]) < _OLDEST:
            raise self.error(f"it is version {version}, and {_OLDEST} or newer is needed")
        if info.get("cluster_enabled"):
            raise self.error(
                "it is a node of a Redis Cluster, which is not supported: see the limits in docs/connectors/redis.md"
            )

    async def command(self, *arguments: str | bytes | int) -> Any:
        """Run a command, which may be repeated after a lost connection, and return its answer."""
        return await self.run(
            lambda: self._client.execute_command(*arguments), str(arguments[0]).lower()
        )

    async def script(
        self, text: str, keys: list[str | bytes], arguments: list[str | bytes | int]
    ) -> Any:
        """Run a script, which may be repeated after a lost connection, and return its answer."""
        return await self.run(
            lambda: self._client.execute_command("EVAL", text, len(keys), *keys, *arguments),
            "a script",
        )

    async def run(self, operation: Callable[[], Awaitable[T]], what: str) -> T:
        """Return the result of ``operation``, which is repeated after a lost connection."""
        return await self._retries.run(partial(self._attempt, operation, what))

    async def command_once(self, *arguments: str | bytes | int) -> Any:
        """Run a command, and return its answer. Raises ``RedisUnavailable`` if the connection is lost meanwhile."""
        return await self._attempt(
            lambda: self._client.execute_command(*arguments), str(arguments[0]).lower()
        )

    async def script_once(
        self, text: str, keys: list[str | bytes], arguments: list[str | bytes | int]
    ) -> Any:
        """Run a script, and return its answer. Raises ``RedisUnavailable`` if the connection is lost meanwhile."""
        return await self._attempt(
            lambda: self._client.execute_command("EVAL", text, len(keys), *keys, *arguments),
            "a script",
        )

    async def repeat(self, operation: Callable[[], Awaitable[T]]) -> T:
        """Return the result of ``operation``, which is repeated after ``RedisUnavailable``."""
        return await self._retries.run(operation)

    async def _attempt(self, operation: Callable[[], Awaitable[T]], what: str) -> T:
        try:
            return await operation()
        except _REFUSED as exc:
            raise self.error(
                f"access is denied: {described(exc)}; check the user and the password in the URL, and its ACL"
            ) from exc
        except _errors.ReadOnlyError as exc:
            # After a failover the address may be that of another server, and this connection lasts.
            await self._client.connection_pool.disconnect(inuse_connections=False)
            raise RedisUnavailable(described(exc)) from exc
        except _LOST as exc:
            self.losses += 1
            raise RedisUnavailable(described(exc)) from exc
        except _errors.RedisError as exc:
            raise self.error(f"{what} failed: {exc}") from exc

    async def close(self) -> None:
        with suppress(Exception):
            await self._client.aclose()


def _unchanged(answer: Any, **_: object) -> Any:
    return answer
