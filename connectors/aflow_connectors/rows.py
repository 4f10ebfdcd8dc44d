"""Conversion of records to rows of a table, for sinks of databases."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import itemgetter
from typing import Generic, TypeAlias, TypeVar, cast

from aflow.connect import SinkError
from aflow.errors import FlowDefinitionError, shown
from aflow_connectors.arguments import checked_texts
from aflow_connectors.fields import fields_of

T = TypeVar("T")
R = TypeVar("R")

RowOf: TypeAlias = Callable[[T], Mapping[str, object] | Sequence[object]]
"""Maps a record to a row: a mapping with the names of columns, or the values in their order."""


class RowRejected(Exception):
    """Raised if the table rejects row ``index``."""

    def __init__(self, index: int, reason: Exception) -> None:
        super().__init__(str(reason))
        self.index = index


class RowMapper(Generic[T, R]):
    """Maps records to rows: by ``row``, or from the fields of the record without it.

    ``convert`` converts the values of rows, which are tuples, to types of the database. It raises ``TypeError`` or
    ``ValueError`` for an unsupported one. ``refused`` returns the error for a record and a reason.
    """

    def __init__(
        self,
        columns: Sequence[str],
        row: RowOf[T] | None,
        convert: Callable[[Sequence[Sequence[object]]], list[R]],
        refused: Callable[[object, object], SinkError],
        *,
        exact: bool,
    ) -> None:
        self._columns = tuple(columns)
        self._row = row
        self._convert = convert
        self.refused = refused
        #: True if a record may have no other fields than the columns.
        self._exact = exact

    def of(self, records: Sequence[T]) -> list[R]:
        """Return one row for each record. Raises ``SinkError`` that shows the record."""
        try:
            # Hot path of the sinks: all at once, and one by one only to find the record of an error.
            rows = records if self._row is None else list(map(self._row, records))
            return self._convert(self._values_of_all(rows))
        except (TypeError, ValueError, KeyError):
            return [self._one(record) for record in records]

    def _one(self, record: T) -> R:
        try:
            (row,) = self._convert(
                [self._values(record if self._row is None else self._row(record))]
            )
            return row
        except (TypeError, ValueError, KeyError) as exc:
            reason = f"it has no field {exc}" if isinstance(exc, KeyError) else exc
            raise self.refused(record, reason) from exc

    def _values_of_all(self, rows: Sequence[object]) -> Sequence[Sequence[object]]:
        kinds = set(map(type, rows))
        count = len(self._columns)
        if kinds == {tuple} and self._row is not None:
            tuples = cast(Sequence[tuple[object, ...]], rows)
            if set(map(len, tuples)) == {count}:
                return tuples
        elif kinds == {dict} and count > 1:
            dicts = cast(Sequence[dict[str, object]], rows)
            if not self._exact or set(map(len, dicts)) == {count}:
                get = cast("Callable[[object], tuple[object, ...]]", itemgetter(*self._columns))
                return list(map(get, dicts))
        elif len(kinds) == 1 and getattr(kinds.pop(), "_fields", None) == self._columns:
            return cast(Sequence[tuple[object, ...]], rows)
        return [self._values(row) for row in rows]

    def _values(self, row: object) -> tuple[object, ...]:
        columns = self._columns
        values = _plain_sequence(row)
        if self._row is not None and values is not None:
            if len(values) != len(columns):
                raise ValueError(f"row= gives {len(values)} values for the columns {columns}")
            return tuple(values)
        fields = fields_of(row)
        if self._exact and len(fields) > len(columns):
            extra = [name for name in fields if name not in columns]
            raise ValueError(
                f"the table has no column {extra[0]!r}; columns= says which fields are written"
            )
        return tuple([fields[name] for name in columns])


def _plain_sequence(row: object) -> Sequence[object] | None:
    """Return ``row`` if it is a sequence without names."""
    if isinstance(row, (tuple, list)) and not hasattr(cast(object, row), "_fields"):
        return cast(Sequence[object], row)
    return None


def checked_table(owner: str, table: object) -> str:
    """Return ``table``. Raises ``FlowDefinitionError`` if it is no name."""
    if not isinstance(table, str) or not table:
        raise FlowDefinitionError(f"{owner}: the table must be the name of one, not {shown(table)}")
    return table


def checked_columns(owner: str, columns: object) -> tuple[str, ...] | None:
    """Return ``columns``. Raises ``FlowDefinitionError`` unless they are different names, or None."""
    if columns is None:
        return None
    names = tuple(checked_texts(owner, "columns", columns))
    if not names or len(set(names)) < len(names):
        raise FlowDefinitionError(
            f"{owner}: columns= must be different names, at least one, not {columns!r}"
        )
    return names


def checked_row(owner: str, row: object) -> None:
    """Raise ``FlowDefinitionError`` unless ``row`` is a function or None."""
    if row is not None and not callable(row):
        raise FlowDefinitionError(f"{owner}: row= must be a function, not {shown(row)}")


def checked_key(owner: str, key: object, columns: Sequence[str] | None) -> tuple[str, ...]:
    """Return the columns of ``key``. Raises ``FlowDefinitionError`` unless they are columns that are written."""
    keys = (key,) if isinstance(key, str) else tuple(checked_texts(owner, "key", key))
    missing = [one for one in keys if columns is not None and one not in columns]
    if not keys or missing:
        raise FlowDefinitionError(
            f"{owner}: key= must be columns that are written, not {shown(key)}"
        )
    return keys
