"""Results of a backfill: the destinations that users give, and the summary that it returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from aflow.errors import FlowDefinitionError, shown
from aflow.model.time import Timestamp

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from aflow_connectors.spark.dataframe.schema import Schema
    from aflow_connectors.spark.tables.folder_sink import SparkSink
    from aflow_connectors.spark.tables.table_sink import SparkTableSink


Target: TypeAlias = "str | PathLike[str] | Callable[[DataFrame], object]"


@dataclass(frozen=True, slots=True)
class Results:
    """Destination of the records of a sink, and their columns.

    ``to`` is a new folder for Parquet files (a path or URI that Spark can write), or a function that takes the
    DataFrame: ``lambda table: table.writeTo("catalog.totals").append()``. It is called once, in a worker thread, and
    may use the DataFrame several times: nothing is computed again. ``schema`` is a DDL string, a ``StructType`` or a
    ``pyarrow.Schema``; without it the columns are inferred from some thousand records. Records are dicts, dataclasses,
    named tuples or Structs. ``overwrite=True`` replaces the content of the folder.

    Spark writes the results in a job of its own after all others. A ``SparkSink`` with a ``schema`` instead is faster:
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


ResultTarget: TypeAlias = "Results | Target | SparkSink[Any] | SparkTableSink[Any] | None"
"""Destination of the records of a sink: a folder, a function, ``Results``, a sink of the live job, or None."""


@dataclass(frozen=True, slots=True)
class StepDone:
    """Record counts of a step, over all partitions of a fragment."""

    fragment: int
    """Index of the fragment, as ``explain`` shows it."""
    name: str
    records_in: int
    """Always 0 for a source."""
    records_out: int
    """Records of the main output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backfilled:
    """Summary of a completed backfill."""

    flow: str
    until: Timestamp | None
    """End of the history (epoch ms), exclusive; None if history was processed to its end."""
    savepoint: Path | None
    """Folder of the savepoint from which the live job starts; None if none was written."""
    steps: tuple[StepDone, ...]
    """In the order of the flow; a step downstream of a union has one entry for each fragment that contains it."""
    results: Mapping[str, int]
    """Number of records written, by sink."""
    left_out: int
    """Records of the sources at or after the end of the history, which the live job processes."""
    partitions: int
    """Number of partitions of keyed fragments."""
    restored: Path | None = None
    """Folder of the savepoint from which the backfill continued; None if it began at the beginning of history."""
    begins: Timestamp | None = None
    """Beginning of the history (epoch ms), where that savepoint ends; None without one."""
    skipped: int = 0
    """Records of the sources before it. The earlier backfill has processed those that its rows held."""
    seconds: Mapping[str, float]
    """Duration by phase: fragments, results, savepoint. A fragment without a Spark job of its own counts in that of its
    reader.
    """
