"""Schemas of DataFrames: as given by the user, as Spark's types, as Arrow types.

The conversions need pyspark, and a DDL string needs a session, so they run on the driver. Executors receive
``DeclaredColumns``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast
from uuid import UUID

from aflow.errors import FlowDefinitionError, shown
from aflow_connectors.fields import fields_of
from aflow_connectors.spark.dataframe.arrow import pa
from aflow_connectors.spark.environment import first_line, import_pyspark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

ArrowSchema: TypeAlias = Any
"""A ``pyarrow.Schema``: pyarrow has no types."""

Schema: TypeAlias = "str | StructType | ArrowSchema"
"""Columns and types: Spark's DDL (``"id long, name string"``), a ``StructType`` or a ``pyarrow.Schema``."""

#: Spark's type names, at the beginning, or inside other types after a colon or bracket; not names of fields.
_INSIDE: Final = r"(?:^|[:<,])"
_NOT_IN_PARQUET: Final = re.compile(_INSIDE + r"(interval|variant|geometry|geography)\b(?!:)")
_NOT_IN_PYTHON: Final = re.compile(
    _INSIDE + r"(interval(?! (?:day|hour|minute|second)\b)|variant|geometry|geography)\b(?!:)"
)


@dataclass(frozen=True, slots=True)
class DeclaredColumns:
    """Declared columns of records."""

    arrow: ArrowSchema
    """Exactly the Arrow types that Spark accepts for the declared types."""
    types: Mapping[str, str]
    """Spark's name of the type of each column, for errors."""

    @property
    def names(self) -> list[str]:
        """Return the names of the columns, in order."""
        return list(self.types)


def spark_schema(schema: Schema, *, owner: str) -> StructType:
    """Return ``schema`` as Spark's type. Spark parses a string, which requires a session.

    Raises ``FlowDefinitionError``, which begins with ``owner``, for an invalid schema.
    """
    import_pyspark()
    from pyspark.errors import PySparkException
    from pyspark.sql.types import StructType

    parsed: object = schema
    try:
        if isinstance(schema, str):
            parsed = StructType.fromDDL(schema)
        elif isinstance(schema, pa.Schema):
            parsed = _spark_types().from_arrow_schema(schema)
    except PySparkException as exc:
        raise FlowDefinitionError(
            f"{owner}: Spark makes no schema of {shown(cast(object, schema))}: {first_line(exc)}"
        ) from exc
    if not isinstance(parsed, StructType) or not parsed.fields:
        raise FlowDefinitionError(
            f"{owner}: schema= says the columns and their types, as 'id long, name string' or as a StructType or a "
            f"pyarrow.Schema, not {shown(cast(object, schema))}"
        )
    return parsed


def declared(schema: StructType, *, owner: str) -> DeclaredColumns:
    """Return ``schema`` in the form for executors. Raises ``FlowDefinitionError`` for a duplicate name."""
    check_names(schema.names, owner=owner)
    arrow = _spark_types().to_arrow_schema(schema, timezone="UTC")
    return DeclaredColumns(
        arrow, {field.name: field.dataType.simpleString() for field in schema.fields}
    )


def rows_schema(frame: DataFrame, *, owner: str, in_parquet: bool = False) -> ArrowSchema:
    """Return the Arrow schema of the rows of ``frame``; blocks, since Spark analyses the query.

    Raises ``FlowDefinitionError``, which begins with ``owner``, for a streaming DataFrame, for two columns of the same
    name, and for a column of a type without Python values; with ``in_parquet``, also for a type that only Spark reads
    back from Parquet.
    """
    if frame.isStreaming:
        raise FlowDefinitionError(
            f"{owner}: the DataFrame is a streaming one (spark.readStream), and rows are read of one that ends: read "
            f"it by spark.read, and give the live job another source for new rows; stream() reads a streaming one"
        )
    return columns_schema(frame, owner=owner, in_parquet=in_parquet)


