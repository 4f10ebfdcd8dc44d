"""Destinations of the results of a backfill, as the driver writes them. All methods block.

Theory. Results are written, or files are made visible as results, when all fragments have run; the savepoint follows.
Output for a sink of the live job is *prepared* for the savepoint, as a writer of that sink prepares a checkpoint, and
the savepoint records it. So a crash leaves either no savepoint, and a repeated backfill removes the prepared output; or
a savepoint, and the live job that starts from it commits the output that is not visible yet. Whenever the live job is
restored from the savepoint, it removes later output and keeps that of history.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from os import fspath
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Final, TypeAlias

from aflow.backfill.savepoint import SAVEPOINT
from aflow.connect import Committable, SinkError
from aflow_connectors.spark.backfill.folders import local_path
from aflow_connectors.spark.backfill.results import Results
from aflow_connectors.spark.dataframe.schema import declared, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from aflow_connectors.spark.backfill.executor_files import FileTarget
    from aflow_connectors.spark.dataframe.schema import Schema

#: Folder that a failed write of Spark leaves.
_UNFINISHED: Final = "_temporary"


@dataclass(frozen=True, slots=True)
class SavepointOutput:
    """The place of a sink's output in the order of savepoints."""

    number: int = SAVEPOINT
    """Number of the savepoint that the backfill writes."""
    earlier: Sequence[Committable] = ()
    """Output of the sink that the restored savepoint names."""


class Destination(ABC):
    """Destination of the records of one sink."""

    sink: str

    @abstractmethod
    def check(self) -> None:
        """Raise, before anything runs, if the results could not be written, as far as that is known."""

    def begin(self) -> None:
        """Exclude other backfills, before anything runs. Raises ``SinkError`` if another one is alive."""

    def recover(self) -> None:
        """Restore the output to its state at the savepoint from which the backfill continues, before anything runs.

        As in a live job that is restored from it: output that it names is committed, and later output is removed.
        """

    def publish(self) -> None:
        """Make prepared output visible: the savepoint is written, or none was requested."""

    def drop(self) -> None:
        """Remove output that was begun or prepared, unless ``publish`` was called: there will be no savepoint."""


class TableDestination(Destination):
    """Destination that Spark writes, as one DataFrame."""

    @abstractmethod
    def columns(self) -> StructType | None:
        """Return the columns to write; None to infer them from the first records. Raises as ``check``."""

    @abstractmethod
    def write(
        self, table: DataFrame | None, *, records: int, scratch: str
    ) -> Sequence[Committable]:
        """Write or prepare ``records`` rows, and return the committables for the savepoint.

        ``table`` is None if there are no records and no columns are declared. ``scratch`` is the path of a new folder
        that driver and executors share and that is removed at the end.
        """


class FilesDestination(Destination):
    """Destination to which executors write files while they compute the records."""

    target: FileTarget

    @abstractmethod
    def begin(self) -> None:
        """Create the folder into which executors write, and exclude other backfills."""

    @abstractmethod
    def prepare(self, files: Sequence[str]) -> Sequence[Committable]:
        """Publish or prepare ``files`` of that folder, and return the committables for the savepoint."""


AnyDestination: TypeAlias = TableDestination | FilesDestination


class ResultsDestination(TableDestination):
    """A folder of Parquet files, or a function."""

    def __init__(self, results: Results, sink: str, session: SparkSession) -> None:
        self.sink = sink
        self._results = results
        #: The folder, if this machine can access it.
        self._folder: Path | None = None
        if not callable(results.to):
            self._folder = local_path(fspath(results.to), session)

    def check(self) -> None:
        """Raise ``SinkError`` if the folder already has output, and ``FlowDefinitionError`` for an invalid schema."""
        self.columns()
        folder = self._folder
        if folder is not None and not self._results.overwrite and not _is_free(folder):
            raise SinkError(
                f"sink {self.sink!r}: {folder} already exists: remove it, write elsewhere, or say "
                f"Results({str(folder)!r}, overwrite=True), which replaces it"
            )

    def columns(self) -> StructType | None:
        return declared_columns(self._results.schema, self.sink)

    def write(
        self, table: DataFrame | None, *, records: int, scratch: str
    ) -> Sequence[Committable]:
        if table is not None:
            if self._folder is not None and _is_free(self._folder):
                # Spark treats a folder as existing even if it is empty or holds only the remains of a failed write.
                rmtree(self._folder, ignore_errors=True)
            self._results.write(table)
        return ()


def declared_columns(schema: Schema | None, sink: str) -> StructType | None:
    """Return the columns of a sink that has declared them; None otherwise. Raises ``FlowDefinitionError``."""
    if schema is None:
        return None
    owner = f"sink {sink!r}"
    columns = spark_schema(schema, owner=owner)
    declared(columns, owner=owner)
    return columns


def _is_free(folder: Path) -> bool:
    """Return True if the path does not exist or holds only the remains of a failed write."""
    if not folder.is_dir():
        return not folder.exists()
    return all(one.name == _UNFINISHED for one in folder.iterdir())
