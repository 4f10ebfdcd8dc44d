"""Destinations of the results of a stream, as the driver writes them. All methods block.

Theory. The output of an epoch is *prepared* first, then the epoch is committed, with committables that name the output,
then the output is made visible. So a crash leaves either an epoch that is not committed, whose output ``recover``
removes, and which runs again; or one that is, whose output ``recover`` makes visible if it was not. These are the rules
of a live job with a checkpoint for each epoch, and the files are the same: a job that continues from the stream's
savepoint finds the output of a checkpoint.

For a function these rules do not hold. It is called before the epoch is committed, and again, with the same epoch
number, if the driver is killed in between.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from inspect import isawaitable, iscoroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from aflow.connect import Committable
from aflow.errors import FlowDefinitionError, SinkError, described
from aflow_connectors.files.output.lock_file import make_folder, sync_folder
from aflow_connectors.files.output.names import Parts
from aflow_connectors.files.output.pieces import Pieces, PreparedPiece
from aflow_connectors.spark.backfill.destinations import declared_columns
from aflow_connectors.spark.backfill.executor_files import FileTarget
from aflow_connectors.spark.backfill.folders import clear_folder, remove_folder
from aflow_connectors.spark.backfill.prepared_folder import CLAIM, PreparedFolder, is_left
from aflow_connectors.spark.calls import connector_error, is_spark_error
from aflow_connectors.spark.dataframe.columns import RowsOut
from aflow_connectors.spark.dataframe.schema import declared
from aflow_connectors.spark.stream.targets import EachEpoch
from aflow_connectors.spark.tables.columns import parsed
from aflow_connectors.spark.tables.folder_sink import SparkSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

#: Folders for files that are not pending yet.
_HIDDEN: Final = ".stream-"


class EpochDestination(ABC):
    """Destination of the records of one sink."""

    sink: str

    @abstractmethod
    def recover(self, committed: Sequence[Committable]) -> Sequence[Committable]:
        """Restore the output to its state at the last committed epoch, and exclude other writers.

        ``committed`` is what that epoch names; empty in the first one. Returns the committables that name this state.
        Raises ``SinkError`` and ``RestoreError``.
        """

    @abstractmethod
    def publish(self) -> None:
        """Make the prepared output visible: its epoch is committed. May be called again."""

    def close(self) -> None:
        """Release locks, and remove files that no epoch names."""


class EpochFolder(PreparedFolder, EpochDestination):
    """The folder of a ``SparkSink``: executors write its files while they compute the records."""

    def __init__(self, target: SparkSink[Any], sink: str) -> None:
        super().__init__(target, sink, hidden=_HIDDEN)
        owner = f"sink {sink!r}: {target.path}"
        schema = parsed(owner, target.schema)
        if schema is None:
            raise FlowDefinitionError(
                f"sink {sink!r}: stream() needs the columns of a SparkSink, which each epoch writes alike: "
                f"SparkSink({str(target.path)!r}, schema=…)"
            )
        self.target = FileTarget(
            owner=f"sink {sink!r}",
            folder=str(self._hidden),
            columns=RowsOut(declared(schema, owner=owner), owner=owner),
            row_group=target.row_group,
        )

    def recover(self, committed: Sequence[Committable]) -> Sequence[Committable]:
        owner = self._recovery().recover(committed)
        with self.errors():
            make_folder(self.path)
            self._lock = self.claimed(self.parts.lock(0))
            self._remove_abandoned()
            self._hidden.mkdir()
            self._claim = self.claimed(self._hidden / CLAIM)
            self._pieces = Pieces(self.parts, owner, sink=self.sink)
            self._generation = self._pieces.generation()
        # Recorded before anything is written: whatever is written later has an owner that an epoch names.
        return committed or [self._prepared_piece(0).stored()]

    def prepare(self, epoch: int, files: Sequence[str]) -> Sequence[Committable]:
        """Prepare ``files`` of the hidden folder, and return the committables of the epoch."""
        self._prepared = []
        with self.errors():
            for number, path in enumerate(self._written(files)):
                self._known_pieces().refuse_second(self.parts.piece(number, epoch))
                self._prepared.append(self._wait(path, number, epoch))
            if files:
                sync_folder(self.path)
        # An empty committable marks an epoch without output, and names the owner.
        return [one.stored() for one in self._prepared or [self._prepared_piece(epoch)]]

    def publish(self) -> None:
        self._commit_prepared()
        # Files of attempts that do not count.
        clear_folder(self._hidden, except_for=CLAIM)

    def close(self) -> None:
        self._release()

    def _remove_abandoned(self) -> None:
        """Remove the folders of killed drivers. The lock of the sink proves that none of them is alive."""
        for one in self.path.absolute().glob(f"{_HIDDEN}*"):
            if is_left(one):
                remove_folder(one, last=CLAIM)


class EpochCall(EpochDestination):
    """A function that takes the rows of each epoch that has any."""

    def __init__(self, target: EachEpoch, sink: str) -> None:
        self.sink = sink
        self._target = target
        self.columns()  # checked

    def columns(self) -> StructType | None:
        """Return the columns of the rows; None to infer them from the first records of an epoch."""
        return declared_columns(self._target.schema, self.sink)

    def recover(self, committed: Sequence[Committable]) -> Sequence[Committable]:
        return ()

    def call(self, table: DataFrame, epoch: int) -> None:
        """Call the function. Raises ``SinkError`` with its error as the cause."""
        try:
            result = self._target.call(table, epoch)
        except Exception as exc:
            problem = connector_error(exc, "Spark") if is_spark_error(exc) else exc
            raise self._failed(epoch, described(problem)) from exc
        if isawaitable(result):
            if iscoroutine(result):
                result.close()
            raise self._failed(epoch, "it returned an awaitable, which is not awaited in a thread")

    def _failed(self, epoch: int, problem: str) -> SinkError:
        return SinkError(
            f"sink {self.sink!r}: the function of EachEpoch failed for epoch {epoch}: {problem}"
        )

    def publish(self) -> None:
        """No-op: the function has written what it writes."""


def publish_former(sink: str, committed: Sequence[Committable]) -> None:
    """Make the output of a sink visible that no longer writes into a folder: its epoch is committed.

    Raises ``SinkError``, and ``RestoreError`` for output that was lost.
    """
    for one in committed:
        piece = PreparedPiece.of(one, sink=sink)
        parts = Parts.of_piece(Path(piece.folder), piece.piece) if piece.piece else None
        if parts is not None:
            pieces = Pieces(parts, piece.owner, sink=sink)
            with pieces.errors():
                pieces.commit_elsewhere(piece)


AnyEpochDestination: TypeAlias = EpochFolder | EpochCall