def columns_schema(frame: DataFrame, *, owner: str, in_parquet: bool = False) -> ArrowSchema:
    """Return the Arrow schema of the rows of ``frame``, which may be a streaming one; else as ``rows_schema``."""
    fields = frame.schema.fields
    check_names([field.name for field in fields], owner=owner)
    for field in fields:
        kind = field.dataType.simpleString()
        if found := (_NOT_IN_PARQUET if in_parquet else _NOT_IN_PYTHON).search(kind):
            where = "in Parquet only Spark knows" if in_parquet else "Python has no values for"
            raise FlowDefinitionError(
                f"{owner}: column {field.name!r} is of type {kind}, and {where} {found[1]}: cast it before, like an "
                f"interval to seconds or a variant to a struct"
            )
    return declared(frame.schema, owner=owner).arrow


def check_names(names: Sequence[str], *, owner: str) -> None:
    """Raise ``FlowDefinitionError`` for a duplicate name."""
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise FlowDefinitionError(
            f"{owner}: there is more than one column {twice[0]!r}, and fields are found by their names"
        )


def inferred(records: Sequence[object], *, owner: str = "schema_of") -> ArrowSchema:
    """Return the schema of ``records``, a sample of the records to come: dicts, dataclasses, named tuples or Structs.

    Raises ``FlowDefinitionError`` for a column that is always None, or has values of several types.
    """
    if not records:
        raise FlowDefinitionError(
            f"{owner}: without a record there is no telling which columns there are"
        )
    columns: dict[str, list[object]] = {}
    for number, record in enumerate(records):
        try:
            fields = fields_of(record)
        except TypeError as exc:
            raise FlowDefinitionError(f"{owner}: record {shown(record)}: {exc}") from exc
        for name, value in fields.items():
            columns.setdefault(name, [None] * number).append(value)
        for values in columns.values():
            values.extend([None] * (number + 1 - len(values)))
    return pa.schema(
        [pa.field(name, _inferred_type(name, values, owner)) for name, values in columns.items()]
    )


def _inferred_type(name: str, values: list[object], owner: str) -> Any:
    try:
        found = pa.array([_without_classes(value) for value in values]).type
    except (pa.ArrowException, OverflowError, TypeError, ValueError) as exc:
        raise FlowDefinitionError(
            f"{owner}: column {name!r} has no one type: {first_line(exc)}; say it, in schema="
        ) from exc
    return _as_in_spark(name, found, owner)


def _without_classes(value: object) -> object:
    """Return ``value`` in types that Arrow supports: dicts for class instances, lists for sets, values of enums."""
    if isinstance(value, Enum):
        return _without_classes(value.value)
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, list | set | frozenset) or type(value) is tuple:
        return [_without_classes(one) for one in cast("Iterable[object]", value)]
    try:
        fields = fields_of(value)
    except TypeError:
        return value
    return {name: _without_classes(one) for name, one in fields.items()}


def _as_in_spark(name: str, found: Any, owner: str) -> Any:
    """Return Spark's type for ``found``; all its timestamps are in microseconds."""
    if pa.types.is_null(found):
        raise FlowDefinitionError(
            f"{owner}: column {name!r} is None in all records that were given, which has no type: give one where it is "
            f"not, or say the types of all columns, in schema="
        )
    if pa.types.is_timestamp(found):
        return pa.timestamp("us", tz=None if found.tz is None else "UTC")
    if pa.types.is_decimal(found):
        return _wide_decimal(found)
    if pa.types.is_list(found):
        return pa.list_(_as_in_spark(f"{name}[]", found.value_type, owner))
    if pa.types.is_struct(found):
        return pa.struct(
            [
                pa.field(part.name, _as_in_spark(f"{name}.{part.name}", part.type, owner))
                for part in found
            ]
        )
    return found


def _wide_decimal(found: Any) -> Any:
    """Return the type that Spark uses for a Python ``Decimal``: later records may need more digits than the first."""
    whole = found.precision - found.scale
    return pa.decimal128(38, min(max(found.scale, 18), max(38 - whole, 0)))


def _spark_types() -> Any:
    """Return the module of Spark that converts schemas; its signatures use pyarrow's types."""
    import_pyspark()
    return import_module("pyspark.sql.pandas.types")
