"""Arrow record batches as Spark's Python functions get them, and Python records: from one to the other and back.

Whole columns at a time, since a Python call for each value would cost more than all the rest.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from operator import attrgetter, itemgetter
from typing import Any, Final, Generic, TypeVar, cast

import msgspec

from aflow.connect import ConnectorError
from aflow.errors import FlowDefinitionError, shown
from aflow_connectors.fields import fields_of
from aflow_connectors.spark.arrow import pa
from aflow_connectors.spark.casts import Cast, cast_to, misfit
from aflow_connectors.spark.schemas import Declared, check_names

T = TypeVar("T")

_KEYWORD: Final = inspect.Parameter.KEYWORD_ONLY
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class RowsIn(Generic[T]):
    """Makes records of the rows of Arrow batches with the columns ``names``.

    Without ``of`` they are dicts. With ``of``, a dataclass, NamedTuple or ``msgspec.Struct``, its fields are found by
    the names of the columns; columns that it does not have are passed over. Values are what ``pyarrow`` makes of them
    and not looked into: a column of structs gives dicts. Moments (Spark's timestamp) are aware datetimes in UTC.

    Raises ``FlowDefinitionError``, which begins with ``owner``, for a field without column or default.
    """

    def __init__(self, names: Sequence[str], of: type[T] | None = None, *, owner: str) -> None:
        check_names(names, owner=owner)
        self._owner = owner
        self._make: Callable[[list[list[Any]]], list[Any]]
        if of is None:
            self._columns = list(names)
            self._make = _maker_of_dicts(self._columns)
        else:
            self._columns, self._make = _maker_of(of, list(names), owner)

    def records(self, batch: Any) -> list[T]:
        """The rows of a ``pyarrow.RecordBatch``, in order. Raises ``ConnectorError``."""
        if not self._columns:
            return self._make([[None] * batch.num_rows])
        return cast("list[T]", self._make([self._values(batch, name) for name in self._columns]))

    def _values(self, batch: Any, name: str) -> list[Any]:
        column = batch.column(name)
        try:
            return _values(column)
        # Years beyond 9999, of which Spark knows 285,000 more.
        except (OverflowError, ValueError) as exc:
            raise ConnectorError(
                f"{self._owner}: column {name!r} ({column.type}) has a value that Python has none for: {exc}"
            ) from exc


def _values(column: Any) -> list[Any]:
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return _moments(column)
    if pa.types.is_nested(kind):
        return cast("list[Any]", column.cast(_in_utc(kind)).to_pylist(maps_as_pydicts="strict"))
    return cast("list[Any]", column.to_pylist())


def _moments(column: Any) -> list[Any]:
    # A thirteenth of what `to_pylist` takes.
    micros = column.cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
    since = micros.fill_null(0).to_numpy(zero_copy_only=False).view("timedelta64[us]").tolist()
    moments: list[Any] = list(map(_EPOCH.__add__, since))
    if column.null_count:
        for index, valid in enumerate(column.is_valid().to_pylist()):
            if not valid:
                moments[index] = None
    return moments


def _in_utc(kind: Any) -> Any:
    """``kind`` with the moments in it in UTC; Spark has them in the time zone of the session."""
    types = pa.types
    if types.is_timestamp(kind):
        return kind if kind.tz is None else pa.timestamp(kind.unit, tz="UTC")
    if types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_in_utc(kind.value_type)))
    if types.is_map(kind):
        return pa.map_(
            kind.key_field.with_type(_in_utc(kind.key_type)),
            kind.item_field.with_type(_in_utc(kind.item_type)),
        )
    if types.is_struct(kind):
        return pa.struct([part.with_type(_in_utc(part.type)) for part in kind])
    return kind


def _maker_of_dicts(names: Sequence[str]) -> Callable[[list[list[Any]]], list[Any]]:
    if not names:
        return lambda columns: [{} for _ in columns[0]]
    # A display with the names written out, which takes 0.4 of the time of dict(zip(names, row)).
    variables = [f"v{index}" for index in range(len(names))]
    display = ", ".join(f"{name!r}: {one}" for name, one in zip(names, variables, strict=True))
    code = f"lambda columns: [{{{display}}} for {', '.join(variables)}, in zip(*columns)]"
    return cast("Callable[[list[list[Any]]], list[Any]]", eval(code, {"zip": zip}))


def _maker_of(
    of: Any, names: list[str], owner: str
) -> tuple[list[str], Callable[[list[list[Any]]], list[Any]]]:
    """The columns that ``of`` is made of, and what makes its instances."""
    fields = _init_fields(of, owner)
    missing = [field for field, (needed, _) in fields.items() if needed and field not in names]
    if missing:
        raise FlowDefinitionError(
            f"{owner}: {of.__name__} has a field {missing[0]!r}, and there is no such column: {', '.join(names)}"
        )
    found = [field for field in fields if field in names]
    if found == list(fields)[: len(found)] and all(fields[field][1] for field in found):
        return found, lambda columns: list(map(of, *columns))
    dicts = _maker_of_dicts(found)
    return found, lambda columns: [of(**row) for row in dicts(columns)]


def _init_fields(of: Any, owner: str) -> dict[str, tuple[bool, bool]]:
    """For each field that is given to ``of``: whether it must be, and whether it may be by its place."""
    if inspect.isclass(of):
        if issubclass(of, msgspec.Struct):
            by_place = inspect.signature(of).parameters
            return {
                one.name: (one.required, by_place[one.name].kind is not _KEYWORD)
                for one in msgspec.structs.fields(of)
            }
        if dataclasses.is_dataclass(of):
            return {
                one.name: (_needed(one), not one.kw_only)
                for one in dataclasses.fields(of)
                if one.init
            }
        names = _names_of_tuple(of)
        if names is not None:
            defaults: dict[str, object] = getattr(of, "_field_defaults", {})
            return {name: (name not in defaults, True) for name in names}
    raise FlowDefinitionError(
        f"{owner}: of= takes a dataclass, a NamedTuple or a msgspec.Struct, not {shown(cast(object, of))}"
    )


def _needed(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


class RowsOut:
    """Makes Arrow batches of exactly the ``schema`` of records: dicts, dataclasses, named tuples, ``msgspec.Struct``.

    Fields go into the columns of their names, and each record has all of them and no other. Errors begin with
    ``owner``.
    """

    def __init__(self, schema: Declared, *, owner: str) -> None:
        self._schema = schema
        self._owner = owner
        self._names = schema.names
        self._casts: list[Cast] = [cast_to(field.type) for field in schema.arrow]
        #: For each type of records that was seen, what gets the columns out of them; None for mixed ones.
        self._getters: dict[type, list[Callable[[Any], Any]] | None] = {}

    def batch(self, records: Sequence[Any]) -> Any:
        """A ``pyarrow.RecordBatch``. Raises ``ConnectorError`` that names column, type, value and record."""
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
            if columns is not None and self._no_more(records):
                return columns
        rows = [self._row(record) for record in records]
        return [[row[name] for row in rows] for name in self._names]

    def _no_more(self, records: Sequence[Any]) -> bool:
        """True if records that have all columns have nothing else; those of a class were looked at before."""
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
        return [attrgetter(name) for name in self._names]

    def _row(self, record: Any) -> dict[str, Any]:
        """The fields of one record. Raises ``ConnectorError`` unless they are the columns."""
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
            raise self._misfit(field, None, "the column is declared as not null", records[index])
        try:
            return pa.array(convert.column(values, kinds), type=field.type)
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as exc:
            found = misfit(field.type, values)
            if found is None:
                raise self._error(f"column {field.name!r} cannot be made: {exc}") from exc
            index, why = found
            raise self._misfit(field, values[index], why, records[index]) from exc

    def _misfit(self, field: Any, value: Any, why: str, record: Any) -> ConnectorError:
        declared = self._schema.types[field.name]
        return self._error(
            f"column {field.name!r} is declared as {declared}, and {shown(value)} does not fit: {why}; record "
            f"{shown(record)}"
        )

    def _error(self, what: str) -> ConnectorError:
        return ConnectorError(f"{self._owner}: {what}")


def _fields_of_class(kind: Any) -> tuple[str, ...] | None:
    """The names of the fields that all instances have; None for classes that leave it to the instance."""
    if issubclass(kind, msgspec.Struct):
        names: tuple[str, ...] = kind.__struct_fields__
        return names
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    return _names_of_tuple(kind)


def _names_of_tuple(kind: Any) -> tuple[str, ...] | None:
    """The fields of a named tuple's class; None for any other class."""
    fields: tuple[str, ...] | None = getattr(kind, "_fields", None)
    return fields if issubclass(kind, tuple) else None


def pieces(batch: Any, rows: int) -> Iterator[Any]:
    """``batch`` in slices of at most ``rows`` rows; none of an empty one."""
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)
