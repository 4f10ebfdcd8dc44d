"""Records of a declared class from Arrow record batches: one converter for Parquet files and for Spark, live or not.

Theory. ``of=`` drives the conversion: ``msgspec.convert`` converts each column to the type of its field, with nested
classes, enums, sets and constraints. A column needs no conversion if its Arrow type has values of the declared Python
type and it has no nulls or the field is optional. So a flat row costs no more than a call of the class.

Fields are found by the names under which msgspec stores them: those of a Struct may be renamed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Any, Final, Generic, TypeAlias, TypeVar, cast, get_type_hints

import msgspec
from msgspec import inspect

from aflow.connect import BadRecord, Chunk, Position
from aflow.errors import FlowDefinitionError
from aflow_connectors.bad_records import BadRecords
from aflow_connectors.declared_types import fields_by_name, without_none
from aflow_connectors.files.arrow_values import (
    Row,
    UnsupportedValue,
    python_values,
    refusal,
    rows_of,
)
from aflow_connectors.files.optional import pyarrow

T = TypeVar("T")

#: Converts a ``pyarrow.RecordBatch`` of one schema.
_Plan: TypeAlias = Callable[[Any], list[Any]]


@dataclass(frozen=True, slots=True)
class SchemaMismatch:
    """A row that cannot be converted, and the reason."""

    row: Row
    reason: str


class Conversion(Generic[T]):
    """Converts Arrow record batches to records of class ``of``; to dicts without ``of``.

    ``of`` is a dataclass, NamedTuple, ``msgspec.Struct``, TypedDict or the like; columns without a field are ignored.
    Raises ``FlowDefinitionError``, which begins with ``owner``, for an unsupported class. Can be pickled if ``of`` can.
    """

    def __init__(self, owner: str, of: type[T] | None) -> None:
        self._owner = owner
        self.of = of
        self._want = None if of is None else _described(owner, of)
        self._by_columns = of is not None and _by_columns(of, self._want)
        #: Schema and plan of the last batch.
        self._plan: tuple[Any, _Plan] | None = None

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self._owner, self.of)

    def missing(self, names: Sequence[str]) -> str | None:
        """Return the first field without default that is not among the columns ``names``; None if there is none."""
        fields = fields_by_name(self._want)
        needed = (name for name, field in fields.items() if field.required and name not in names)
        return next(needed, None)

    def check_names(self, names: Sequence[str]) -> None:
        """Raise ``FlowDefinitionError`` if a field without default is not among the columns ``names``."""
        if (field := self.missing(names)) is not None:
            raise FlowDefinitionError(
                f"{self._owner}: {name_of(self.of)} has a field {field!r}, and there is no such column: "
                f"{', '.join(names)}; give the field a default, or add the column"
            )

    def check(self, schema: Any) -> None:
        """Raise ``FlowDefinitionError`` if rows with the Arrow ``schema`` cannot become records at all."""
        self.check_names(schema.names)
        fields = fields_by_name(self._want)
        for column in schema:
            field_type = fields[column.name].type if column.name in fields else None
            if self._want is not None and field_type is None:
                continue
            if reason := refusal(pyarrow(self._owner), column.type, field_type):
                raise FlowDefinitionError(f"{self._owner}: column {column.name!r}: {reason}")

    def __call__(self, batch: Any) -> list[T | SchemaMismatch]:
        """Return the records of a ``pyarrow.RecordBatch``, in order. Raises ``UnsupportedValue``, which names the
        column.
        """
        # Hot path (benchmark `spark`).
        if self._plan is None or not self._plan[0].equals(batch.schema):
            self._plan = batch.schema, self._planned(batch.schema)
        return self._plan[1](batch)

    def _planned(self, schema: Any) -> _Plan:
        arrow, names = pyarrow(self._owner), list(schema.names)
        if self.of is None:
            return _Dicts(arrow, names)
        if self._by_columns and self.missing(names) is None:
            return _ByColumns(arrow, self.of, self._want, schema)
        return _ByRows(arrow, self.of, self._want, names)


def _described(owner: str, of: Any) -> inspect.Type:
    """Return msgspec's description of ``of``. Raises ``FlowDefinitionError``."""
    try:
        described = inspect.type_info(of)
    # Resolves annotations, which may raise any error.
    except Exception as exc:
        raise FlowDefinitionError(
            f"{owner}: rows cannot become {name_of(of)}: {exc}; of= takes a dataclass, a NamedTuple, a msgspec.Struct "
            f"or a TypedDict, and the types of its fields must be defined at the top of a module"
        ) from exc
    options = described.types if isinstance(described, inspect.UnionType) else [described]
    if not all(isinstance(option, _WITH_NAMES) for option in options):
        raise FlowDefinitionError(
            f"{owner}: of= takes a dataclass, a NamedTuple, a msgspec.Struct or a TypedDict, not {name_of(of)}"
        )
    return described


