"""Results of a backfill in the output of a sink of its live job, as if a checkpoint had committed them.

In the folder of a ``SparkSink``, executors write files into an inner folder whose name begins with a dot, which readers
ignore. Spark writes them instead if the columns are inferred from the first records. Complete files become pieces of
the savepoint: first *pending*, then published (``aflow_connectors.files.output.output_file.pieces``).

In the table of a ``SparkTableSink`` the results are one piece, which is a partition like those of checkpoints:
``aflow_piece = 'totals-history'``. It counts as written for the savepoint. A repeated backfill replaces it.

A backfill that continues from a savepoint continues its output too, as a live job does: with the same owner, and pieces
of the next number. In a folder, output that the savepoint names is committed first, and later output is removed, when
the backfill begins and again before it adds its own. A table keeps later output until ``write``, which records in the
staging folder that it is withdrawn, drops it, and adds the piece ``'totals-history-000002-c0ffee42'``. Its token is new
for each backfill. So checkpoints and savepoints whose output was replaced are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from aflow.connect import Committable
from aflow_connectors.files.optional import pyarrow_parquet
from aflow_connectors.files.output.lock_file import (
    Claim,
    is_claimed,
    is_lock,
    make_folder,
    sync_folder,
)
from aflow_connectors.files.output.pieces import Pieces, PreparedPiece
from aflow_connectors.owners import new_owner
from aflow_connectors.spark.backfill.destinations import (
    AnyDestination,
    Destination,
    FilesDestination,
    SavepointOutput,
    TableDestination,
)
from aflow_connectors.spark.backfill.executor_files import FileTarget
from aflow_connectors.spark.backfill.folders import remove_folder, uri_of
from aflow_connectors.spark.backfill.prepared_folder import CLAIM, PreparedFolder
from aflow_connectors.spark.dataframe.columns import RowsOut
from aflow_connectors.spark.dataframe.schema import declared
from aflow_connectors.spark.tables.columns import column_mismatches, differences, parsed
from aflow_connectors.spark.tables.folder_sink import SparkSink
from aflow_connectors.spark.tables.spark_table import (
    SparkTable,
    TablePartition,
    history_suffix,
    writing_session,
)
from aflow_connectors.spark.tables.staged_pieces import StagedPieces, history_piece

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from aflow_connectors.spark.tables.table_sink import SparkTableSink


#: Folders for files that are not pending yet.
_HIDDEN: Final = ".history-"
#: Prefix of their names until they are locked.
_UNLOCKED: Final = ".new"


def history_folder(
    target: SparkSink[Any], sink: str, output: SavepointOutput | None = None
) -> AnyDestination:
    """Return a destination: the folder of a ``SparkSink``. Raises ``SinkError`` if Spark cannot parse its schema."""
    output = output or SavepointOutput()
    owner = f"sink {sink!r}: {target.path}"
    schema = parsed(owner, target.schema)
    if schema is None:
        return HistoryFolderTable(target, sink, output)
    rows = RowsOut(declared(schema, owner=owner), owner=owner)
    return HistoryFolderFiles(target, sink, output, rows)


class _HistoryFolder(PreparedFolder, Destination):
    """The folder of a ``SparkSink``."""

    def __init__(self, target: SparkSink[Any], sink: str, output: SavepointOutput) -> None:
        super().__init__(target, sink, hidden=_HIDDEN)
        self._number = output.number
        #: Output that the restored savepoint names, if it names any of this sink.
        self._earlier = output.earlier

    def check(self) -> None:
        """Raise ``SinkError`` for output of an earlier run that must be kept, and while another job writes here."""
        with self.errors():
            if self.path.exists() and not self.path.is_dir():
                raise self.error(f"{self.path} is a file, and Spark reads a folder")
            if not self._earlier:
                self.removable_output(overwrite=self._overwrite)
            self.refuse_while_others_write()
            self._refuse_other_backfills()

    def recover(self) -> None:
        if self._earlier:
            self._recovered()

    def _recovered(self) -> str:
        """Restore the files to their state at the restored savepoint, if there is one; return their owner."""
        return self._recovery().recover(self._earlier)

    def begin(self) -> None:
        """Create the folder into which files are written. Raises ``SinkError`` if another backfill is alive here."""
        with self.errors():
            make_folder(self.path)
            # Created under another name until it is locked: an unlocked folder counts as abandoned.
            made = self.path.absolute() / f"{_UNLOCKED}{self._hidden.name}"
            made.mkdir()
            self._claim = self.claimed(made / CLAIM)
            made.rename(self._hidden)
            # Only now: of two that begin together, at least one sees the other.
            self._refuse_other_backfills()

    def publish(self) -> None:
        self._commit_prepared()
        self._release()

    def drop(self) -> None:
        for one in self._prepared:
            with suppress(OSError):
                self.parts.pending(one.piece, one.owner).unlink(missing_ok=True)
        if self._prepared and not self._earlier:  # otherwise it proves earlier output
            with suppress(OSError):
                self._known_pieces().manifest.remove()
        self._prepared.clear()
        self._release()

    def _prepare_files(self, files: Sequence[Path]) -> Sequence[Committable]:
        """Make pieces of ``files``, as a checkpoint of the live job does; return their committables."""
        self._pieces = Pieces(self.parts, self._recovered(), sink=self.sink)
        with self.errors():
            self._lock = self.claimed(self.parts.lock(0))
            self._generation = self._pieces.generation()
            self._remove_abandoned()
            for number, file in enumerate(files):
                self._prepared.append(self._wait(file, number, self._number))
            sync_folder(self.path)
        # An empty committable marks a savepoint without output, which a job can be restored from.
        return [one.stored() for one in self._prepared or [self._prepared_piece(self._number)]]

    def _refuse_other_backfills(self) -> None:
        for one in self.path.absolute().glob(f"{_HIDDEN}*"):
            if one != self._hidden and is_claimed(one / CLAIM, remove=False):
                raise self.taken(one / CLAIM)

    def _remove_abandoned(self) -> None:
        """Remove the folders of killed backfills."""
        for one in (*self.path.glob(f"{_HIDDEN}*"), *self.path.glob(f"{_UNLOCKED}{_HIDDEN}*")):
            # The lock file proves it: only aflow writes one.
            if is_lock(one / CLAIM) and not is_claimed(one / CLAIM, remove=False):
                remove_folder(one, last=CLAIM)


class HistoryFolderFiles(_HistoryFolder, FilesDestination):
    """The folder of a ``SparkSink`` with declared columns: executors write as its writers in a job do."""

    def __init__(
        self, target: SparkSink[Any], sink: str, output: SavepointOutput, rows: RowsOut
    ) -> None:
        super().__init__(target, sink, output)
        self.target = FileTarget(
            owner=f"sink {sink!r}",
            folder=str(self._hidden),
            columns=rows,
            row_group=target.row_group,
        )

    def prepare(self, files: Sequence[str]) -> Sequence[Committable]:
        return self._prepare_files(self._written(files))


class HistoryFolderTable(_HistoryFolder, TableDestination):
    """The folder of a ``SparkSink`` without declared columns, which are inferred from the first records."""

    def columns(self) -> StructType | None:
        return None

    def write(
        self, table: DataFrame | None, *, records: int, scratch: str
    ) -> Sequence[Committable]:
        if table is None:
            return self._prepare_files([])
        folder = self._hidden / "rows"
        # The same type as in files of the live job; Spark's default is one that other readers do not expect.
        writer = table.write.option("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
        writer.parquet(uri_of(folder))
        with self.errors():
            files = [(file, _rows(file)) for file in sorted(folder.glob("part-*.parquet"))]
        found = sum(count for _, count in files)
        if found != records:
            raise self.error(
                f"executors have written {records} records to {folder}, and {found} of them can be seen on this "
                f"machine: the folder of a SparkSink must be one that the driver and all executors see alike"
            )
        return self._prepare_files([file for file, count in files if count])


def _rows(file: Path) -> int:
    metadata: Any = pyarrow_parquet("SparkSink").read_metadata(str(file))
    return int(metadata.num_rows)


class HistoryTable(TableDestination):
    """The table of a ``SparkTableSink``."""

    def __init__(
        self, target: SparkTableSink[Any], sink: str, output: SavepointOutput | None = None
    ) -> None:
        output = output or SavepointOutput()
        self.sink = sink
        self._target = target
        self._number = output.number
        #: Output that the restored savepoint names, if it names any of this sink.
        self._earlier = [PreparedPiece.of(one, sink=sink) for one in output.earlier]
        self._staging = StagedPieces(target.staging, target.table, sink=sink)
        self._opened: tuple[SparkSession, SparkTable] | None = None
        #: Lock against the writers of jobs; None while it is not held.
        self._lock: Claim | None = None

    def check(self) -> None:
        """Raise ``SinkError`` for a table with other columns, for output of an earlier run that must be kept, and while
        a job writes into the table.
        """
        self.columns()
        with self._staging.errors():
            self._staging.refuse_while_others_write()
        table = self._table()
        if self._earlier:
            self._check_continued(table)
            return
        live = [one for one in table.partitions() if not one.history]
        if live and not self._target.overwrite:
            raise table.error(
                f"a job with a sink of this name has written into it ({live[0].piece}, and {len(live) - 1} more "
                f"pieces): give the sink another name, or pass overwrite=True, which removes what it has written"
            )

    def columns(self) -> StructType | None:
        table = self._table()
        asked, there = parsed(f"sink {self.sink!r}", self._target.schema), table.columns()
        if there is not None and asked is not None and (found := differences(asked, there)):
            raise table.error(f"{'; '.join(found)}; without schema= the table's own columns count")
        return asked or there

    def write(
        self, table: DataFrame | None, *, records: int, scratch: str
    ) -> Sequence[Committable]:
        target, suffix = self._table(), history_suffix(self._number)
        owner = self._earlier[0].owner if self._earlier else new_owner()
        self._exclude_jobs()
        # A backfill repeated over other data may have other partitions.
        replaced = self._replaced(target)
        generation = self._withdraw(owner, replaced) if self._earlier else 0
        target.drop(replaced)
        if table is not None:
            self._load(table, target, scratch, owner=owner, suffix=suffix)
        else:
            target.record_owner(owner)
        piece = history_piece(suffix) if records else ""
        folder = str(self._staging.path.absolute())
        return [PreparedPiece(self._number, piece, folder, owner, generation).stored()]

    def publish(self) -> None:
        self._release()

    def drop(self) -> None:
        self._release()

    def _exclude_jobs(self) -> None:
        """Lock the staging folder, so that no job writes until the savepoint exists."""
        staging = self._staging
        with staging.errors():
            make_folder(staging.path)
            staging.refuse_while_others_write()
            self._lock = staging.claimed(staging.parts.lock(0))

    def _withdraw(self, owner: str, replaced: Sequence[TablePartition]) -> int:
        """Record that later output of ``owner`` is removed; return how often that was done.

        Recorded even if there is none: a job may have completed checkpoints without output, and the rows of this
        backfill are ones that it would process again.
        """
        last = max((one.checkpoint for one in replaced), default=0)
        pieces = Pieces(self._staging.parts, owner, sink=self.sink)
        with self._staging.errors():
            pieces.manifest.withdrawing(self._number, max(last, self._number))
            self._staging.sync()
            return pieces.generation()

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _check_continued(self, table: SparkTable) -> None:
        """Raise unless the table holds the output that the savepoint names, and later output is of the same runs."""
        written = {one.piece for one in table.partitions()}
        self._staging.refuse_lost(self._earlier, self._target.table, written)
        owners = sorted({one.owner for one in self._earlier})
        recorded = table.owner()
        if len(owners) > 1 or recorded not in (None, owners[0]):
            raise table.error(
                f"it holds output of another run with a sink of this name (owner {recorded}, the savepoint is of "
                f"{' and '.join(owners)}): give the sink another name or another table"
            )
        later = self._replaced(table)
        if recorded is None and later:
            raise table.error(
                f"it holds {later[0].piece}, newer than the restored savepoint, and records no owner of it, so it is "
                f"not dropped: drop the partition yourself, or give the sink another name"
            )

    def _replaced(self, table: SparkTable) -> list[TablePartition]:
        """Return the partitions that are dropped before the results are written."""
        found = table.partitions()
        if self._earlier:
            last = max(one.checkpoint for one in self._earlier)
            return [one for one in found if one.checkpoint > last]
        return [one for one in found if one.history or self._target.overwrite]

    def _load(
        self, rows: DataFrame, target: SparkTable, scratch: str, *, owner: str, suffix: str
    ) -> None:
        # Staged in files, since only the writing session overwrites by partition.
        rows.write.parquet(scratch)
        there = target.columns()
        if there is None:
            there = rows.schema
            target.create(there)
        if found := column_mismatches(rows.schema, there):
            raise target.error(f"{'; '.join(found)}: was it changed meanwhile?")
        # Before the rows: rows without an owner could not be continued after a crash.
        target.record_owner(owner)
        rows_of_history = self._writes().read.schema(there).parquet(scratch)
        target.replace_history(rows_of_history, suffix=suffix)

    def _table(self) -> SparkTable:
        return self._open()[1]

    def _writes(self) -> SparkSession:
        return self._open()[0]

    def _open(self) -> tuple[SparkSession, SparkTable]:
        if self._opened is None:
            readers = self._target.session
            writes = writing_session(readers)
            table = SparkTable(writes, self._target.table, sink=self.sink, readers=readers)
            self._opened = writes, table
        return self._opened
