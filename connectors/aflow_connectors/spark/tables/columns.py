"""Columns of a sink's output, declared or inferred from the first records, and Parquet files that Spark reads as its
own.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from aflow.connect import ConnectorError, SinkError
from aflow.errors import FlowDefinitionError
from aflow_connectors.files.optional import pyarrow, pyarrow_parquet
from aflow_connectors.files.output.output_file import SinkOutput
from aflow_connectors.files.parquet_sink import ParquetTable
from aflow_connectors.spark.calls import error_summary
from aflow_connectors.spark.environment import VERSIONS, check_packages

# Modules that need pyarrow or pyspark are imported on use: a sink first reports missing packages.
if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

    from aflow_connectors.spark.dataframe.columns import RowsOut
    from aflow_connectors.spark.dataframe.schema import ArrowSchema, Schema


SinkSchema: TypeAlias = "str | StructType | None"
"""Columns as a string (``"n BIGINT, at TIMESTAMP"``) that Spark parses, as a value, or None if not declared."""


def checked_schema(owner: str, schema: Schema | None) -> SinkSchema:
    """Return ``schema`` in a sink's form. Raises ``FlowDefinitionError``, and ``ConnectorError`` for a package."""
    check_packages()
    if schema is None:
        return None
    if isinstance(schema, str):
        if schema.strip():
            return schema
        raise FlowDefinitionError(f"{owner}: schema= is empty: leave it out, or name a column")
    from aflow_connectors.spark.dataframe.schema import spark_schema

    found = spark_schema(schema, owner=owner)
    _check_in_parquet(owner, found)
    return found


def parsed(owner: str, schema: SinkSchema) -> StructType | None:
    """Return ``schema`` with its string parsed by Spark, which blocks. Raises ``SinkError``."""
    if not isinstance(schema, str):
        return schema
    from aflow_connectors.spark.dataframe.schema import spark_schema

    try:
        found = spark_schema(schema, owner=owner)
        _check_in_parquet(owner, found)
    except FlowDefinitionError as exc:
        raise SinkError(str(exc)) from exc
    # Without a session, Spark raises one of several classes, AssertionError among them.
    except Exception as exc:
        raise SinkError(
            f"{owner}: Spark has to read schema={schema!r}, and cannot: {error_summary(exc)}; start a session before, "
            f"or give a StructType or a pyarrow.Schema"
        ) from exc
    return found


class Columns:
    """Columns that the writers of a sink share. Its methods are for worker threads and are thread-safe."""

    def __init__(self, owner: str, schema: StructType | None = None) -> None:
        self.owner = owner
        self._lock = Lock()
        #: None while the columns are unknown.
        self.spark = schema

    @property
    def arrow(self) -> ArrowSchema | None:
        """Return the ``pyarrow.Schema``; None while the columns are unknown."""
        return None if self.spark is None else _declared(self.owner, self.spark).arrow

    def declare(self, schema: StructType) -> StructType:
        """Set the columns to ``schema`` unless they are set already; return them."""
        with self._lock:
            if self.spark is None:
                self.spark = schema
            return self.spark

    def rows(self, records: Sequence[object]) -> RowsOut:
        """Return the converter for records; infer the columns from ``records`` if they are unknown."""
        from aflow_connectors.spark.dataframe.columns import RowsOut
        from aflow_connectors.spark.dataframe.schema import inferred, spark_schema

        found = self.spark
        if found is None:
            first = spark_schema(inferred(records, owner=self.owner), owner=self.owner)
            _check_in_parquet(self.owner, first)
            found = self.declare(first)
        return RowsOut(_declared(self.owner, found), owner=self.owner)


class SharedTable(ParquetTable):
    """Row groups of a file with the columns that all writers of the sink share."""

    def __init__(self, output: SinkOutput, columns: Columns) -> None:
        super().__init__(output, None)
        self._columns = columns
        self._rows: RowsOut | None = None
        #: True if the last finished file has columns.
        self.has_columns = True

    def columns(self, records: Sequence[object]) -> Any:
        """Return a ``pyarrow.Table`` of ``records``, at least one. Raises ``SinkError`` for an unfit record."""
        try:
            if self._rows is None:
                self._rows = self._columns.rows(records)
            batch = self._rows.batch(records)
        except (ConnectorError, FlowDefinitionError) as exc:
            raise SinkError(str(exc)) from exc
        return pyarrow(self._columns.owner).Table.from_batches([batch])

    def new_writer(self, schema: Any) -> Any:
        """Return a ``pyarrow.parquet.ParquetWriter`` whose files Spark reads as its own."""
        return parquet_writer(self._output.file, schema, owner=self._columns.owner)

    def finish(self) -> None:
        """Write the end of the file, if there is or must be one. Raises ``SinkError``."""
        self._schema = self._columns.arrow
        self.has_columns = self._schema is not None
        super().finish()


