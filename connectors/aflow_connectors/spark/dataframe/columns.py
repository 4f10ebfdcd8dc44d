"""Conversion between the Arrow record batches of Spark's Python functions and Python records.

Whole columns are converted at a time: one Python call per value would cost more than everything else.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter, itemgetter
from typing import Any, Generic, TypeVar, cast

import msgspec

from aflow.connect import ConnectorError
from aflow.errors import shown
from aflow_connectors.fields import fields_of
from aflow_connectors.files.arrow_records import Conversion, SchemaMismatch, name_of
from aflow_connectors.files.arrow_values import UnsupportedValue
from aflow_connectors.spark.dataframe.arrow import pa
from aflow_connectors.spark.dataframe.casts import Cast, cast_to, first_mismatch
from aflow_connectors.spark.dataframe.schema import ArrowSchema, DeclaredColumns, check_names

T = TypeVar("T")


class RowsIn(Generic[T]):
    """Make records of the rows of Arrow batches with the columns ``names``, as ``SparkSource`` does in a live job.

    Without ``of`` records are dicts. With ``of``, see ``Conversion``: nested classes, enums and constraints included.

    Raises ``FlowDefinitionError``, which begins with ``owner``, for a field without column or default.
    """

    def __init__(self, names: Sequence[str], of: type[T] | None = None, *, owner: str) -> None:
        check_names(names, owner=owner)
        self._owner = owner
        self._convert: Conversion[T] = Conversion(owner, of)
        self._convert.check_names(names)

    def check(self, schema: ArrowSchema) -> None:
        """Raise ``FlowDefinitionError`` for columns whose values no record can hold."""
        self._convert.check(schema)

    def records(self, batch: Any) -> list[T]:
        """Return the rows of a ``pyarrow.RecordBatch`` as records, in order. Raises ``ConnectorError`` that names
        column and value.
        """
        # Hot path (benchmark `spark`).
        try:
            records = self._convert(batch)
        except UnsupportedValue as exc:
            raise ConnectorError(f"{self._owner}: {exc}") from exc
        if SchemaMismatch in set(map(type, records)):
            bad = next(record for record in records if isinstance(record, SchemaMismatch))
            raise ConnectorError(
                f"{self._owner}: a row does not fit {name_of(self._convert.of)}: {bad.reason}: {shown(bad.row)}; "
                f"filter or correct such rows in Spark, or declare the field otherwise"
            )
        return cast("list[T]", records)


class RowsOut:
    """Make Arrow batches of exactly the ``schema`` of records: dicts, dataclasses, named tuples, ``msgspec.Struct``.

    Each field is written to the column of its name; a record must have all columns and no other field. Errors begin
    with ``owner``.
    """

    def __init__(self, schema: DeclaredColumns, *, owner: str) -> None:
        self._schema = schema
        self._owner = owner
        self._names = schema.names
        self._casts: list[Cast] = [cast_to(field.type) for field in schema.arrow]
        #: Getters of the columns by type of record; None for types whose records differ in their fields.
        self._getters: dict[type, list[Callable[[Any], Any]] | None] = {}

    def batch(self, records: Sequence[Any]) -> Any:
        """Return the records as a ``pyarrow.RecordBatch``. Raises ``ConnectorError`` that names column, type, value and
        record.
        """
        columns = self._columns(records)
        arrays = [
            self._array(field, convert, values, records)
            for field, convert, values in zip(self._schema.arrow, self._casts, columns, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema.arrow)

    def _columns(self, records: Sequence[Any]) -> list[list[Any]]:
        # Hot path (benchmark `spark`).
        kinds = set(map(type, records))
        getters = self._getters_of(kinds.pop()) if len(kinds) == 1 else None
        if getters is not None:
            try:
                columns = [list(map(get, records)) for get in getters]
            except KeyError:
                columns = None
            if columns is not None and self._has_no_more(records):
                return columns
        rows = [self._row(record) for record in records]
        return [[row[name] for row in rows] for name in self._names]

    def _has_no_more(self, records: Sequence[Any]) -> bool:
        """Return True if records that have all columns have no other field. Classes were checked before."""
        return type(records[0]) is not dict or set(map(len, records)) == {len(self._names)}

    def _getters_of(self, kind: type) -> list[Callable[[Any], Any]] | None:
        if kind not in self._getters:
            self._getters[kind] = self._new_getters(kind)
        return self._getters[kind]

    def _new_getters(self, kind: type) -> list[Callable[[Any], Any]] | None:
        if kind is dict:
            return [itemgetter(name) for name in self._names]
        fields = _fields_of_class(kind)
        if fields is None or set(fields) != set(self._names):
            return None
        return [attrgetter(fields[name]) for name in self._names]

    def _row(self, record: Any) -> dict[str, Any]:
        """Return the fields of one record. Raises ``ConnectorError`` unless they are the columns."""
        try:
            fields = dict(fields_of(record))
        except TypeError as exc:
            raise self._error(f"{exc}; the record is {shown(record)}") from exc
        for name in self._names:
            if name not in fields:
                raise self._error(
                    f"column {name!r} ({self._schema.types[name]}) is declared, and record {shown(record)} does not "
                    f"have it"
                )
        for name in fields:
            if name not in self._schema.types:
                raise self._error(
                    f"record {shown(record)} has {name!r}, which is no column of the declared schema: "
                    f"{', '.join(self._names)}"
                )
        return fields

    def _array(self, field: Any, convert: Cast, values: list[Any], records: Sequence[Any]) -> Any:
        kinds = set(map(type, values))
        if not field.nullable and type(None) in kinds:
            index = next(index for index, value in enumerate(values) if value is None)
            raise self._mismatch(field, None, "the column is declared as not null", records[index])
        try:
            return pa.array(convert.column(values, kinds), type=field.type)
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as exc:
            found = first_mismatch(field.type, values)
            if found is None:
                raise self._error(f"column {field.name!r} cannot be made: {exc}") from exc
            index, why = found
            raise self._mismatch(field, values[index], why, records[index]) from exc

    def _mismatch(self, field: Any, value: Any, why: str, record: Any) -> ConnectorError:
        declared = self._schema.types[field.name]
        return self._error(
            f"column {field.name!r} is declared as {declared}, and {shown(value)} does not fit: {why}; record "
            f"{shown(record)}"
        )

    def _error(self, what: str) -> ConnectorError:
        return ConnectorError(f"{self._owner}: {what}")


def _fields_of_class(kind: Any) -> dict[str, str] | None:
    """Return the attribute name of each column, for all instances; None if instances differ in their fields."""
    if issubclass(kind, msgspec.Struct):
        return dict(zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True))
    if dataclasses.is_dataclass(kind):
        return {field.name: field.name for field in dataclasses.fields(kind)}
    names: tuple[str, ...] | None = getattr(kind, "_fields", None)
    return {name: name for name in names} if names and issubclass(kind, tuple) else None


def pieces(batch: Any, rows: int) -> Iterator[Any]:
    """Yield ``batch`` in slices of at most ``rows`` rows; no slice for an empty batch."""
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)
