"""Results of a backfill: from rows of exits to tables, by Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from aflow.backfill.exchange import decoded
from aflow.errors import FlowDefinitionError, shown
from aflow_connectors.spark.columns import RowsOut
from aflow_connectors.spark.schemas import Schema, inferred, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

#: Records of a sink that say which columns there are, where nobody else does.
_SAMPLE: Final = 1_000

Target: TypeAlias = "str | PathLike[str] | Callable[[DataFrame], object]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """Where the records of a sink go, and as which columns.

    ``to`` is a new folder for Parquet files (a path or URI that Spark writes to), or a function that is given the
    DataFrame: ``lambda table: table.writeTo("catalog.totals").append()``. It is called once, in a worker thread, and
    may use the DataFrame as often as it likes: nothing is computed again. ``schema`` is a DDL string, a ``StructType``
    or a ``pyarrow.Schema``; without it the first 1,000 records give the columns. Records are dicts, dataclasses, named
    tuples or Structs. ``overwrite=True`` replaces what is in the folder.
    """

    to: Target
    schema: Schema | None = None
    overwrite: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.to, str | PathLike) and not callable(self.to):
            raise FlowDefinitionError(
                f"Results.to takes a folder, or a function that is given the DataFrame, not {shown(self.to)}"
            )

    def write(self, table: DataFrame) -> None:
        """Write the results; blocks."""
        if isinstance(self.to, str | PathLike):
            mode = "overwrite" if self.overwrite else "error"
            table.write.mode(mode).parquet(fspath(self.to))
        else:
            self.to(table)


def schema_of_results(results: Results, rows: DataFrame, sink: str) -> StructType | None:
    """The columns of what a sink got; None if it got nothing, and nobody says what it would have been."""
    owner = f"sink {sink!r}"
    if results.schema is not None:
        return spark_schema(results.schema, owner=owner)
    sample = rows.select("payload").limit(_SAMPLE).collect()
    _, records = decoded([bytes(row.payload) for row in sample])
    return spark_schema(inferred(records, owner=owner), owner=owner) if records else None


@dataclass(frozen=True, slots=True)
class Decoding:
    """Makes columns of the payloads of a sink, in executors."""

    columns: RowsOut

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            _, records = decoded(batch.column("payload").to_pylist())
            if records:
                yield self.columns.batch(records)
