"""Where the results of a backfill go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike, fspath
from typing import TYPE_CHECKING, TypeAlias

from aflow.errors import FlowDefinitionError, shown

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from aflow_connectors.spark.schemas import Schema

Target: TypeAlias = "str | PathLike[str] | Callable[[DataFrame], object]"


@dataclass(frozen=True, slots=True)
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
        if not callable(self.to):
            mode = "overwrite" if self.overwrite else "error"
            table.write.mode(mode).parquet(fspath(self.to))
        else:
            self.to(table)


Place: TypeAlias = "Results | Target | None"
"""Where the records of a sink go: a folder, a function, either with more said about it, or nowhere."""
