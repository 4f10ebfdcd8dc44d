"""Connections to a PostgreSQL server: their addresses, errors, and replacement after a loss.

The client is ``asyncpg``, which has no types: all calls of it are in this module.
"""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from random import Random
from typing import Any, Final, TypeVar
from urllib.parse import SplitResult, unquote, urlsplit

from aflow.connect import ConnectorError
from aflow.errors import FlowDefinitionError, described, shown
from aflow_connectors.optional import load
from aflow_connectors.reconnect import Reconnect, Retries, checked_reconnect

T = TypeVar("T")

#: A row of a query.
Row = tuple[Any, ...]

#: Default bound of a statement, and of an attempt to connect.
TIMEOUT: Final = timedelta(seconds=60)

#: SQLSTATEs of a server that is away: it shuts down, starts, was killed, or has no free connection.
_AWAY: Final = frozenset({"57P01", "57P02", "57P03", "57P05", "53300"})
#: Class of SQLSTATEs of connections.
_CONNECTION: Final = "08"
#: SQLSTATEs of transactions to be repeated: serialization failures and deadlocks.
_CONFLICTS: Final = frozenset({"40001", "40P01"})
_LOCK_TIMEOUT: Final = "55P03"
_MOST_CONFLICTS: Final = 10

#: Parameters of an address that have an "@" in their values, unlike the rest of a password with "?".
_WITH_AT: Final = frozenset(
    (
        "user",
        "password",
        "dbname",
        "database",
        "host",
        "application_name",
        "fallback_application_name",
        "options",
        "passfile",
        "service",
        "sslcert",
        "sslkey",
        "sslpassword",
        "sslrootcert",
        "sslcrl",
        "krbsrvname",
    )
)


class ConnectionLost(Exception):
    """Raised if the server is away, or a statement took too long."""


class Rejected(Exception):
    """Raised if the server, which answers, rejects a statement."""

    def __init__(self, error: Any) -> None:
        detail = getattr(error, "detail", None)
        super().__init__(f"{error.message or error}{f' ({detail})' if detail else ''}")
        self.sqlstate: str = error.sqlstate
        #: For COPY: its line and column, as text.
        self.context: str = getattr(error, "context", None) or ""

    @property
    def is_conflict(self) -> bool:
        """True for a conflict with another transaction, which may succeed if it is repeated."""
        return self.sqlstate in _CONFLICTS

    @property
    def is_lock_timeout(self) -> bool:
        return self.sqlstate == _LOCK_TIMEOUT

    @property
    def is_of_row(self) -> bool:
        """True if a value or a row is the reason: data exceptions, and violations of constraints."""
        return self.sqlstate[:2] in ("22", "23")


class ServerSession:
    """One connection."""

    def __init__(self, connection: Any, timeout: timedelta) -> None:
        self._connection = connection
        self._timeout = timeout.total_seconds()

    async def execute(self, sql: str, *values: object) -> str:
        """Return the tag of the command, like ``INSERT 0 7``."""
        async with self._errors():
            tag: str = await self._connection.execute(sql, *values)
            return tag

    async def fetch(self, sql: str, *values: object) -> Sequence[Any]:
        """Return the rows, which are sequences and mappings."""
        async with self._errors():
            rows: Sequence[Any] = await self._connection.fetch(sql, *values)
            return rows

    async def copy(
        self, schema: str | None, table: str, columns: Sequence[str], payload: bytes
    ) -> int:
        """Copy rows in the text format of COPY into ``table``. Return their number."""

        async def once() -> AsyncIterator[bytes]:
            yield payload

        async with self._errors():
            tag: str = await self._connection.copy_to_table(
                table, source=once(), columns=columns, schema_name=schema, format="text"
            )
            return int(tag.rpartition(" ")[2])

    async def copy_rows(
        self,
        schema: str | None,
        table: str,
        columns: Sequence[str],
        rows: Sequence[tuple[object, ...]],
    ) -> int:
        """Copy ``rows`` in binary format into ``table``: their values are of the types of the client.

        Return their number.
        """
        async with self._errors():
            tag: str = await self._connection.copy_records_to_table(
                table, records=rows, columns=columns, schema_name=schema
            )
            return int(tag.rpartition(" ")[2])

    @asynccontextmanager
    async def transaction(self, isolation: str = "") -> AsyncGenerator[None]:
        """Run the block in a transaction, which is committed at its end."""
        await self.execute(f"BEGIN {isolation}")
        try:
            yield
            await self.execute("COMMIT")
        except BaseException:
            await self.roll_back()
            raise

    async def roll_back(self) -> None:
        """Abort the transaction; close the connection if that fails."""
        try:
            await self.execute("ROLLBACK")
        except (ConnectionLost, Rejected):
            self.terminate()

    @property
    def is_closed(self) -> bool:
        return bool(self._connection.is_closed())

    def terminate(self) -> None:
        """Close the connection without a message to the server."""
        self._connection.terminate()

    async def close(self) -> None:
        """Close the connection; at most a moment is spent on telling the server."""
        with suppress(Exception):
            await self._connection.close(timeout=1)

    @asynccontextmanager
    async def _errors(self) -> AsyncGenerator[None]:
        try:
            async with asyncio.timeout(self._timeout):
                with _translated(lambda: self.is_closed):
                    yield
        except TimeoutError as exc:
            self.terminate()
            raise ConnectionLost(f"the server has not answered for {self._timeout:g} s") from exc
        except ConnectionLost:
            self.terminate()
            raise


def _parts_of(dsn: object) -> SplitResult | None:
    """Return the parts of an address, None if it is not a URL."""
    try:
        return urlsplit(dsn) if isinstance(dsn, str) else None
    except ValueError:  # "[" in a password
        return None


