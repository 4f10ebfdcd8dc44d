"""Results of a backfill: the destinations that users give, and the summary that it returns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from inspect import iscoroutinefunction
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from aflow.errors import FlowDefinitionError, readable, shown
from aflow.model.time import Timestamp

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from aflow_connectors.spark.dataframe.schema import Schema
    from aflow_connectors.spark.tables.folder_sink import SparkSink
    from aflow_connectors.spark.tables.table_sink import SparkTableSink


Target: TypeAlias = "str | PathLike[str] | Callable[[DataFrame], object]"


def check_blocking(function: object, expected: str) -> None:
    """Raise ``FlowDefinitionError`` with the text ``expected`` unless ``function`` can be called in a thread."""
    if not callable(function):
        raise FlowDefinitionError(f"{expected}, not {shown(function)}")
    if iscoroutinefunction(function) or iscoroutinefunction(type(function).__call__):
        raise FlowDefinitionError(
            f"{expected}, which runs in a thread, and {shown(function)} is a coroutine function: it would never be "
            f"awaited"
        )


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
        if not isinstance(self.to, str | PathLike):
            check_blocking(
                self.to,
                "the results of a sink go into a folder, to a function of the DataFrame, or where a SparkSink or "
                "SparkTableSink writes",
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
    """Summary of a completed backfill. ``print`` shows it as a table of the steps, with the other figures below."""

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

    def __str__(self) -> str:
        return "\n".join([self._title(), *_table(self.steps), *self._totals()])

    def _title(self) -> str:
        begin = "" if self.begins is None else f" from {readable(self.begins)}"
        end = "to the end of history" if self.until is None else f"until {readable(self.until)}"
        return f"backfill of {self.flow!r}{begin} {end}"

    def _totals(self) -> Iterator[str]:
        for sink, written in self.results.items():
            yield f"written to sink {sink!r}: {written:,} records"
        if self.skipped:
            yield f"before the beginning: {self.skipped:,} records, of an earlier backfill"
        if self.left_out:
            yield f"at or after the end: {self.left_out:,} records, for the live job"
        if self.restored is not None:
            yield f"continued from {self.restored}"
        if self.savepoint is not None:
            yield f"savepoint in {self.savepoint}"
        phases = ", ".join(f"{phase} {seconds:.1f} s" for phase, seconds in self.seconds.items())
        yield f"{self.partitions} partitions; {phases}"


def _table(steps: Iterable[StepDone]) -> Iterator[str]:
    """Yield lines with names on the left and numbers on the right of their columns."""
    rows = [("step", "fragment", "records in", "records out")]
    rows += [
        (one.name, str(one.fragment), f"{one.records_in:,}", f"{one.records_out:,}")
        for one in steps
    ]
    name, *numbers = (max(map(len, column)) for column in zip(*rows, strict=True))
    for first, *others in rows:
        cells = (f"{cell:>{width}}" for cell, width in zip(others, numbers, strict=True))
        yield "  ".join([f"{first:<{name}}", *cells])
