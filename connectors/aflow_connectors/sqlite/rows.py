"""Conversion of records to rows of a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Final, Generic, TypeVar, cast
from uuid import UUID

import orjson

from aflow.connect import SinkError
from aflow.errors import shown
from aflow_connectors.fields import fields_of, rfc3339
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


class RowMapper(Generic[T]):
    """Maps records to rows: by ``row``, or from the fields of the record without it."""

    def __init__(
        self,
        database: Database,
        table: DatabaseTable,
        row: Callable[[T], Mapping[str, object] | Sequence[object]] | None,
        *,
        exact: bool,
    ) -> None:
        self._database = database
        self._table = table
        self._row = row
        #: True if a record may have no other fields than the columns.
        self._exact = exact

    def of(self, records: Sequence[T]) -> list[Row]:
        """Return one row for each record. Raises ``SinkError`` that shows the record."""
        return [self._one(record) for record in records]

    def refused(self, record: object, reason: object) -> SinkError:
        return self._database.error(
            f"table {self._table.name!r} cannot take record {shown(record)}: {reason}"
        )

    def _one(self, record: T) -> Row:
        try:
            values = self._values(record if self._row is None else self._row(record))
            return tuple(
                value if type(value) in _AS_THEY_ARE else to_sql(value) for value in values
            )
        except (TypeError, ValueError, KeyError) as exc:
            reason = f"it has no field {exc}" if isinstance(exc, KeyError) else exc
            raise self.refused(record, reason) from exc

    def _values(self, row: object) -> Sequence[object]:
        columns = self._table.columns
        values = _plain_sequence(row)
        if self._row is not None and values is not None:
            if len(values) != len(columns):
                raise ValueError(f"row= gives {len(values)} values for the columns {columns}")
            return values
        fields = fields_of(row)
        if self._exact and len(fields) > len(columns):
            extra = [name for name in fields if name not in columns]
            raise ValueError(
                f"the table has no column {extra[0]!r}; columns= says which fields are written"
            )
        return [fields[name] for name in columns]


def _plain_sequence(row: object) -> Sequence[object] | None:
    """Return ``row`` if it is a sequence without names."""
    if isinstance(row, (tuple, list)) and not hasattr(cast(object, row), "_fields"):
        return cast(Sequence[object], row)
    return None


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
