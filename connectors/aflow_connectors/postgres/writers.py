"""Writers of the PostgreSQL sinks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Generic, TypeVar, cast

from aflow.connect import Batch, Committable, ConnectorError, Writer
from aflow.errors import shown
from aflow_connectors.postgres.chunks import CopyRow, PlainRow, chunk_of, is_plain, lines_of
from aflow_connectors.postgres.client import ConnectionLost, Rejected, ServerLink, ServerSession
from aflow_connectors.postgres.staged_rows import Fenced, PreparedEpoch, Staging, WrongCount
from aflow_connectors.postgres.table import advice
from aflow_connectors.postgres.text_values import TextRejected, values_of_line
from aflow_connectors.rows import RowMapper, RowRejected

T = TypeVar("T")
R = TypeVar("R")

#: Number of rows that are buffered before they are staged.
_STAGED_AT: Final = 16_384
#: Bytes of an epoch that are kept in memory for its commit; the rows of larger ones are read again.
_KEPT: Final = 16 << 20
#: Transactions that are open at once. Rows of further epochs are checked at their commit.
_MOST_OPEN: Final = 3


class BatchWriter(Writer[T], Generic[T, R]):
    """Writes each batch into ``table``, in a transaction of its own.

    ``insert`` writes rows. It raises ``RowRejected`` or ``Rejected``.
    """

    def __init__(
        self,
        link: ServerLink,
        rows: RowMapper[T, R],
        insert: Callable[[ServerSession, Sequence[R]], Awaitable[None]],
        table: str,
    ) -> None:
        self._link = link
        self._rows = rows
        self._insert = insert
        self._table = table

    async def write(self, batch: Batch[T]) -> None:
        rows = self._rows.of(batch.values)
        try:
            await self._link.attempt(lambda session: self._insert(session, rows))
        except RowRejected as exc:
            raise self._rows.refused(batch.values[exc.index], exc) from exc
        except Rejected as exc:
            raise self._link.error(
                f"cannot write into table {self._table!r}: {exc}{advice(exc)}"
            ) from exc

    async def close(self) -> None:
        await self._link.close()


@dataclass
class _Epoch:
    """Rows between two checkpoints."""

    number: int
    """The checkpoint before them. Epochs of earlier runs have no staged rows: recovery removes them."""
    rows: int = 0
    chunks: int = 0
    kept: list[bytes] | None = field(default_factory=list[bytes])
    """All chunks, unless they exceed ``_KEPT``."""
    kept_bytes: int = 0
    session: ServerSession | None = None
    """Its transaction has all rows so far. None: they are loaded at the commit."""
    is_checked: bool = True
    """False if the transaction was given up."""


class EpochWriter(Writer[T]):
    """Stages rows, and loads them in a transaction that ``commit`` ends.

    The transaction shows before a checkpoint completes whether the table accepts the rows, and makes commits short. It
    may be lost at any time: then the staged rows are loaded again.

    A chunk is sent by a task while the rows of the next one are converted, at most one at a time. Its failure is raised
    by the next ``write`` or ``prepare``, so no checkpoint covers a chunk that is not staged.
    """

    def __init__(
        self, link: ServerLink, rows: RowMapper[T, CopyRow], staging: Staging, number: int
    ) -> None:
        self._link = link
        self._rows = rows
        self._staging = staging
        self._number = number
        self._place = f"{link.server.place}, table {staging.table.full_name}"
        self._buffer: list[CopyRow] = []
        self._epoch = _Epoch(0)
        #: Prepared epochs that wait for their commit, by their checkpoint.
        self._sealed: dict[int, _Epoch] = {}
        #: Sessions without a transaction.
        self._free: list[ServerSession] = []
        # Its task raises nothing, so it may be left by another task than the one that has entered it.
        self._group = asyncio.TaskGroup()
        #: Sends a chunk of ``_epoch``; it returns its failure. None: no chunk is in flight.
        self._sending: asyncio.Task[Exception | None] | None = None

    async def open(self) -> None:
        """Make the writer ready to send. Precedes the first ``write``."""
        await self._group.__aenter__()

    async def write(self, batch: Batch[T]) -> None:
        self._buffer += self._rows.of(batch.values)
        while len(self._buffer) >= _STAGED_AT:
            await self._stage(_STAGED_AT)

    async def prepare(self, checkpoint: int) -> Committable:
        if self._buffer:
            await self._stage(len(self._buffer))
        await self._end_sending()
        epoch, self._epoch = self._epoch, _Epoch(checkpoint)
        staging = self._staging
        if epoch.rows:
            self._sealed[checkpoint] = epoch
        return PreparedEpoch(
            owner=staging.owner,
            run=staging.run,
            writer=self._number,
            epoch=epoch.number,
            checkpoint=checkpoint,
            rows=epoch.rows,
            chunks=epoch.chunks,
            place=self._place,
        ).stored()

    async def commit(self, committable: Committable) -> None:
        prepared = PreparedEpoch.of(committable, sink=self._staging.sink)
        if (prepared.owner, prepared.run) != (self._staging.owner, self._staging.run):
            raise self._link.error(
                f"checkpoint {prepared.checkpoint} names rows of run {prepared.owner}/{prepared.run}, not of this one "
                f"({self._staging.owner}/{self._staging.run})"
            )
        epoch = self._sealed.get(prepared.checkpoint)
        if epoch is None:
            return  # no rows, or committed before
        try:
            if not await self._end_transaction(epoch, prepared):
                await self._connection_free()
                await self._link.attempt(
                    partial(write_prepared, self._staging, prepared=prepared, kept=epoch.kept)
                )
        except (RowRejected, Rejected, Fenced, WrongCount) as exc:
            # A COMMIT whose answer was lost may take effect while the rows are written again, and be the reason.
            await self._connection_free()
            if not await self._link.run(
                partial(self._staging.has_committed, prepared=prepared),
                "cannot look up the last committed checkpoint",
            ):
                raise self._link.error(commit_failed(self._staging, prepared, exc)) from exc
            self._give_up(epoch)
        del self._sealed[prepared.checkpoint]

    async def flush(self) -> None:
        """Raise ``SinkError`` if records are not covered by a checkpoint; nothing else remains to be done."""
        if self._buffer or self._sending or self._epoch.rows or self._sealed:
            raise self._link.error("the input has ended, but no checkpoint covers the last records")

    async def close(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            await self._group.__aexit__(None, None, None)
        for epoch in (self._epoch, *self._sealed.values()):
            if epoch.session is not None:
                epoch.session.terminate()
        for session in self._free:
            await session.close()
        await self._link.close()

    async def _stage(self, count: int) -> None:
        """Begin to send the first ``count`` rows of the buffer. Raises the failure of the preceding chunk."""
        rows = self._buffer[:count]
        try:
            chunk = chunk_of(rows)
        except TextRejected as exc:
            raise self._refused(rows[exc.index], exc) from exc
        await self._end_sending()
        del self._buffer[:count]
        self._sending = self._group.create_task(self._sent(self._epoch, rows, chunk))

    async def _end_sending(self) -> None:
        """Wait until no chunk is in flight. Raises ``SinkError`` if the last one was not staged."""
        await self._connection_free()
        if self._sending is not None:
            failure = self._sending.result()
            if failure is not None:  # also of a repeated call
                raise failure
            self._sending = None

    async def _connection_free(self) -> None:
        """Wait until no chunk uses the connection of the link. A failure remains for ``_end_sending``."""
        if self._sending is not None:
            # Unlike an await of the task, this does not cancel it with the caller.
            await asyncio.wait([self._sending])

    async def _sent(self, epoch: _Epoch, rows: Sequence[CopyRow], chunk: bytes) -> Exception | None:
        """Send a chunk, and return the failure."""
        try:
            await self._send(epoch, rows, chunk)
        except (
            Exception
        ) as exc:  # also a bug, which must not end the task that has entered the group
            return exc
        return None

    async def _send(self, epoch: _Epoch, rows: Sequence[CopyRow], chunk: bytes) -> None:
        """Stage a chunk, and load it in the transaction. Raises ``SinkError``."""
        stage = partial(
            self._staging.stage,
            writer=self._number,
            epoch=epoch.number,
            number=epoch.chunks,
            payload=chunk,
        )
        # Two connections, so two processes of the server.
        async with asyncio.TaskGroup() as group:
            loading = group.create_task(_failure(self._load(epoch, rows, chunk)))
            staged = group.create_task(_failure(self._link.attempt(stage)))
        failure = loading.result() or staged.result()
        if isinstance(failure, RowRejected):
            raise self._refused(rows[failure.index], failure) from failure
        if isinstance(failure, ConnectorError):
            raise failure
        if failure is not None:
            raise self._link.error(f"cannot stage rows: {failure}") from failure
        epoch.rows += len(rows)
        epoch.chunks += 1
        epoch.kept_bytes += len(chunk)
        if epoch.kept_bytes > _KEPT:
            epoch.kept = None
        if epoch.kept is not None:
            epoch.kept.append(chunk)

    def _refused(self, row: CopyRow, reason: Exception) -> Exception:
        (line,) = lines_of((row,))
        fields = dict(zip(self._staging.table.names, values_of_line(line), strict=True))
        return self._link.error(
            f"table {self._staging.table.name!r} cannot take row {shown(fields)}: {reason}"
        )

    async def _load(self, epoch: _Epoch, rows: Sequence[CopyRow], chunk: bytes) -> None:
        """Load a chunk in the transaction of the epoch, unless that was given up. Raises ``RowRejected``."""
        if not epoch.is_checked:
            return
        try:
            if epoch.session is None:
                await self._begin(epoch)
            if epoch.session is None:
                return
            method = self._staging.method
            if is_plain(chunk):
                await method.load_plain(epoch.session, cast(Sequence[PlainRow], rows))
            else:
                await method.load(epoch.session, chunk)
        except ConnectionLost:
            self._give_up(epoch)
        except Rejected as exc:
            self._give_up(epoch)
            if not (exc.is_conflict or exc.is_lock_timeout):
                raise

    async def _begin(self, epoch: _Epoch) -> None:
        if sum(one.session is not None for one in self._sealed.values()) >= _MOST_OPEN - 1:
            epoch.is_checked = False
            return
        while self._free and self._free[-1].is_closed:
            self._free.pop()
        session = self._free.pop() if self._free else await self._link.server.connect()
        epoch.session = session
        await self._staging.open_transaction(session, self._number, epoch.number)

    def _give_up(self, epoch: _Epoch) -> None:
        session, epoch.session, epoch.is_checked = epoch.session, None, False
        if session is not None:
            session.terminate()

    async def _end_transaction(self, epoch: _Epoch, prepared: PreparedEpoch) -> bool:
        """Commit the transaction of the epoch. Return False if it is lost, or conflicts with others."""
        session = epoch.session
        if session is None:
            return False
        try:
            await self._staging.method.finish(session)
            await self._staging.mark(session, prepared)
            await session.execute("COMMIT")
        except ConnectionLost:
            self._give_up(epoch)
            return False
        except Rejected as exc:
            self._give_up(epoch)
            if exc.is_conflict or exc.is_lock_timeout:
                return False
            raise
        epoch.session = None
        self._free.append(session)
        return True


async def _failure(operation: Awaitable[object]) -> Exception | None:
    """Await ``operation``, and return its error: a group of tasks would wrap it."""
    try:
        await operation
    except (RowRejected, Rejected, Fenced, ConnectorError) as exc:
        return exc
    return None


async def write_prepared(
    staging: Staging, session: ServerSession, prepared: PreparedEpoch, kept: Sequence[bytes] | None
) -> None:
    """Commit staged rows in a transaction of their own; idempotent. Raises as ``Staging.write``."""
    await staging.method.prepare(session)
    await staging.end_transaction_of(session, prepared)
    async with session.transaction():
        await staging.write(session, prepared, kept)


def commit_failed(staging: Staging, prepared: PreparedEpoch, cause: Exception) -> str:
    """Return the reason and the next step for rows of a complete checkpoint that the table rejects."""
    reason = (
        f"cannot commit checkpoint {prepared.checkpoint} to table {staging.table.name!r}: {cause}"
    )
    if isinstance(cause, (RowRejected, Rejected)):
        reason += (
            f". The rows were accepted before, or could not be checked. Change the table so that it accepts them: they "
            f"are in _aflow_staged, owner {prepared.owner!r}"
        )
    return reason
