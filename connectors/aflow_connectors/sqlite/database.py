"""A connection to a SQLite database, and its errors.

All calls block: they are for worker threads. Write transactions lock the database when they begin, so two of them never
deadlock: the second waits at its begin, for at most ``busy``, and no other statement waits.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Final

from aflow.connect import SinkError
from aflow_connectors.rows import RowRejected

#: A row in SQLite's types.
Row = tuple[object, ...]


#: Errors for an invalid row: a constraint, or a value that SQLite cannot hold.
_OF_ROWS: Final = (
    sqlite3.IntegrityError,
    sqlite3.DataError,
    sqlite3.InterfaceError,
    sqlite3.ProgrammingError,
    OverflowError,
    UnicodeEncodeError,
)


class Database:
    """One connection for one sink, opened at first use."""

    def __init__(self, path: Path, *, sink: str, busy: timedelta) -> None:
        self.path = path
        self.sink = sink
        self._busy = busy
        self._connection: sqlite3.Connection | None = None

    def error(self, reason: str) -> SinkError:
        """Return ``reason`` as the failure of this sink."""
        return SinkError(f"sink {self.sink!r}: {self.path}: {reason}")

    def run(self, sql: str, values: Sequence[object] = ()) -> list[Row]:
        """Return all rows of a statement."""
        return self._opened().execute(sql, values).fetchall()

    def run_many(self, sql: str, rows: Iterable[Row]) -> None:
        """Run the statement once for each of ``rows``, taken one at a time. Raises ``RowRejected``."""
        index = -1

        def counted() -> Iterator[Row]:
            nonlocal index
            for row in rows:
                index += 1
                yield row

        try:
            self._opened().executemany(sql, counted())
        except _OF_ROWS as exc:
            raise RowRejected(index, exc) from exc

    def blobs(self, sql: str, values: Sequence[object]) -> Generator[bytes]:
        """Yield the first column of a statement's rows, one at a time."""
        for (blob,) in self._opened().execute(sql, values):
            yield blob

    @contextmanager
    def transaction(self, what: str) -> Generator[None]:
        """Run the block in a transaction. Raises ``SinkError`` that says ``what`` failed."""
        with self.errors(what):
            connection = self._opened()
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield
                connection.execute("COMMIT")
            except BaseException:
                _roll_back(connection)
                raise

    @contextmanager
    def trial(self, what: str) -> Generator[None]:
        """Run the block in a transaction that is rolled back, to check it. Raises ``SinkError``."""
        with self.errors(what):
            connection = self._opened()
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield
            finally:
                _roll_back(connection)

    @contextmanager
    def errors(self, what: str) -> Generator[None]:
        """Convert SQLite errors into a ``SinkError`` that says ``what`` failed."""
        try:
            yield
        except sqlite3.Error as exc:
            raise self.error(f"{what}: {exc}{self._advice(exc)}") from exc

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            connection = sqlite3.connect(
                # A missing database is not created: it would have no table.
                f"{self.path.absolute().as_uri()}?mode=rw",
                uri=True,
                timeout=self._busy.total_seconds(),
                isolation_level=None,  # transactions begin and end where this file says
                check_same_thread=False,  # calls come from one thread after the other, never from two at once
            )
            # Committed data survives a power failure.
            connection.execute("PRAGMA synchronous = FULL")
            self._connection = connection
        return self._connection

    def _advice(self, cause: Exception) -> str:
        code = getattr(cause, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_BUSY:
            return (
                f" (for {self._busy.total_seconds():g} s; another connection holds a transaction open, or busy= is "
                f"too short)"
            )
        if code == sqlite3.SQLITE_CANTOPEN:
            return " (the database and its table must be there)"
        if "ON CONFLICT clause does not match" in str(cause):
            return " (the columns of key= are no primary key: make a unique index over them)"
        return ""


def _roll_back(connection: sqlite3.Connection) -> None:
    if connection.in_transaction:  # a full disk has done so already
        connection.execute("ROLLBACK")


def quoted(name: str) -> str:
    """Return ``name`` as an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def text(value: str) -> str:
    """Return ``value`` as an SQL string."""
    return "'" + value.replace("'", "''") + "'"
