"""Loads of staged pieces into a table: one Spark write for all pieces of a checkpoint.

Theory. A checkpoint is complete when all writers have prepared it. So the first writer that is notified to commit it
loads the pieces of all writers for this and earlier checkpoints; the others find their pieces loaded. A piece is staged
until it is in the table. So after a crash each piece of the checkpoint is either staged, and is loaded, perhaps a
second time, which is idempotent; or it is in the table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from anyio import Lock

from aflow.connect import Committable, SinkError
from aflow_connectors.files.output.pieces import PreparedPiece
from aflow_connectors.owners import new_owner
from aflow_connectors.spark.calls import Calls
from aflow_connectors.spark.tables.columns import (
    Columns,
    SinkSchema,
    column_mismatches,
    differences,
    parsed,
    schema_of_file,
)
from aflow_connectors.spark.tables.spark_table import SparkTable, TablePartition, writing_session
from aflow_connectors.spark.tables.staged_pieces import (
    NO_CHECKPOINT,
    StagedPieces,
    is_history_piece,
)
from aflow_connectors.worker_thread import WorkerThread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")


class TableLoads:
    """State that the writers of one sink share. Its methods are for the event loop."""

    def __init__(
        self,
        table: str,
        staging: StagedPieces,
        *,
        session: SparkSession,
        schema: SinkSchema,
        overwrite: bool,
    ) -> None:
        self._session = session
        self._name = table
        self._staging = staging
        self._schema = schema
        self._overwrite = overwrite
        self.columns = Columns(f"sink {staging.sink!r}: table {table}")
        #: Owner of the staged pieces.
        self.owner = new_owner()
        #: Number of open writers.
        self.writers = 0
        #: Serialises writes, and opening, which is done once.
        self._lock = Lock()
        self._blocking = WorkerThread()
        #: None until it is open.
        self._opened: tuple[SparkTable, Calls] | None = None
        #: Prepared pieces that are not in the table, by name.
        self._waiting: dict[str, PreparedPiece] = {}

    async def open(self) -> None:
        """Find the table, or create it if its columns are declared. Raises ``SinkError`` for a table with other
        columns.
        """
        async with self._lock:
            if self._opened is not None:
                return
            doing = self._doing("open it")
            # Calls belong to a session, and the writing session is another one.
            opening = Calls(self._session, error=SinkError)
            writes = await opening.run(partial(writing_session, self._session), doing)
            sink, calls = self._staging.sink, Calls(writes, error=SinkError)
            table = SparkTable(writes, self._name, sink=sink, readers=self._session)
            await calls.run(partial(self._find, table), doing)
            self._opened = table, calls

    async def recover(self, committables: Sequence[Committable]) -> None:
        """Recover as ``Sink.recover``. Raises ``RestoreError`` for a lost piece, and ``SinkError``."""
        staging = self._staging
        pieces = [PreparedPiece.of(one, sink=staging.sink) for one in committables]
        await self.open()
        found = await self._call(SparkTable.partitions, "list its partitions")
        written = {one.piece for one in found}
        await self._blocking.run(partial(staging.refuse_lost, pieces, self._name, written))
        if pieces:
            last = max(one.checkpoint for one in pieces)
            found = [one for one in found if one.checkpoint > last]
        else:
            self._refuse_earlier(found)
        # Output of a backfill was never staged.
        staged = [replace(one, piece="") if is_history_piece(one.piece) else one for one in pieces]
        self.owner = await self._blocking.complete(
            partial(staging.recover, staged, overwrite=self._overwrite)
        )
        if pieces:
            await self._refuse_others(found)
        await self._drop(found)
        await self._call(partial(SparkTable.record_owner, owner=self.owner), "record its owner")
        await self._load(await self._blocking.run(partial(staging.files, staged)))

    def prepared(self, piece: PreparedPiece) -> None:
        """Register ``piece``, which a writer has staged for a checkpoint."""
        if piece.piece:
            self._waiting[piece.piece] = piece

    async def commit(self, piece: PreparedPiece) -> None:
        """Load a piece, with all pieces that its checkpoint covers, unless that was done."""
        async with self._lock:
            if piece.piece not in self._waiting:
                return
            due = [one for one in self._waiting.values() if one.checkpoint <= piece.checkpoint]
            await self._load(await self._blocking.run(partial(self._staging.publish, due)))
            for one in due:
                del self._waiting[one.piece]

    # Without checkpoints: one writer, while others may not have begun, or have ended.

    async def begin(self, subtask: int, parallelism: int) -> None:
        """Raise ``SinkError`` if there is output of an earlier run that must be kept."""
        await self._blocking.run(partial(self._staging.clear, subtask))
        if not self._overwrite:
            self._refuse_earlier(await self._earlier(subtask, parallelism))

    async def end(self, subtask: int, parallelism: int, *, piece: str) -> None:
        """Remove output of an earlier run if ``overwrite``; keep ``piece``, which is of this run."""
        if self._overwrite:
            kept = self._staging.value(piece) if piece else None
            async with self._lock:
                found = await self._earlier(subtask, parallelism)
                await self._drop([one for one in found if one.piece != kept])

    # In worker threads.

    def _find(self, table: SparkTable) -> None:
        declared = parsed(self.columns.owner, self._schema)
        there = table.columns()
        if there is not None:
            if declared is not None and (found := differences(declared, there)):
                raise table.error(
                    f"{'; '.join(found)}; without schema= the table's own columns count"
                )
        elif declared is not None:
            table.create(declared)
        columns = declared or there
        if columns is not None:
            self.columns.declare(columns)

    def _write(self, files: Sequence[Path], table: SparkTable) -> None:
        staged = {file: schema_of_file(file, owner=self.columns.owner) for file in files}
        there = table.columns()
        if there is None:
            # Nothing was declared, and staged files may predate a restart.
            there = self.columns.declare(staged[files[0]])
            table.create(there)
            table.record_owner(self.owner)
        for file, rows in staged.items():
            if found := column_mismatches(rows, there):
                raise table.error(
                    f"{'; '.join(found)} (in the staged {file}): was it changed meanwhile?"
                )
        table.replace(files, there)

    # Calls on Spark.

    async def _load(self, files: Sequence[Path]) -> None:
        if files:
            await self._call(partial(self._write, files), f"write {len(files)} pieces into it")
            await self._blocking.run(partial(self._staging.remove_loaded, files))

    async def _drop(self, partitions: Sequence[TablePartition]) -> None:
        if partitions:
            await self._call(
                lambda table: table.drop(partitions), "drop rows that are written again"
            )

    async def _earlier(self, subtask: int, parallelism: int) -> list[TablePartition]:
        """Return output of an earlier run, without what other writers of this run may have written."""
        others = {(n, NO_CHECKPOINT) for n in range(parallelism) if n != subtask}
        found = await self._call(SparkTable.partitions, "list its partitions")
        return [one for one in found if (one.subtask, one.checkpoint) not in others]

    async def _call(self, work: Callable[[SparkTable], T], what: str) -> T:
        assert self._opened is not None
        table, calls = self._opened
        return await calls.run(lambda: work(table), self._doing(what))

    async def _refuse_others(self, later: Sequence[TablePartition]) -> None:
        """Raise ``SinkError`` if nothing proves that this lineage of runs wrote ``later`` partitions."""
        recorded = await self._call(SparkTable.owner, "read its properties")
        where = f"sink {self._staging.sink!r}: table {self._name}"
        if recorded is None and later:
            raise SinkError(
                f"{where} holds {later[0].piece}, newer than the checkpoint, and records no owner of it, so it is "
                f"not dropped. If this job wrote it with an earlier version of aflow, drop the partition yourself; "
                f"otherwise give the sink another name"
            )
        if recorded not in (None, self.owner):
            raise SinkError(
                f"{where} holds output of another run with a sink of this name (owner {recorded}, the checkpoint is of "
                f"{self.owner}): give the sink another name or another table"
            )

    def _refuse_earlier(self, found: Sequence[TablePartition]) -> None:
        if found and not self._overwrite:
            raise SinkError(
                f"sink {self._staging.sink!r}: an earlier run of it has written into table {self._name} "
                f"({found[0].piece}, and {len(found) - 1} more pieces); resume from its checkpoint, give the sink "
                f"another name, or pass overwrite=True, which removes what it has written"
            )

    def _doing(self, what: str) -> str:
        return f"{self.columns.owner}: to {what}"
