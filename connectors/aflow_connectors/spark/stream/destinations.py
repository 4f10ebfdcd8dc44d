"""Destinations of the results of a stream, as the driver writes them. All methods block.

Theory. The output of an epoch is *prepared* first, then the epoch is committed, with committables that name the output,
then the output is made visible. So a crash leaves either an epoch that is not committed, whose output ``recover``
removes, and which runs again; or one that is, whose output ``recover`` makes visible if it was not. These are the rules
of a live job with a checkpoint for each epoch, and the files are the same: a job that continues from the stream's
savepoint finds the output of a checkpoint.

A function takes no part in that. It is called before the epoch is committed, and again, with the same epoch number, if
the driver is killed in between.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from shutil import rmtree
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from uuid import uuid4

from aflow.connect import Committable
from aflow.errors import FlowDefinitionError
from aflow_connectors.files.output.lock_file import Claim, is_lock, make_folder, sync_folder
from aflow_connectors.files.output.manifest import Fingerprint
from aflow_connectors.files.output.ownership import OwnedFolder
from aflow_connectors.files.output.pieces import FolderRecovery, Pieces, PreparedPiece
from aflow_connectors.spark.backfill.executor_files import FileTarget
from aflow_connectors.spark.backfill.folders import remove_folder
from aflow_connectors.spark.dataframe.columns import RowsOut
from aflow_connectors.spark.dataframe.schema import declared, spark_schema
from aflow_connectors.spark.stream.targets import EachEpoch
from aflow_connectors.spark.tables.columns import parsed
from aflow_connectors.spark.tables.folder_sink import SparkSink, folder_parts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

#: Folders for files that are not pending yet, and the lock file in them.
_HIDDEN: Final = ".stream-"
_CLAIM: Final = ".claim"


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
    def show(self) -> None:
        """Make the prepared output visible: its epoch is committed. May be called again."""

    def close(self) -> None:
        """Release locks, and remove files that no epoch names."""


class EpochFolder(OwnedFolder, EpochDestination):
    """The folder of a ``SparkSink``: executors write its files while they compute the records."""

    def __init__(self, target: SparkSink[Any], sink: str) -> None:
        super().__init__(target.path, folder_parts(target.path), sink=sink)
        self._overwrite = target.overwrite
        #: Folder into which executors write.
        self._hidden = target.path.absolute() / f"{_HIDDEN}{uuid4().hex}"
        self._pieces: Pieces | None = None
        #: Number of times that output of this owner was withdrawn.
        self._generation = 0
        #: Lock against other writers; None while it is not held.
        self._lock: Claim | None = None
        self._claim: Claim | None = None
        self._prepared: list[PreparedPiece] = []
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
        recovery = FolderRecovery(self.path, self.parts, sink=self.sink, overwrite=self._overwrite)
        owner = recovery.recover(committed)
        with self.errors():
            make_folder(self.path)
            self._lock = self.claimed(self.parts.lock(0))
            self._remove_abandoned()
            self._hidden.mkdir()
            self._claim = self.claimed(self._hidden / _CLAIM)
            self._pieces = Pieces(self.parts, owner, sink=self.sink)
            self._generation = self._pieces.generation()
        # Recorded before anything is written: whatever is written later has an owner that an epoch names.
        return committed or [self._piece(0, "").stored()]

    def take(self, epoch: int, files: Sequence[str]) -> Sequence[Committable]:
        """Prepare ``files`` of the hidden folder, and return the committables of the epoch."""
        pieces = self._epoch_pieces()
        self._prepared = []
        with self.errors():
            for number, name in enumerate(sorted(files)):
                path = self._hidden / name
                if not path.exists():
                    raise self.error(
                        f"an executor has written {path}, which this machine does not see: the folder of a SparkSink "
                        f"must be one that the driver and all executors see alike"
                    )
                piece = self.parts.piece(number, epoch)
                pieces.refuse_second(piece)
                with path.open("rb") as raw:
                    os.fsync(raw.fileno())
                pieces.wait(path, piece, Fingerprint.of(path))
                self._prepared.append(self._piece(epoch, piece))
            if files:
                sync_folder(self.path)
        # An empty committable marks an epoch without output, and names the owner.
        return [one.stored() for one in self._prepared or [self._piece(epoch, "")]]

    def show(self) -> None:
        with self.errors():
            for one in self._prepared:
                self._epoch_pieces().commit(one)
        self._prepared = []

    def close(self) -> None:
        if self._claim is not None:
            self._claim.release()
            self._claim = None
            remove_folder(self._hidden)
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _piece(self, epoch: int, piece: str) -> PreparedPiece:
        owner = self._epoch_pieces().owner
        return PreparedPiece(epoch, piece, str(self.path.absolute()), owner, self._generation)

    def _epoch_pieces(self) -> Pieces:
        assert self._pieces is not None
        return self._pieces

    def _remove_abandoned(self) -> None:
        """Remove the folders of killed drivers. The lock of the sink proves that none of them is alive."""
        for one in self.path.absolute().glob(f"{_HIDDEN}*"):
            # The lock file proves it: only aflow writes one.
            if is_lock(one / _CLAIM) or (one.is_dir() and not any(one.iterdir())):
                with suppress(OSError):
                    rmtree(one)


class EpochCall(EpochDestination):
    """A function that takes the rows of each epoch that has any."""

    def __init__(self, target: EachEpoch, sink: str) -> None:
        self.sink = sink
        self._target = target
        self.columns()  # checked

    def columns(self) -> StructType | None:
        """Return the columns of the rows; None to infer them from the first records of an epoch."""
        if self._target.schema is None:
            return None
        owner = f"sink {self.sink!r}"
        columns = spark_schema(self._target.schema, owner=owner)
        declared(columns, owner=owner)
        return columns

    def recover(self, committed: Sequence[Committable]) -> Sequence[Committable]:
        return ()

    def call(self, table: DataFrame, epoch: int) -> None:
        self._target.call(table, epoch)

    def show(self) -> None:
        """No-op: the function has written what it writes."""


AnyEpochDestination: TypeAlias = EpochFolder | EpochCall
