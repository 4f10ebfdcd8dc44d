"""Writers of the SQLite sinks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final, TypeVar

from aflow.connect import Batch, Committable, Writer
from aflow_connectors.rows import RowMapper, RowRejected
from aflow_connectors.sqlite.database import Database, Row
from aflow_connectors.sqlite.staged_rows import PreparedRows, StagingTable
from aflow_connectors.worker_thread import WorkerThread

T = TypeVar("T")

#: Number of rows that are buffered before they are staged.
_STAGED_AT: Final = 4096


class DirectWriter(Writer[T]):
    """Writes each batch into the table, in a transaction of its own."""

    def __init__(
        self, database: Database, blocking: WorkerThread, rows: RowMapper[T, Row], statement: str
    ) -> None:
        self._database = database
        self._blocking = blocking
        self._rows = rows
        self._statement = statement

    async def write(self, batch: Batch[T]) -> None:
        rows = self._rows.of(batch.values)
        try:
            await self._blocking.run(partial(self._write, rows))
        except RowRejected as exc:
            raise self._rows.refused(batch.values[exc.index], exc) from exc

    async def close(self) -> None:
        await self._blocking.finish(self._database.close)

    def _write(self, rows: Sequence[Row]) -> None:
        with self._database.transaction("cannot write"):
            self._database.run_many(self._statement, rows)


class StagingWriter(Writer[T]):
    """Stages rows, which ``commit`` moves into the table."""

    def __init__(
        self,
        staging: StagingTable,
        database: Database,
        blocking: WorkerThread,
        rows: RowMapper[T, Row],
        columns: Sequence[str],
        number: int,
    ) -> None:
        self._staging = staging
        self._database = database
        self._blocking = blocking
        self._rows = rows
        self._columns = tuple(columns)
        self._number = number
        self._buffer: list[Row] = []
        #: Rows written since the last checkpoint, staged or not.
        self._written = 0
        #: The last checkpoint. Epochs of earlier runs have no staged rows: recovery removes them.
        self._epoch = 0
        #: Prepared checkpoints with rows that wait for their commit.
        self._pending: set[int] = set()

    async def write(self, batch: Batch[T]) -> None:
        self._buffer += self._rows.of(batch.values)
        self._written += len(batch)
        if len(self._buffer) >= _STAGED_AT:
            await self._stage()

    async def prepare(self, checkpoint: int) -> Committable:
        await self._stage()
        columns = self._columns
        database = str(self._database.path.absolute())
        owner = self._staging.owner
        prepared = PreparedRows(
            self._number, self._epoch, checkpoint, self._written, columns, owner, database
        )
        await self._blocking.run(partial(self._staging.check, prepared))
        self._epoch, self._written = checkpoint, 0
        if prepared.rows:
            self._pending.add(checkpoint)
        return prepared.stored()

    async def commit(self, committable: Committable) -> None:
        prepared = PreparedRows.of(committable, sink=self._database.sink)
        if prepared.owner != self._staging.owner:
            raise self._database.error(
                f"checkpoint {prepared.checkpoint} names rows of owner {prepared.owner!r}, not of this job "
                f"({self._staging.owner!r})"
            )
        await self._blocking.run(partial(self._staging.commit, prepared))
        self._pending.discard(prepared.checkpoint)

    async def flush(self) -> None:
        """Raise ``SinkError`` if records are not covered by a checkpoint; nothing else remains to be done."""
        if self._written or self._pending:
            raise self._database.error(
                "the input has ended, but no checkpoint covers the last records"
            )

    async def close(self) -> None:
        await self._blocking.finish(self._database.close)

    async def _stage(self) -> None:
        rows, self._buffer = self._buffer, []
        if rows:
            stage = partial(self._staging.stage, self._number, self._epoch, rows)
            await self._blocking.run(stage)
