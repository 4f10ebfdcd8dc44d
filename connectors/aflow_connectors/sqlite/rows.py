"""Conversion of records to rows of a table."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Final, TypeVar
from uuid import UUID

import orjson

from aflow.connect import SinkError
from aflow.errors import shown
from aflow_connectors.fields import rfc3339
from aflow_connectors.rows import RowMapper, RowOf
from aflow_connectors.sqlite.database import Database, Row, quoted

T = TypeVar("T")

#: Types that SQLite accepts. A bool becomes 0 or 1.
_AS_THEY_ARE: Final = frozenset({str, int, float, bytes, type(None), bool})


class DatabaseTable:
    """A table of the database, with its columns."""

    def __init__(self, database: Database, name: str, columns: Sequence[str] | None) -> None:
        """Look up the columns. Raises ``SinkError`` if the table or one of ``columns`` is missing. Blocks."""
        self.name = name
        with database.errors(f"cannot read table {name!r}"):
            # Generated columns are not included.
            found = [str(row[1]) for row in database.run(f"PRAGMA table_info({quoted(name)})")]
        if not found:
            raise database.error(f"there is no table {name!r}; make it before the job starts")
        unknown = [column for column in columns or () if column not in found]
        if unknown:
            raise database.error(f"table {name!r} has no column {unknown[0]!r}; it has {found}")
        self.columns = tuple(found if columns is None else columns)
        self._database = database

    def check(self, statement: str, *, values: int) -> None:
        """Raise ``SinkError`` if SQLite rejects ``statement``, which has ``values`` parameters. Blocks."""
        with self._database.errors(f"cannot write into table {self.name!r}"):
            self._database.run(f"EXPLAIN {statement}", (None,) * values)

    @property
    def insert(self) -> str:
        """Return the statement that inserts a row."""
        return insert(self.name, self.columns)


def insert(table: str, columns: Sequence[str]) -> str:
    """Return the statement that inserts a row."""
    names = ", ".join(map(quoted, columns))
    return f"INSERT INTO {quoted(table)} ({names}) VALUES ({', '.join('?' for _ in columns)})"


def upsert(table: str, columns: Sequence[str], key: Sequence[str]) -> str:
    """Return the statement that inserts a row, or replaces the content of the row with the same ``key``."""
    others = [quoted(column) for column in columns if column not in key]
    names = ", ".join(map(quoted, key))
    changes = ", ".join(f"{name} = excluded.{name}" for name in others)
    action = f"UPDATE SET {changes}" if others else "NOTHING"
    return f"{insert(table, columns)} ON CONFLICT ({names}) DO {action}"


def row_mapper(
    database: Database, table: DatabaseTable, row: RowOf[T] | None, *, exact: bool
) -> RowMapper[T, Row]:
    """Return a mapper of records to rows of ``table``; ``exact``: a record may have no other fields."""

    def refused(record: object, reason: object) -> SinkError:
        return database.error(f"table {table.name!r} cannot take record {shown(record)}: {reason}")

    return RowMapper(table.columns, row, _converted, refused, exact=exact)


def _converted(rows: Sequence[Sequence[object]]) -> list[Row]:
    return [
        tuple([value if type(value) in _AS_THEY_ARE else to_sql(value) for value in row])
        for row in rows
    ]


def to_sql(value: object) -> str | int | float | bytes | None:
    """Return ``value`` in a type of SQLite. Raises ``TypeError`` for an unsupported type."""
    match value:
        case Enum():
            return to_sql(value.value)
        # Subclasses lose what they add to these.
        case str():
            return str.__str__(value)
        case int():
            return int.__int__(value)
        case float():
            return float.__float__(value)
        case bytes() | bytearray():
            return bytes(value)
        case None:
            return None
        case datetime():
            return rfc3339(value)
        case date() | time():
            return value.isoformat()
        case Decimal() | UUID():
            return str(value)
        case _:
            return orjson.dumps(value).decode()
