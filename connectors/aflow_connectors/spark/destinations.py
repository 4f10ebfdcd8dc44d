"""Where the results of a backfill go, as the driver writes them. All of it blocks.

Theory. Results are written when all is computed, and the savepoint behind them. What goes into the output of a sink of
the live job is *prepared* for the savepoint, as a writer of that sink would prepare it for a checkpoint, and what was
prepared is in the savepoint. So a crash leaves no savepoint, and what was prepared goes when the backfill is repeated;
or the savepoint, and the live job that begins from it commits what is not to be seen yet. And whenever the live job
goes back to the savepoint, it removes from its output what came behind it, and leaves history there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from aflow.connect import Committable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from aflow_connectors.spark.result_files import Into


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
