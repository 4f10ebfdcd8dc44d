"""SQLite as the database of a backend: part of every Python, and slower than RocksDB."""

from __future__ import annotations

import sqlite3
import weakref
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

#: Number of keys in one query: below the limit of parameters of all builds of SQLite.
_AT_ONCE: Final = 512

#: Number of rows of a scan in memory.
_PAGE: Final = 1024

_SCHEMA: Final = "CREATE TABLE entries (key BLOB PRIMARY KEY, data BLOB NOT NULL) WITHOUT ROWID"
_RANGE: Final = "FROM entries WHERE key >= ? AND key < ? ORDER BY key"
_PUT: Final = "INSERT OR REPLACE INTO entries VALUES (?, ?)"
_DELETE: Final = "DELETE FROM entries WHERE key = ?"
_DELETE_RANGE: Final = "DELETE FROM entries WHERE key >= ? AND key <= ?"


class SqliteStore:
    """See ``Store``."""

    def __init__(self, folder: Path) -> None:
        self._path: Final = folder / "state.sqlite"
        self._connection: Final = _connect(self._path)
        try:
            # The write-ahead log isolates views from later writes; it is not for durability.
            self._connection.execute("PRAGMA journal_mode=WAL")
            self._connection.execute("PRAGMA synchronous=OFF")
            self._connection.execute("PRAGMA cache_size=-65536")
            self._connection.execute(_SCHEMA)
        except BaseException:
            self._connection.close()
            raise

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return _get(self._connection, keys)

    def write(self, puts: Iterable[tuple[bytes, bytes]], deletes: Iterable[bytes] = ()) -> None:
        connection = self._connection
        connection.execute("BEGIN")
        connection.executemany(_PUT, puts)
        connection.executemany(_DELETE, ((key,) for key in deletes))
        connection.execute("COMMIT")

    def first(self, start: bytes, stop: bytes, limit: int) -> list[bytes]:
        found = self._connection.execute(f"SELECT key {_RANGE} LIMIT ?", (start, stop, limit))
        return [key for (key,) in found]

    def page(self, start: bytes, stop: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        found = self._connection.execute(f"SELECT key, data {_RANGE} LIMIT ?", (start, stop, limit))
        return found.fetchall()

    def delete_range(self, start: bytes, stop: bytes) -> None:
        self._connection.execute("DELETE FROM entries WHERE key >= ? AND key < ?", (start, stop))

    def delete_in_pieces(self, start: bytes, stop: bytes) -> Iterator[None]:
        while found := self.first(start, stop, _PAGE):
            self._connection.execute(_DELETE_RANGE, (start, found[-1]))
            yield

    def view(self) -> SqliteView:
        return SqliteView(self._path)

    def close(self) -> None:
        self._connection.close()


class SqliteView:
    """A read transaction on a connection of its own."""

    def __init__(self, path: Path) -> None:
        self._connection: Final = _connect(path)
        self.close: Final = weakref.finalize(self, self._connection.close)
        self._connection.execute("BEGIN")
        self._connection.execute(
            "SELECT 1 FROM entries LIMIT 1"
        ).fetchall()  # begins the read transaction now

    def get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        return _get(self._connection, keys)

    def items(self, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        found = self._connection.execute(f"SELECT key, data {_RANGE}", (start, stop))
        while rows := found.fetchmany(_PAGE):
            yield from rows


def _connect(path: Path) -> sqlite3.Connection:
    # A view is opened in the task and read in a worker thread, one after the other.
    return sqlite3.connect(path, isolation_level=None, check_same_thread=False)


def _get(connection: sqlite3.Connection, keys: Sequence[bytes]) -> list[bytes | None]:
    found: dict[bytes, bytes] = {}
    for start in range(0, len(keys), _AT_ONCE):
        some = keys[start : start + _AT_ONCE]
        marks = ",".join("?" * len(some))
        found.update(
            connection.execute(f"SELECT key, data FROM entries WHERE key IN ({marks})", some)
        )
    return list(map(found.get, keys))
