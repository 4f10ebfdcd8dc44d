"""A connection in replication mode, which runs SQL and sends the changes of a slot.

The client is ``psycopg``'s interface to libpq, since ``asyncpg`` has no replication protocol. Such a connection has the
simple query protocol only: all values are text, and statements have no parameters.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from aflow.connect import SourceError
from aflow.errors import FlowDefinitionError, described
from aflow_connectors.optional import load
from aflow_connectors.postgres.client import ConnectionLost, Rejected, Server, is_away

if TYPE_CHECKING:
    from psycopg import AsyncConnection
    from psycopg.pq.abc import PGconn, PGresult

#: Settings that texts of values depend on, and bounds that must not end a snapshot.
_SETTINGS: Final = (
    "datestyle=ISO",
    "intervalstyle=iso_8601",
    "timezone=UTC",
    "extra_float_digits=3",
    "bytea_output=hex",
    "standard_conforming_strings=on",
    "statement_timeout=0",
    "lock_timeout=0",
    "idle_in_transaction_session_timeout=0",
)

#: Parts of messages of a server that cannot be connected to for now. libpq gives no SQLSTATE for them.
_AWAY: Final = (
    "is starting up",
    "is shutting down",
    "in recovery mode",
    "not yet accepting connections",
    "too many clients",
    "connection slots are reserved",
    "max_wal_senders",
)

#: Longest time (s) that closing a connection takes.
_CLOSING: Final = 1.0


def load_psycopg() -> Any:
    """Import ``psycopg``. Raises ``ConnectorError`` with the command that installs it."""
    return load(
        "psycopg", package="psycopg[binary]", extra="postgres", purpose="changes of PostgreSQL"
    )


@dataclass(frozen=True, slots=True)
class _Refusal:
    """An error of the server, for ``Rejected``."""

    message: str
    detail: str
    sqlstate: str
    context: str


@dataclass(frozen=True, slots=True)
class QueryRows:
    """The result of a query: the oids of the types of its columns, and texts."""

    types: tuple[int, ...]
    rows: Sequence[tuple[bytes | None, ...]]

    def texts(self) -> list[list[str]]:
        """Return the rows as texts; NULL is empty."""
        return [["" if one is None else one.decode() for one in row] for row in self.rows]


def literal(text: str) -> str:
    """Return ``text`` as a literal of SQL."""
    return "'" + text.replace("'", "''") + "'"


def texts_literal(texts: Sequence[str]) -> str:
    """Return an array of texts as an expression of SQL."""
    return f"ARRAY[{', '.join(map(literal, texts))}]::text[]"


class ReplicationSession:
    """One connection."""

    def __init__(self, connection: AsyncConnection[Any], timeout: float) -> None:
        self._connection = connection
        #: Longest time (s) of a statement with a bound.
        self._timeout = timeout
        #: False after a cancelled or failed statement: the connection must be closed then.
        self.is_usable = True

    @property
    def pgconn(self) -> PGconn:
        return self._connection.pgconn

    async def query(self, sql: str, *, bounded: bool = True) -> QueryRows:
        """Return the rows of the last statement of ``sql``.

        Raises ``Rejected``, and ``ConnectionLost`` also for a statement that takes longer than the timeout if it is
        ``bounded``.
        """
        self.is_usable = False
        try:
            async with asyncio.timeout(self._timeout if bounded else None):
                results = await self._results(sql)
        except TimeoutError as exc:
            raise ConnectionLost(f"the server has not answered for {self._timeout:g} s") from exc
        for result in results:
            raise_refused(result)
        self.is_usable = True
        return _rows(results[-1])

    async def start_stream(self, sql: str) -> None:
        """Begin to receive a stream. Raises ``Rejected`` and ``ConnectionLost``."""
        await self.query(sql)

    async def close(self) -> None:
        """Close the connection."""
        with suppress(Exception):
            await self._connection.close()

    async def end_stream(self) -> None:
        """End a stream in order, so that the server reads the last confirmation and releases the slot.

        Takes at most a second.
        """
        pgconn = self.pgconn
        with suppress(Exception):
            async with asyncio.timeout(_CLOSING):
                pgconn.put_copy_end()
                await self._flush()
                while (size := pgconn.get_copy_data(1)[0]) >= 0:
                    if size == 0:
                        await self._ready(writing=False)
                        pgconn.consume_input()

    async def _results(self, sql: str) -> list[PGresult]:
        import psycopg

        pgconn, results = self.pgconn, list[Any]()
        try:
            pgconn.send_query(sql.encode())
            await self._flush()
            while True:
                while pgconn.is_busy():
                    await self._ready(writing=False)
                    pgconn.consume_input()
                result = pgconn.get_result()
                if result is None:
                    return results
                results.append(result)
                if result.status == psycopg.pq.ExecStatus.COPY_BOTH:
                    return results
        except (psycopg.Error, OSError) as exc:
            raise ConnectionLost(described(exc)) from exc

    async def _flush(self) -> None:
        while self.pgconn.flush():
            await self._ready(writing=True)
            self.pgconn.consume_input()

    async def _ready(self, *, writing: bool) -> None:
        """Wait until the socket has data, or has room if ``writing``."""
        loop, descriptor = asyncio.get_running_loop(), self.pgconn.socket
        ready = loop.create_future()

        def wake() -> None:
            if not ready.done():
                ready.set_result(None)

        loop.add_reader(descriptor, wake)
        if writing:
            loop.add_writer(descriptor, wake)
        try:
            await ready
        finally:
            loop.remove_reader(descriptor)
            if writing:
                loop.remove_writer(descriptor)


def raise_refused(result: PGresult) -> None:
    """Raise ``Rejected`` or ``ConnectionLost`` if ``result`` is an error."""
    from psycopg.pq import DiagnosticField, ExecStatus

    if result.status != ExecStatus.FATAL_ERROR:
        return

    def field(name: DiagnosticField) -> str:
        return (result.error_field(name) or b"").decode(errors="replace")

    state = field(DiagnosticField.SQLSTATE)
    message = field(DiagnosticField.MESSAGE_PRIMARY) or result.get_error_message()
    if not state or is_away(state):
        raise ConnectionLost(message)
    detail, context = field(DiagnosticField.MESSAGE_DETAIL), field(DiagnosticField.CONTEXT)
    raise Rejected(_Refusal(message, detail, state, context))


def _rows(result: PGresult) -> QueryRows:
    columns = range(result.nfields)
    return QueryRows(
        tuple(map(result.ftype, columns)),
        [
            tuple([result.get_value(row, column) for column in columns])
            for row in range(result.ntuples)
        ],
    )


@dataclass(frozen=True, slots=True)
class ReplicationServer:
    """A server, and the parameters of libpq for connections to it."""

    server: Server
    parameters: Mapping[str, object]

    def __post_init__(self) -> None:
        load_psycopg()  # here, not in the job, whose event loop the import would block

    async def connect(self) -> ReplicationSession:
        """Open a connection. Raises ``ConnectionLost``, and ``SourceError`` for wrong credentials and the like."""
        psycopg = load_psycopg()
        timeout = self.server.timeout.total_seconds()
        try:
            async with asyncio.timeout(timeout):
                connection = await psycopg.AsyncConnection.connect(
                    **self._parameters(), autocommit=True
                )
        except TimeoutError as exc:
            raise ConnectionLost(f"no connection in {timeout:g} s") from exc
        except psycopg.Error as exc:
            raise self._explained(described(exc)) from exc
        return ReplicationSession(connection, timeout)

    def _parameters(self) -> dict[str, Any]:
        parameters = load_psycopg().conninfo.conninfo_to_dict(self.server.dsn, **self.parameters)
        settings = " ".join(f"-c {setting}" for setting in _SETTINGS)
        options = f"{parameters.get('options', '')} {settings}".strip()
        return {
            **parameters,
            "options": options,
            "replication": "database",
            "client_encoding": "utf8",
        }

    def _explained(self, message: str) -> Exception:
        """Return the error for a failed attempt to connect."""
        if "FATAL" not in message or any(part in message for part in _AWAY):
            return ConnectionLost(message)
        reason = f"{self.server.place}: {message}"
        if "walsender" in message or "replication" in message.partition("FATAL")[2]:
            reason += ": reading changes needs the attribute REPLICATION (ALTER ROLE … REPLICATION)"
        return SourceError(reason)


def checked_parameters(
    owner: str, dsn: str, client: Mapping[str, object] | None
) -> Mapping[str, object]:
    """Return ``client``. Raises ``FlowDefinitionError`` for what is no parameter of libpq."""
    given: Mapping[str, object] = {} if client is None else client
    if not isinstance(given, Mapping):
        raise FlowDefinitionError(
            f"{owner}: client= must be a mapping of parameters of libpq, not a {type(given).__name__}"
        )
    psycopg = load_psycopg()
    try:
        psycopg.conninfo.make_conninfo(dsn, **given)
    except psycopg.Error as exc:
        reason = "" if "password" in str(exc) or "://" in str(exc) else f": {described(exc)}"
        raise FlowDefinitionError(
            f"{owner}: the address or client= is not as libpq reads it{reason}"
        ) from exc
    return given