_WITH_NAMES: Final = (
    inspect.DataclassType,
    inspect.DictType,
    inspect.NamedTupleType,
    inspect.StructType,
    inspect.TypedDictType,
)


def name_of(of: object) -> str:
    """Return the name of ``of`` for a message."""
    return of.__name__ if isinstance(of, type) else repr(of)


def _by_columns(of: object, want: inspect.Type | None) -> bool:
    """Return True if an instance of ``of`` is what ``of(…)`` makes of the values of its fields."""
    if not isinstance(of, type):
        return False  # a generic alias or a union
    match want:
        case inspect.StructType():
            return want.tag is None and not want.forbid_unknown_fields
        case inspect.NamedTupleType():
            return True
        case inspect.DataclassType():
            return dataclasses.is_dataclass(of) and _has_made_init(of)
        case _:
            return False


def _has_made_init(of: Any) -> bool:
    """Return True if ``__init__`` is the one that ``dataclass`` makes and takes the fields and nothing else."""
    init, fields = of.__init__, dataclasses.fields(of)
    code = getattr(init, "__code__", None)
    takes = {name for name in signature(init).parameters if name != "self"}
    made = code is not None and code.co_filename == "<string>"
    return (
        made
        and takes == {field.name for field in fields if field.init}
        and all(f.init for f in fields)
    )


def _values(arrow: Any, batch: Any, name: str, want: inspect.Type | None = None) -> list[Any]:
    column = batch.column(name)
    try:
        return python_values(arrow, column, want)
    except UnsupportedValue as exc:
        raise UnsupportedValue(f"column {name!r} ({column.type}): {exc}") from exc


class _Dicts:
    """Converts rows to dicts."""

    def __init__(self, arrow: Any, names: list[str]) -> None:
        self._arrow, self._names = arrow, names
        self._make = rows_of(names) if names else None

    def __call__(self, batch: Any) -> list[Any]:
        if self._make is None:
            return [{} for _ in range(batch.num_rows)]
        return self._make([_values(self._arrow, batch, name) for name in self._names])


class _ByRows:
    """Converts whole rows, for classes that are not constructed from the values of their fields."""

    def __init__(self, arrow: Any, of: Any, want: inspect.Type | None, names: list[str]) -> None:
        self._arrow, self._of, self._names = arrow, of, names
        self._many: Any = list[of]
        self._fields = fields_by_name(want)
        self._is_tuple = isinstance(want, inspect.NamedTupleType)
        self._make = rows_of(names) if names else None

    def __call__(self, batch: Any) -> list[Any]:
        rows = self._rows(batch)
        try:
            # One call for all is faster, but its error does not identify the row.
            return cast("list[Any]", msgspec.convert(self._given(rows), self._many))
        except ValueError:
            return [self._one(row) for row in rows]

    def _rows(self, batch: Any) -> list[Row]:
        if self._make is None:
            return [{} for _ in range(batch.num_rows)]
        types = {name: field.type for name, field in self._fields.items()}
        columns = [_values(self._arrow, batch, name, types.get(name)) for name in self._names]
        return self._make(columns)

    def _given(self, rows: list[Row]) -> list[Any]:
        if not self._is_tuple:
            return rows
        return [[row[name] for name in self._fields if name in row] for row in rows]

    def _one(self, row: Row) -> Any:
        try:
            return msgspec.convert(self._given([row])[0], self._of)
        except ValueError as exc:
            return SchemaMismatch(row, str(exc))


@dataclass(frozen=True, slots=True)
class _Column:
    """A column and its conversion to a field."""

    name: str
    field: str
    want: inspect.Type
    hint: Any
    """Annotation of the field."""
    many: Any
    """List of that annotation."""
    fits: bool
    """True if the values need no conversion, except perhaps None."""
    optional: bool
    """True if the field may be None."""


