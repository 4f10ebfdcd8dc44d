"""Rows of a table as records: with the columns that a Relation message or a query gives."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import msgspec
from msgspec import inspect

from aflow.connect import SourceError
from aflow.errors import FlowDefinitionError, described, shown
from aflow_connectors.declared_types import fields_by_name, without_none
from aflow_connectors.json_decoder import converter
from aflow_connectors.postgres.changes.column_values import Load, loader
from aflow_connectors.postgres.changes.messages import UNCHANGED, Unchanged


class RowUnsuitable(Exception):
    """Raised for a row that is not of the declared class."""


@dataclass(frozen=True)
class RecordType:
    """The class of the records of a table; dicts without one."""

    name: str
    convert: Callable[[dict[str, Any]], Any] | None
    required: frozenset[str]
    """Fields without default."""


def record_type(owner: str, of: type[Any] | None) -> RecordType:
    """Return the type of ``of``. Raises ``FlowDefinitionError`` if rows cannot be converted to it."""
    if of is None:
        return RecordType("dict", None, frozenset())
    try:
        fields = fields_by_name(without_none(inspect.type_info(of)))
        convert = converter(of)
    except TypeError as exc:
        raise FlowDefinitionError(
            f"{owner}: of={shown(of)} is no class that rows can be converted to: {described(exc)}"
        ) from exc
    required = frozenset(name for name, field in fields.items() if field.required)
    return RecordType(getattr(of, "__name__", repr(of)), convert, required)


class RowDecoder:
    """Decodes the rows of ``columns``: pairs of a name and the oid of a type."""

    def __init__(
        self, record: RecordType, columns: Sequence[tuple[str, int]], key: Sequence[str], where: str
    ) -> None:
        """``where`` names the table. Raises ``SourceError`` if a field of the class has no column."""
        names = [name for name, _ in columns]
        missing = sorted(record.required.difference(names))
        if missing:
            raise SourceError(
                f"{where}: it has no column {missing[0]!r} (any more), and field {missing[0]!r} of {record.name} "
                f"has no default; the columns are {names}. Give the field a default, or restore the column and start "
                f"from the last checkpoint"
            )
        self._convert = record.convert
        self._columns: list[tuple[str, Load]] = [(name, loader(oid)) for name, oid in columns]
        self._key = [names.index(one) for one in key]
        #: The only column of the key, None if it has several or none.
        self._only_key = self._key[0] if len(self._key) == 1 else None
        #: Names and oids of types, to be compared with those of a changed table.
        self.columns = tuple(columns)

    def key(self, values: Sequence[Any]) -> tuple[str, ...]:
        """Return the texts of the key."""
        # Hot path of the source.
        if self._only_key is not None:
            return (values[self._only_key].decode(),)
        return tuple([values[number].decode() for number in self._key])

    def record(self, values: Sequence[Any]) -> Any:
        """Return the record of ``values``: texts as bytes, None or ``UNCHANGED``. Raises ``RowUnsuitable``."""
        # Hot path of the source.
        fields: dict[str, Any] = {}
        for (name, load), value in zip(self._columns, values, strict=True):
            if value is None:
                fields[name] = None
            elif value is not UNCHANGED:
                try:
                    fields[name] = load(value)
                except (ValueError, ArithmeticError) as exc:
                    raise RowUnsuitable(f"column {name!r}: {described(exc)}") from exc
        if self._convert is None:
            return fields
        try:
            return self._convert(fields)
        except (msgspec.ValidationError, ValueError) as exc:
            raise RowUnsuitable(self._reason(values, exc)) from exc

    def run(
        self, columns: Sequence[Sequence[Any]]
    ) -> tuple[Iterable[tuple[str, ...]], list[Any]] | None:
        """Return the keys and the records of rows, given by ``columns``, as ``key`` and ``record`` do.

        Return None if each row has to be decoded by itself: one lacks a value, or is not of the declared class, or
        there are no columns.
        """
        # Hot path of the source: loops in C.
        classes = [set(map(type, column)) for column in columns]
        if not columns or any(Unchanged in one for one in classes):
            return None
        names = [name for name, _ in self._columns]
        try:
            loaded = [
                list(map(load, column))
                if found == {bytes}
                else [None if value is None else load(value) for value in column]
                for (_, load), column, found in zip(self._columns, columns, classes, strict=True)
            ]
            records = [dict(zip(names, row, strict=False)) for row in zip(*loaded, strict=True)]
            if self._convert is not None:
                records = list(map(self._convert, records))
        except (msgspec.ValidationError, ValueError, ArithmeticError):
            return None
        keys = [list(map(bytes.decode, columns[number])) for number in self._key]
        return zip(*keys, strict=True) if keys else repeat(()), records

    def unchanged(self, values: Sequence[Any]) -> tuple[str, ...]:
        """Return the names of columns without value."""
        if UNCHANGED not in values:
            return ()
        return tuple(
            name
            for (name, _), value in zip(self._columns, values, strict=True)
            if value is UNCHANGED
        )

    def _reason(self, values: Sequence[Any], error: Exception) -> str:
        unchanged = self.unchanged(values)
        if not unchanged:
            return str(error)
        return (
            f"{error}; the update has not changed column {unchanged[0]!r}, so its value was not sent: give the field a "
            f"default, or the table REPLICA IDENTITY FULL"
        )


def raw_text(values: Sequence[Any]) -> bytes:
    """Return ``values`` for the dead-letter stream: in the form of COPY, without escapes."""
    texts = [b"\\N" if one is None else b"?" if one is UNCHANGED else one for one in values]
    return b"\t".join(texts)