def schema_of_file(path: Path, *, owner: str) -> StructType:
    """Return the columns of a Parquet file as Spark's types."""
    from aflow_connectors.spark.dataframe.schema import spark_schema

    return spark_schema(pyarrow_parquet(owner).read_schema(str(path)), owner=owner)


def differences(declared: StructType, there: StructType) -> list[str]:
    """Describe differences between the columns of a table and those declared; order and NOT NULL are ignored."""
    found = column_mismatches(declared, there)
    names = set(declared.names)
    return found + [
        f"its column {name!r} is not in schema=" for name in there.names if name not in names
    ]


def column_mismatches(rows: StructType, there: StructType) -> list[str]:
    """Describe why ``rows`` cannot be written into a table with the columns ``there``; columns may be missing in
    ``rows``.
    """
    types = {field.name: field.dataType.simpleString() for field in there.fields}
    found: list[str] = []
    for field in rows.fields:
        kind = field.dataType.simpleString()
        if field.name not in types:
            found.append(f"it has no column {field.name!r} ({kind})")
        elif types[field.name] != kind:
            found.append(f"its column {field.name!r} is {types[field.name]}, not {kind}")
    return found


def _declared(owner: str, schema: StructType) -> Any:
    from aflow_connectors.spark.dataframe.schema import declared

    return declared(schema, owner=owner)


def _check_in_parquet(owner: str, schema: StructType) -> None:
    """Raise ``FlowDefinitionError`` for columns that Spark would not read from our files as declared."""
    names = [name.lower() for name in schema.names]
    for field in schema.fields:
        if names.count(field.name.lower()) > 1:
            raise FlowDefinitionError(
                f"{owner}: there is more than one column {field.name!r}, and to Spark upper and lower case are the same"
            )
        if (other := _not_in_parquet(field.dataType)) is not None:
            raise FlowDefinitionError(
                f"{owner}: column {field.name!r} is {field.dataType.simpleString()}, and Spark reads no "
                f"{other.simpleString()} from Parquet that Python has written: declare a number, text or struct that "
                f"stands for it"
            )


def _not_in_parquet(kind: DataType) -> DataType | None:
    """Return ``kind``, or a type inside it, that Spark cannot read as declared from Parquet written by pyarrow."""
    from pyspark.sql import types

    match kind:
        case types.StructType():
            inner = [field.dataType for field in kind.fields]
            return next(filter(None, map(_not_in_parquet, inner)), None) if inner else kind
        case types.ArrayType():
            return _not_in_parquet(kind.elementType)
        case types.MapType():
            return _not_in_parquet(kind.keyType) or _not_in_parquet(kind.valueType)
        case types.CharType() | types.VarcharType():
            return kind
        case (
            types.BinaryType()
            | types.BooleanType()
            | types.DateType()
            | types.DecimalType()
            | types.DoubleType()
            | types.FloatType()
            | types.ByteType()
            | types.IntegerType()
            | types.LongType()
            | types.ShortType()
            | types.StringType()
            | types.TimestampType()
            | types.TimestampNTZType()
        ):
            return None
        case _:
            return kind


#: Key of the Spark version that wrote a file. Without it, sessions with other than the default settings assume another
#: calendar for timestamps and dates before 1582, or refuse them.
_VERSION: Final = "org.apache.spark.version"


def parquet_writer(where: Any, schema: Any, *, owner: str) -> Any:
    """Return a ``pyarrow.parquet.ParquetWriter`` into a path or a binary file.

    Float columns get no statistics. Spark skips row groups by them and treats NaN as the largest number, but pyarrow
    excludes NaN from them: ``WHERE f > 2`` would lose rows with NaN.
    """
    version = ".".join(map(str, VERSIONS["pyspark"][0]))
    described = schema.with_metadata({**(schema.metadata or {}), _VERSION: version})
    types = pyarrow(owner).types
    counted = [
        field.name
        for field in schema
        if not types.is_nested(field.type) and not types.is_floating(field.type)
    ]
    return pyarrow_parquet(owner).ParquetWriter(
        where, described, write_statistics=counted, write_page_checksum=True
    )