class _ByColumns:
    """Converts rows by calling the class with the values of its fields."""

    def __init__(self, arrow: Any, of: Any, want: inspect.Type | None, schema: Any) -> None:
        self._arrow, self._of = arrow, of
        hints = get_type_hints(of, include_extras=True)
        self._columns = [
            _column(arrow, schema, name, field, hints[field.name])
            for name, field in fields_by_name(want).items()
            if name in schema.names
        ]
        self._make = _constructor(of, [column.field for column in self._columns])

    def __call__(self, batch: Any) -> list[Any]:
        given = [_values(self._arrow, batch, one.name, one.want) for one in self._columns]
        if not given:
            return [self._of() for _ in range(batch.num_rows)]
        try:
            converted = [
                self._converted(one, batch, values)
                for one, values in zip(self._columns, given, strict=True)
            ]
            return self._make(converted)
        # Raised by converters and ``__post_init__``; the rows are then converted one by one.
        except (ValueError, TypeError):
            return [
                self._one(batch, index, row) for index, row in enumerate(zip(*given, strict=True))
            ]

    def _converted(self, column: _Column, batch: Any, values: list[Any]) -> list[Any]:
        if column.fits and (column.optional or not batch.column(column.name).null_count):
            return values
        return cast("list[Any]", msgspec.convert(values, column.many))

    def _one(self, batch: Any, index: int, row: Sequence[Any]) -> Any:
        fields: list[list[Any]] = []
        for column, value in zip(self._columns, row, strict=True):
            try:
                fields.append([msgspec.convert(value, column.hint)])
            except ValueError as exc:
                return self._unfit(batch, index, _at(column.name, str(exc)))
        try:
            return self._make(fields)[0]
        except (ValueError, TypeError) as exc:
            return self._unfit(batch, index, str(exc))

    def _unfit(self, batch: Any, index: int, reason: str) -> SchemaMismatch:
        names: list[str] = batch.schema.names
        row = batch.slice(index, 1)
        return SchemaMismatch({name: _values(self._arrow, row, name)[0] for name in names}, reason)


def _at(name: str, reason: str) -> str:
    """Return ``reason``, which msgspec gives for a value, for the field ``name`` of a record."""
    said, found, path = reason.rpartition(" - at `$")
    return f"{said} - at `$.{name}{path}" if found else f"{reason} - at `$.{name}`"


def _column(arrow: Any, schema: Any, name: str, field: inspect.Field, hint: Any) -> _Column:
    want = field.type
    options = want.types if isinstance(want, inspect.UnionType) else (want,)
    return _Column(
        name,
        field.name,
        want,
        hint,
        list[hint],
        fits=_fits(arrow, schema.field(name).type, without_none(want)),
        optional=any(isinstance(one, inspect.NoneType | inspect.AnyType) for one in options),
    )


#: For types of msgspec, the predicate in ``pyarrow.types`` for columns with such values.
_FITTING: Final[dict[type[inspect.Type], Sequence[str]]] = {
    inspect.BoolType: ("is_boolean",),
    inspect.IntType: ("is_integer",),
    inspect.FloatType: ("is_float64", "is_float32"),
    inspect.StrType: ("is_string", "is_large_string"),
    inspect.BytesType: ("is_binary", "is_large_binary"),
    inspect.DateTimeType: ("is_timestamp",),
    inspect.DateType: ("is_date32",),
    inspect.DecimalType: ("is_decimal",),
}


def _fits(arrow: Any, kind: Any, want: inspect.Type | None) -> bool:
    if isinstance(want, inspect.AnyType):
        return True
    # Constraints (``Meta(gt=0)``) are attributes of the type, and all None if there are none.
    if (
        want is None
        or type(want) not in _FITTING
        or any(getattr(want, name) is not None for name in want.__struct_fields__)
    ):
        return False
    return any(getattr(arrow.types, holds)(kind) for holds in _FITTING[type(want)])


def _constructor(of: Any, fields: list[str]) -> Callable[[Sequence[list[Any]]], list[Any]]:
    """Return the function that constructs instances of ``of`` from columns of the values of ``fields``."""
    takes = signature(of).parameters
    by_place = list(takes)[: len(fields)] == fields and all(
        takes[field].kind is not Parameter.KEYWORD_ONLY for field in fields
    )
    if by_place:
        return lambda columns: list(map(of, *columns))
    rows = rows_of(fields)
    return lambda columns: [of(**row) for row in rows(columns)]


def chunk_of(
    rows: Sequence[T | SchemaMismatch],
    position: Position,
    bad_records: BadRecords,
    where: Callable[[int], str],
) -> Chunk[T]:
    """Return a chunk of converted rows, with mismatches apart. ``where`` describes the position of a row (from 0).

    Raises ``SourceError`` for a mismatch if there is no dead-letter stream.
    """
    if SchemaMismatch not in set(map(type, rows)):
        return Chunk(cast(Sequence[T], rows), position)
    values: list[T] = []
    rejected: list[BadRecord] = []
    for number, row in enumerate(rows):
        if isinstance(row, SchemaMismatch):
            rejected.append(bad_records.bad(where(number), row.reason, repr(row.row).encode()))
        else:
            values.append(row)
    return Chunk(values, position, rejected=rejected)
