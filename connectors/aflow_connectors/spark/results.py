"""Where the results of a backfill go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from aflow.errors import FlowDefinitionError, shown

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from aflow_connectors.spark.schemas import Schema
    from aflow_connectors.spark.sink import SparkSink
    from aflow_connectors.spark.table_sink import SparkTableSink

Target: TypeAlias = "str | PathLike[str] | Callable[[DataFrame], object]"


@dataclass(frozen=True, slots=True)
class Results:
    """Where the records of a sink go, and as which columns.

    ``to`` is a new folder for Parquet files (a path or URI that Spark writes to), or a function that is given the
    DataFrame: ``lambda table: table.writeTo("catalog.totals").append()``. It is called once, in a worker thread, and
    may use the DataFrame as often as it likes: nothing is computed again. ``schema`` is a DDL string, a ``StructType``
    or a ``pyarrow.Schema``; without it some thousand of the records give the columns. Records are dicts, dataclasses,
    named tuples or Structs. ``overwrite=True`` replaces what is in the folder.

    Spark writes it, in a job of its own behind all others. A ``SparkSink`` with a ``schema`` in its place is faster:
    executors write its files while they compute.
    """

    to: Target
    schema: Schema | None = None
    overwrite: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.to, str | PathLike) and not callable(self.to):
            raise FlowDefinitionError(
                f"the results of a sink go into a folder, to a function that is given the DataFrame, or where a "
                f"SparkSink or SparkTableSink writes, not to {shown(self.to)}"
            )
        if cast("object", self.to) == "":
            raise FlowDefinitionError("the folder for the results of a sink has no name")

    def write(self, table: DataFrame) -> None:
        """Write the results; blocks."""
        if not callable(self.to):
            mode = "overwrite" if self.overwrite else "error"
            table.write.mode(mode).parquet(fspath(self.to))
        else:
            self.to(table)


Place: TypeAlias = "Results | Target | SparkSink[Any] | SparkTableSink[Any] | None"
"""Where the records of a sink go: a folder, a function, either with more said about it, the output of a sink of the
live job, or nowhere."""
