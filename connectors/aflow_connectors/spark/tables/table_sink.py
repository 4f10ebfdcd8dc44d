"""``SparkTableSink``: a table of Spark's catalog as a sink."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from aflow.connect import Batch, Committable, Delivery, Sink, Writer, WriterContext
from aflow.errors import FlowDefinitionError, shown
from aflow_connectors.arguments import checked_path
from aflow_connectors.files.output.pieces import PieceOutput, PreparedPiece
from aflow_connectors.files.parquet_sink import ParquetWriter
from aflow_connectors.spark.tables.columns import SharedTable, checked_schema
from aflow_connectors.spark.tables.folder_sink import ROWS, checked_row_group, local_folder
from aflow_connectors.spark.tables.loads import TableLoads
from aflow_connectors.spark.tables.staged_pieces import NO_CHECKPOINT, StagedPieces
from aflow_connectors.worker_thread import WorkerThread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from aflow_connectors.spark.dataframe.schema import Schema

T = TypeVar("T")

_NAME: Final = "SparkTableSink"
#: Characters that a path must not contain: Spark takes it for a pattern.
_PATTERN: Final = frozenset("*?[]{}\\")


class SparkTableSink(Sink[T]):
    """Append records to a Spark table, with one Spark write per checkpoint.

    ``table`` is a name as in SQL, ``"catalog.schema.table"`` or shorter. Records and ``schema`` are as for
    ``SparkSink``. An existing table determines the columns, and a ``schema`` that differs is refused before anything is
    written. A missing table is created: at once if there is a ``schema``, else with the columns of the first records
    when they are committed.

    With checkpoints each record is in the table exactly once and becomes visible when its checkpoint is complete. For
    that the table has one more column, ``aflow_piece STRING``, by which it is partitioned (alone, or with columns of
    yours). It names the sink, writer and checkpoint of a row (``totals-00000-000012``), so the output of one writer for
    one checkpoint is a partition. The sink overwrites only that partition, so a repeated commit changes nothing. The
    table must be in Spark's own catalog and in Parquet or ORC. Writers without records create no partition; still, take
    checkpoints every few minutes rather than seconds. Partitions older than all checkpoints and savepoints that may be
    restored can be merged into one of them. Of a table with a LOCATION of its own, Spark drops a partition from the
    catalog but keeps its folder.

    The name of the sink in the flow is its identity in the table: jobs that write into one table need sinks of
    different names. A run that is not restored from a checkpoint is refused if an earlier run with this name has
    written into the table, unless ``overwrite``, which removes the rows of that run and no others. A restored run is
    refused if another job with a sink of this name has written into the table; the table records the owner as a
    property.

    Until a checkpoint is complete its records are in Parquet files in a folder of ``staging``, which Spark's driver and
    executors must be able to read under this path. It must outlive the job: checkpoints name files in it.

    Spark calls run in worker threads, and cancelling the job cancels them. Without checkpoints each writer writes once,
    at the end of its input. Raises ``FlowDefinitionError`` for invalid arguments, and in the job ``SinkError`` with the
    table and the reason, and ``RestoreError`` if a piece of the checkpoint is neither staged nor in the table.
    """

    delivery = Delivery.TRANSACTIONAL

    def __init__(
        self,
        table: str,
        *,
        session: SparkSession,
        staging: str | Path,
        schema: Schema | None = None,
        row_group: int = ROWS,
        overwrite: bool = False,
    ) -> None:
        if not isinstance(table, str) or not table.strip():
            raise FlowDefinitionError(
                f"{_NAME}: the table must be the name of one, not {shown(table)}"
            )
        self.table = table
        self.session = session
        self.staging = checked_path(_NAME, local_folder(_NAME, staging, argument="staging="))
        if _PATTERN & set(str(self.staging)):
            raise FlowDefinitionError(
                f"{_NAME}: staging= must be without {' '.join(sorted(_PATTERN))}, which Spark takes for a pattern, "
                f"not {str(staging)!r}"
            )
        self.schema = checked_schema(_NAME, schema)
        self.row_group = checked_row_group(_NAME, row_group)
        self.overwrite = overwrite
        #: Loads of the sinks that have open writers, or were recovered for them, by name.
        self._loads: dict[str, TableLoads] = {}

    async def writer(self, context: WriterContext) -> Writer[T]:
        name = context.name
        loads = self._loads.setdefault(name, self._new_loads(name))
        loads.writers += 1
        output = PieceOutput(
            self._staging(name).parts, sink=name, subtask=context.subtask, owner=loads.owner
        )
        blocking = WorkerThread()
        try:
            await loads.open()
            await blocking.run(output.open)
            if not context.checkpoints:
                await loads.begin(context.subtask, context.parallelism)
        except BaseException:
            await blocking.finish(output.discard)
            self._on_writer_closed(name, loads)
            raise
        table = SharedTable(output, loads.columns)
        staged = ParquetWriter[T](table, output, blocking, self.row_group)
        return TableWriter(
            staged, loads, context, closed=partial(self._on_writer_closed, name, loads)
        )

    async def recover(self, name: str, committables: Sequence[Committable]) -> None:
        """Load staged pieces, perhaps a second time, and drop later output; see ``Sink.recover``."""
        self._loads[name] = loads = self._new_loads(name)
        await loads.recover(committables)

    def _new_loads(self, name: str) -> TableLoads:
        return TableLoads(
            self.table,
            self._staging(name),
            session=self.session,
            schema=self.schema,
            overwrite=self.overwrite,
        )

    def _staging(self, name: str) -> StagedPieces:
        return StagedPieces(self.staging, self.table, sink=name)

    def _on_writer_closed(self, name: str, loads: TableLoads) -> None:
        """Release a closed writer. The next job looks everything up again."""
        loads.writers -= 1
        if not loads.writers and self._loads.get(name) is loads:
            del self._loads[name]


class TableWriter(Writer[T]):
    """Stage the records of one subtask, and load them into the table."""

    def __init__(
        self,
        staged: ParquetWriter[T],
        loads: TableLoads,
        context: WriterContext,
        *,
        closed: partial[None],
    ) -> None:
        self._staged = staged
        self._loads = loads
        self._context = context
        self._closed = closed

    def write(self, batch: Batch[T]) -> Awaitable[None] | None:
        return self._staged.write(batch)

    async def prepare(self, checkpoint: int) -> Committable:
        """Stage the records since the last checkpoint."""
        committable = await self._staged.prepare(checkpoint)
        self._loads.prepared(PreparedPiece.of(committable, sink=self._context.name))
        return committable

    async def commit(self, committable: Committable) -> None:
        """Load the piece with those of the other writers, unless one of them has done so."""
        await self._loads.commit(PreparedPiece.of(committable, sink=self._context.name))
        # The piece is not pending any more, for that writer either.
        await self._staged.commit(committable)

    async def flush(self) -> None:
        """Without checkpoints, load all records into the table."""
        if self._context.checkpoints:
            await self._staged.flush()
            return
        committable = await self.prepare(NO_CHECKPOINT)
        await self.commit(committable)
        piece = PreparedPiece.of(committable, sink=self._context.name).piece
        await self._loads.end(self._context.subtask, self._context.parallelism, piece=piece)

    async def close(self) -> None:
        await self._staged.close()
        self._closed()