def _has_misplaced_credentials(parts: SplitResult) -> bool:
    """Return True if "/", "?" or "#" of a password may have ended the host."""
    unknown = (one for one in parts.query.split("&") if one.partition("=")[0] not in _WITH_AT)
    return any("@" in one for one in (parts.path, parts.fragment, *unknown))


def is_away(sqlstate: object) -> bool:
    """Return True for the SQLSTATE of a server that is away."""
    return isinstance(sqlstate, str) and (sqlstate in _AWAY or sqlstate.startswith(_CONNECTION))


@contextmanager
def _translated(closed: Callable[[], bool]) -> Generator[None]:
    try:
        yield
    except TimeoutError:
        raise
    except OSError as exc:
        raise ConnectionLost(described(exc)) from exc
    except Exception as exc:
        state = getattr(exc, "sqlstate", None)
        if is_away(state) or closed():
            raise ConnectionLost(described(exc)) from exc
        if isinstance(state, str):
            raise Rejected(exc) from exc
        if type(exc).__module__.startswith("asyncpg") and not isinstance(exc, ValueError):
            # The client cannot use the connection: the server went away in the middle of an operation.
            raise ConnectionLost(described(exc)) from exc
        raise


@dataclass(frozen=True, slots=True)
class Server:
    """Address of a database, and the arguments of the client. Raises ``FlowDefinitionError`` for invalid ones.

    Imports ``asyncpg``, which takes some tenths of a second: in a job that would block the event loop.
    """

    owner: str
    dsn: str = field(repr=False)
    client: Mapping[str, object] = field(default_factory=dict[str, object], repr=False)
    reconnect: Reconnect = field(default_factory=Reconnect)
    timeout: timedelta = TIMEOUT

    def __post_init__(self) -> None:
        # Messages show no part of an invalid address: it may contain a password.
        parts = _parts_of(self.dsn)
        if parts is None or parts.scheme not in ("postgresql", "postgres"):
            raise FlowDefinitionError(
                f"{self.owner}: the address must be a URL like 'postgresql://user@host:5432/database'"
            )
        if _has_misplaced_credentials(parts):
            raise FlowDefinitionError(
                f"{self.owner}: the address has '@' after its host: percent-encode / ? # in the password (%2F %3F "
                f"%23), and @ elsewhere (%40)"
            )
        if not isinstance(self.client, Mapping):
            raise FlowDefinitionError(
                f"{self.owner}: client= must be a mapping of arguments of asyncpg.connect, not a "
                f"{type(self.client).__name__}"
            )
        if not isinstance(self.timeout, timedelta) or self.timeout <= timedelta(0):
            raise FlowDefinitionError(
                f"{self.owner}: timeout= must be a positive timedelta, not {shown(self.timeout)}"
            )
        checked_reconnect(self.owner, self.reconnect)
        load_client()

    @property
    def place(self) -> str:
        """Host, port and database, without credentials."""
        parts = urlsplit(self.dsn)
        host = unquote(parts.netloc.rpartition("@")[2]) or "the local server"
        return f"{host}{parts.path}"

    async def connect(self) -> ServerSession:
        """Open a connection. Raises ``ConnectionLost``, and ``Rejected`` for wrong credentials and the like."""
        asyncpg = load_client()
        bound = min(self.timeout, TIMEOUT).total_seconds()
        try:
            with _translated(lambda: False):
                connection = await asyncpg.connect(self.dsn, **{"timeout": bound, **self.client})
        except TimeoutError as exc:
            raise ConnectionLost(f"no connection in {bound:g} s") from exc
        return ServerSession(connection, self.timeout)


def load_client() -> Any:
    """Import ``asyncpg``. Raises ``ConnectorError`` with the command that installs it."""
    return load("asyncpg", package="asyncpg", extra="postgres", purpose="PostgreSQL")


class ServerLink:
    """A connection of one reader or writer, which is opened at first use and replaced after a loss."""

    def __init__(
        self, server: Server, what: str, failed: type[ConnectorError], random: Random | None = None
    ) -> None:
        self.server = server
        self._what = what
        self._failed = failed
        self._random = random or Random()
        self._session: ServerSession | None = None
        self._retries = Retries(
            f"{what} at {server.place}",
            server.reconnect,
            lost=(ConnectionLost,),
            failed=failed,
            random=self._random,
        )

    def error(self, reason: str) -> ConnectorError:
        """Return ``reason`` as a failure of this reader or writer."""
        return self._failed(f"{self._what}: {self.server.place}: {reason}")

    async def run(self, operation: Callable[[ServerSession], Awaitable[T]], what: str) -> T:
        """Return the result of ``operation``, which must be idempotent: it is repeated after a lost connection.

        Serialization failures and deadlocks are repeated, too. Raises the error of the connector, which says ``what``
        failed, if the server rejects a statement.
        """
        try:
            return await self.attempt(operation)
        except Rejected as exc:
            raise self.error(f"{what}: {exc}") from exc

    async def attempt(self, operation: Callable[[ServerSession], Awaitable[T]]) -> T:
        """Run ``operation`` in the same way. Raises ``Rejected`` if the server rejects a statement."""

        async def once() -> T:
            session = await self.session()
            return await operation(session)

        conflicts = 0
        while True:
            try:
                return await self._retries.run(once)
            except Rejected as exc:
                conflicts += 1
                if not exc.is_conflict or conflicts > _MOST_CONFLICTS:
                    raise
                await asyncio.sleep(self._random.uniform(0, 0.01 * 2**conflicts))

    async def session(self) -> ServerSession:
        """Return the open connection. Raises ``ConnectionLost`` or ``Rejected``."""
        if self._session is None or self._session.is_closed:
            self._session = await self.server.connect()
            self._retries.connected()
        return self._session

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()
