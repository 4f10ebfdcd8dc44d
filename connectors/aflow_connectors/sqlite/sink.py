"""``SqliteSink`` and ``SqliteUpsert``: tables of a SQLite database."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Final, Generic, TypeVar

from aflow.connect import Committable, Delivery, Sink, Writer, WriterContext
from aflow.errors import FlowDefinitionError, shown
from aflow_connectors.arguments import checked_path
from aflow_connectors.commit_errors import check_one_owner
from aflow_connectors.owners import new_owner
from aflow_connectors.rows import (
    RowMapper,
    RowOf,
    checked_columns,
    checked_key,
    checked_row,
    checked_table,
)
from aflow_connectors.sqlite.database import Database, Row
from aflow_connectors.sqlite.rows import DatabaseTable, row_mapper, upsert
from aflow_connectors.sqlite.staged_rows import PreparedRows, StagingTable
from aflow_connectors.sqlite.writers import DirectWriter, StagingWriter
from aflow_connectors.worker_thread import WorkerThread

T = TypeVar("T")

#: Default time to wait for another connection that writes.
_BUSY: Final = timedelta(seconds=30)


class _TableSink(Sink[T], Generic[T]):
    def __init__(
        self,
        path: str | Path,
        table: str,
        *,
        columns: Sequence[str] | None,
        row: RowOf[T] | None,
        busy: timedelta,
    ) -> None:
        owner = type(self).__name__
        self.path = checked_path(owner, path)
        self.table = checked_table(owner, table)
        self.columns = checked_columns(owner, columns)
        checked_row(owner, row)
        self.row = row
        if not isinstance(busy, timedelta) or busy < timedelta(0):
            raise FlowDefinitionError(
                f"{owner}: busy= must be a timedelta that is not negative, not {shown(busy)}"
            )
        self.busy = busy

    def _database(self, name: str) -> Database:
        return Database(self.path, sink=name, busy=self.busy)

    async def _looked_up(
        self, database: Database, blocking: WorkerThread
    ) -> tuple[DatabaseTable, RowMapper[T, Row]]:
        """Return the table and its row mapper. Raises ``SinkError``."""
        table = await blocking.run(lambda: DatabaseTable(database, self.table, self.columns))
        return table, row_mapper(database, table, self.row, exact=self.columns is None)


class SqliteSink(_TableSink[T]):
    """Append each record as a row to ``table`` of the database at ``path``; both must exist.

    Records are dicts, dataclasses, ``msgspec.Struct`` or NamedTuples; their fields are written to the columns of the
    same names: all columns of the table (then a record may have no other fields), or those in ``columns``. ``row`` maps
    a record of another type, or with other field names, to a row: a mapping, or a tuple of values in the order of the
    columns. Dates and times become ISO 8601, Decimals and UUIDs text, lists and dicts JSON.

    With checkpoints each record is in the table exactly once and becomes visible when its checkpoint is complete. Until
    then it is in the table ``_aflow_staged`` of the same database, under an id that is in the checkpoints of the job:
    jobs that write to one table concurrently do not touch each other's rows. Without checkpoints each batch is a
    transaction, and a repeated run writes its rows again.

    ``busy`` is the time to wait for another connection that writes. Raises ``SinkError`` with sink, table and reason
    and, for an invalid record, the record.
    """

    delivery = Delivery.TRANSACTIONAL

    def __init__(
        self,
        path: str | Path,
        table: str,
        *,
        columns: Sequence[str] | None = None,
        row: RowOf[T] | None = None,
        busy: timedelta = _BUSY,
    ) -> None:
        super().__init__(path, table, columns=columns, row=row, busy=busy)
        #: Owner of the staged rows, by the name of the sink in its flow.
        self._owners: dict[str, str] = {}

    async def writer(self, context: WriterContext) -> Writer[T]:
        database, blocking = self._database(context.name), WorkerThread()
        try:
            table, rows = await self._looked_up(database, blocking)
        except BaseException:
            await blocking.finish(database.close)
            raise
        if not context.checkpoints:
            return DirectWriter(database, blocking, rows, table.insert)
        owner = self._owners.setdefault(context.name, new_owner())
        staging = StagingTable(database, self.table, owner)
        return StagingWriter(staging, database, blocking, rows, table.columns, context.subtask)

    async def recover(self, name: str, committables: Sequence[Committable]) -> None:
        """Recover as ``Sink.recover``. Raises ``RestoreError``, and ``SinkError`` if the table is ahead of the
        checkpoint.
        """
        prepared = [PreparedRows.of(one, sink=name) for one in committables]
        owners = {one.owner for one in prepared}
        check_one_owner(name, owners, output="rows")
        database, blocking = self._database(name), WorkerThread()
        staging = StagingTable(database, self.table, owners.pop() if owners else new_owner())
        try:
            await blocking.run(staging.create)
            if prepared:
                await blocking.run(partial(staging.recover, prepared))
        finally:
            await blocking.finish(database.close)
        self._owners[name] = staging.owner


class SqliteUpsert(_TableSink[T]):
    """Write each record into the row of ``table`` with the same ``key``, or into a new one.

    The ``key`` columns must be the primary key of the table, or have a unique index together. All other written columns
    are replaced. Arguments and records are as for ``SqliteSink``.

    Each batch is a transaction, and visible at once. Rows that are written again after a restart replace themselves, so
    the final content is right if the same records give the same rows. Until a restarted job has caught up, readers may
    see an earlier version of a row.
    """

    delivery = Delivery.IDEMPOTENT

    def __init__(
        self,
        path: str | Path,
        table: str,
        *,
        key: str | Sequence[str],
        columns: Sequence[str] | None = None,
        row: RowOf[T] | None = None,
        busy: timedelta = _BUSY,
    ) -> None:
        super().__init__(path, table, columns=columns, row=row, busy=busy)
        self.key = checked_key("SqliteUpsert", key, self.columns)

    async def writer(self, context: WriterContext) -> Writer[T]:
        database, blocking = self._database(context.name), WorkerThread()
        try:
            table, rows = await self._looked_up(database, blocking)
            statement = upsert(table.name, table.columns, self.key)
            await blocking.run(lambda: table.check(statement, values=len(table.columns)))
        except BaseException:
            await blocking.finish(database.close)
            raise
        return DirectWriter(database, blocking, rows, statement)
