"""Where the results of a backfill go, as the driver writes them. All of it blocks.

Theory. Results are written, or files of them are made results, when all is computed, and the savepoint behind them.
What goes into the output of a sink of the live job is *prepared* for the savepoint, as a writer of that sink would
prepare it for a checkpoint, and what was prepared is in the savepoint. So a crash leaves no savepoint, and what was
prepared goes when the backfill is repeated; or the savepoint, and the live job that begins from it commits what is not
to be seen yet. And whenever the live job goes back to the savepoint, it removes from its output what came behind it,
and leaves history there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from os import fspath
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Final, TypeAlias

from aflow.connect import Committable, SinkError
from aflow_connectors.spark.paths import local_path
from aflow_connectors.spark.results import Results
from aflow_connectors.spark.schemas import declared, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from aflow_connectors.spark.result_files import Into

#: What Spark leaves in a folder when a write fails.
_UNFINISHED: Final = "_temporary"


class Destination(ABC):
    """Where the records of one sink go."""

    sink: str

    @abstractmethod
    def check(self) -> None:
        """Raise, before anything runs, for what could not be written in the end, as far as that can be known."""

    def show(self) -> None:
        """Let readers see what was prepared: there is a savepoint, or none was asked for."""

    def drop(self) -> None:
        """Remove what was begun or prepared, unless ``show`` was called; there is no savepoint, and will be none."""


class TableDestination(Destination):
    """Spark writes the records, all of them in one DataFrame."""

    @abstractmethod
    def columns(self) -> StructType | None:
        """Which columns there are to be; None: those of the first records. Raises as ``check``."""

    @abstractmethod
    def write(
        self, table: DataFrame | None, *, records: int, scratch: str
    ) -> Sequence[Committable]:
        """Write ``records`` rows, or prepare them; what is to be in the savepoint.

        ``table`` is None if there are no records, and nobody has said which columns they would have had. ``scratch``
        is the path of a new folder that driver and executors see alike, which is removed in the end.
        """


class FilesDestination(Destination):
    """Executors write the records into files, while they make them."""

    into: Into

    @abstractmethod
    def begin(self) -> None:
        """Make the folder into which executors write."""

    @abstractmethod
    def take(self, files: Sequence[str]) -> Sequence[Committable]:
        """Make results of ``files`` of that folder, or prepare them; what is to be in the savepoint."""


AnyDestination: TypeAlias = TableDestination | FilesDestination


class ResultsDestination(TableDestination):
    """A folder of Parquet files, or a function."""

    def __init__(self, results: Results, sink: str, session: SparkSession) -> None:
        self.sink = sink
        self._results = results
        #: Where it is, if this machine can look at it.
        self._folder: Path | None = None
        if not callable(results.to):
            self._folder = local_path(fspath(results.to), session)

    def check(self) -> None:
        """Raises ``SinkError`` for a folder that is there, and ``FlowDefinitionError`` for what is no schema."""
        self.columns()
        folder = self._folder
        if folder is not None and not self._results.overwrite and not _is_free(folder):
            raise SinkError(
                f"sink {self.sink!r}: {folder} is there already: remove it, write elsewhere, or say "
                f"Results({str(folder)!r}, overwrite=True), which replaces it"
            )

    def columns(self) -> StructType | None:
        if self._results.schema is None:
            return None
        owner = f"sink {self.sink!r}"
        columns = spark_schema(self._results.schema, owner=owner)
        declared(columns, owner=owner)
        return columns

    def write(
        self, table: DataFrame | None, *, records: int, scratch: str
    ) -> Sequence[Committable]:
        if table is not None:
            if self._folder is not None and _is_free(self._folder):
                # To Spark a folder is there even if it is empty, or nothing but what a failed write has left.
                rmtree(self._folder, ignore_errors=True)
            self._results.write(table)
        return ()


def _is_free(folder: Path) -> bool:
    """True if nothing is there that anybody has written."""
    if not folder.is_dir():
        return not folder.exists()
    return all(one.name == _UNFINISHED for one in folder.iterdir())
