"""Writes into a table of Spark's."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from aflow.connect import Batch, Committable, Delivery, Sink, Writer, WriterContext
from aflow.errors import FlowDefinitionError, shown
from aflow_connectors.arguments import checked_path
from aflow_connectors.blocking import Blocking
from aflow_connectors.files.parquet_sink import ParquetWriter
from aflow_connectors.files.pieces import PieceOutput, Prepared
from aflow_connectors.spark.sink import ROWS, checked_row_group, local_folder
from aflow_connectors.spark.table_columns import SharedTable, checked_schema
from aflow_connectors.spark.table_loads import TableLoads
from aflow_connectors.spark.table_staging import NO_CHECKPOINT, Staging

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from aflow_connectors.spark.schemas import Schema

T = TypeVar("T")

_NAME: Final = "SparkTableSink"
#: What a path must not have in it: Spark takes it for a pattern.
_PATTERN: Final = frozenset("*?[]{}\\")


class SparkTableSink(Sink[T]):
    """Appends records to a table of Spark's, by one Spark write for each checkpoint.

    ``table`` is a name as SQL has it, ``"catalog.schema.table"`` or less. Records and ``schema`` are as for
    ``SparkSink``. If the table is there, its own columns count, and a ``schema`` that says something else is refused
    before anything is written; if not, it is made: at once if there is a ``schema``, else when the first records are
    committed, with their columns.

    With checkpoints each record is in the table exactly once, and visible when its checkpoint is complete. For that
    the table has one more column, ``aflow_piece STRING``, by which it is partitioned (alone, or with others of yours):
    it says which sink, writer and checkpoint a row comes from (``totals-00000-000012``), and what one writer has
    written for one checkpoint is a partition. It is written by overwriting that partition alone, so to commit twice
    changes nothing. The table must be of Spark's own catalog, and in Parquet or ORC. Writers that have written nothing
    make no partition; still, take checkpoints every few minutes rather than seconds. Partitions older than all
    checkpoints and savepoints to which somebody may go back can be merged into one of them. Of a table with a LOCATION
    of its own, Spark forgets a partition that is dropped, and leaves its folder.

    The name of the sink in the flow is its identity in the table: jobs that write into one table need sinks of
    different names. A run that does not go on from a checkpoint is refused if an earlier one of this name has written
    into the table, unless ``overwrite``, which removes what that has written, and no other rows. A run that continues
    from a checkpoint is refused if another job with a sink of this name has written into the table, which records that
    as a property.

    Until a checkpoint is complete its records stand in Parquet files in a folder of ``staging``, which the driver and
    the executors of Spark must be able to read under this path. It must outlive the job: checkpoints name files in it.

    Calls on Spark run in worker threads, and cancelling the job cancels them. Without checkpoints each writer writes
    once, at the end of its input. Raises ``FlowDefinitionError`` for arguments, and in the job ``SinkError`` with the
    table and the reason, and ``RestoreError`` when it is to continue with what is neither staged nor in the table.
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
        #: Of the sinks that have writers now, or were recovered for them, by name.
        self._loads: dict[str, TableLoads] = {}

    async def writer(self, context: WriterContext) -> Writer[T]:
        name = context.name
        loads = self._loads.setdefault(name, self._new_loads(name))
        loads.writers += 1
        output = PieceOutput(
            self._staging(name).parts, sink=name, subtask=context.subtask, owner=loads.owner
        )
        blocking = Blocking()
        try:
            await loads.open()
            await blocking.run(output.open)
            if not context.checkpoints:
                await loads.begin(context.subtask, context.parallelism)
        except BaseException:
            await blocking.finish(output.discard)
            self._left(name, loads)
            raise
        table = SharedTable(output, loads.columns)
        staged = ParquetWriter[T](table, output, blocking, self.row_group)
        return TableWriter(staged, loads, context, closed=partial(self._left, name, loads))

    async def recover(self, name: str, committables: Sequence[Committable]) -> None:
        """As ``Sink.recover``: writes what is staged, perhaps a second time, and drops what came behind."""
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

    def _staging(self, name: str) -> Staging:
        return Staging(self.staging, self.table, sink=name)

    def _left(self, name: str, loads: TableLoads) -> None:
        """A writer is closed. What the next job needs is looked up anew."""
        loads.writers -= 1
        if not loads.writers and self._loads.get(name) is loads:
            del self._loads[name]


class TableWriter(Writer[T]):
    """Stages what one subtask writes, and asks for it to be written into the table."""

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
        """Stage what was written since the last one."""
        committable = await self._staged.prepare(checkpoint)
        self._loads.prepared(Prepared.of(committable, sink=self._context.name))
        return committable

    async def commit(self, committable: Committable) -> None:
        """Put it into the table, with that of the other writers, unless one of them has done so."""
        await self._loads.commit(Prepared.of(committable, sink=self._context.name))
        # Now it waits no more, for that writer either.
        await self._staged.commit(committable)

    async def flush(self) -> None:
        """Without checkpoints, put everything into the table."""
        if self._context.checkpoints:
            await self._staged.flush()
            return
        committable = await self.prepare(NO_CHECKPOINT)
        await self.commit(committable)
        piece = Prepared.of(committable, sink=self._context.name).piece
        await self._loads.end(self._context.subtask, self._context.parallelism, piece=piece)

    async def close(self) -> None:
        await self._staged.close()
        self._closed()
