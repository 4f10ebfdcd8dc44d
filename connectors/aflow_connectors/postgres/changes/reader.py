"""``ChangesReader``: a snapshot of tables, then the changes of their slot, without a gap and without a duplicate.

**Snapshot.** A temporary slot gives a transaction that sees exactly what was committed before an LSN, C. Rows are read
in it, in the order of their keys, one in each chunk. Then the stream continues with the transactions that were
committed at C or after it.

**Invariant.** At each position, the rows that were read, with the changes of them that were returned, are the rows of
the tables as of the position's LSN. All other rows have not been returned, nor their changes.

**Crash during the snapshot.** The snapshot is lost, and with it the rows as of C. A new one, of C', is opened. First
the stream is read up to C', but only changes of rows that were read (``were_read``) are returned: then the rows that
were read are up to date as of C', where the others are read. An update that moves a row across the last key becomes a
delete or an insert. Such an insert lacks the large values that the update has not changed and not sent: the row is left
to the snapshot of C', by its key (``moved``). So a snapshot that is interrupted any number of times returns each row
once. The same happens when the connection of the snapshot is lost.

**One row in each chunk**, since a checkpoint within a chunk would count records that are not the same ones after a
restart: other rows are read then. The engine joins the chunks to batches.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Generic, TypeVar, cast

from aflow.connect import BadRecord, Chunk, Position, Reader, SourceError
from aflow.errors import InternalError
from aflow_connectors.postgres.changes.change import Change, ChangeKind
from aflow_connectors.postgres.changes.link import SlotLink
from aflow_connectors.postgres.changes.messages import (
    Keepalive,
    begin_lsn,
    is_commit,
    message_of,
    row_of,
)
from aflow_connectors.postgres.changes.position import ChangePosition, TablesRead, decoded
from aflow_connectors.postgres.changes.row_decoder import RowDecoder
from aflow_connectors.postgres.changes.slot import PublishedTable
from aflow_connectors.postgres.changes.snapshot import TablesSnapshot, open_snapshot
from aflow_connectors.postgres.changes.stream import ChangeStream
from aflow_connectors.postgres.changes.table_changes import TableChanges, epoch_millis
from aflow_connectors.postgres.changes.transactions import TableChange, TransactionCursor
from aflow_connectors.postgres.client import Rejected
from aflow_connectors.reconnect import Retries

T = TypeVar("T")

#: Longest time (s) for which a new position without changes waits for the next change.
_POSITION_DELAY: Final = 1.0
#: Longest time (s) after a connect in which the split does not become idle.
_CONNECT_GRACE: Final = 2.0
#: Messages that are skipped without a pause for other tasks.
_MOST_AT_ONCE: Final = 2048


@dataclass(frozen=True, slots=True)
class ReaderSettings:
    """The settings of the readers of a source."""

    snapshot: bool
    ends_now: bool
    page: int
    """Rows."""
    idle_after: float | None
    """Seconds."""


class ChangesReader(Reader[Change[T]], Generic[T]):
    """See the theory at the top of the module. ``open`` comes before the first ``read``."""

    def __init__(
        self,
        link: SlotLink,
        tables: TableChanges[T],
        retries: Retries,
        position: Position | None,
        settings: ReaderSettings,
    ) -> None:
        self._link = link
        self._tables = tables
        self._retries = retries
        self._settings = settings
        self._start = None if position is None else decoded(position, link.names.place)
        self._cursor = TransactionCursor(0, 0)
        #: The progress of the snapshot; None once all tables were read.
        self._read: TablesRead | None = None
        self._end: int | None = None
        self._snapshot: TablesSnapshot | None = None
        #: Rows of the snapshot that were fetched and not returned, and their decoder.
        self._rows: deque[tuple[bytes | None, ...]] = deque()
        self._decoder: RowDecoder | None = None
        #: Changes that were received and not returned. The cursor is after them.
        self._ready: deque[TableChange] = deque()
        #: Records of changes before those in ``_ready``. Empty while the snapshot is read, and after each ``read``.
        self._decoded: list[Change[T] | BadRecord] = []
        self._stream: ChangeStream | None = None
        #: The position of the last chunk.
        self._returned: ChangePosition | None = None
        self._returned_at = 0.0
        #: True if the next chunk says that the split is idle.
        self._is_idle = False
        #: Loop time of the last change; None once the split is idle.
        self._changed_at: float | None = None
        #: Loop time of the last connect: changes of the time without a connection are then on their way.
        self._connected_at = 0.0

    async def open(self) -> None:
        """Connect, and find the start. Raises ``SourceError``."""
        await self._retries.run(self._open)
        self._changed_at = asyncio.get_running_loop().time()

    async def read(self, limit: int) -> Chunk[Change[T]] | None:
        if self._returned is None:
            # It only stores the start, so that a restart does not begin a new snapshot.
            return self._chunk([])
        if self._rows:
            return self._next_row()
        try:
            return await self._retries.run(lambda: self._next(limit))
        except Rejected as exc:
            raise SourceError(f"{self._link.names.place}: {self._link.explained(exc)}") from exc

    async def on_checkpoint_completed(self, position: Position) -> None:
        self._link.confirm(decoded(position, self._link.names.place).lsn)

    async def close(self) -> None:
        await self._close_snapshot()
        await self._link.close()

    async def _open(self) -> None:
        start = self._start
        confirmed = await self._link.open(start, snapshot=self._settings.snapshot)
        self._tables.set_tables(self._link.tables, self._link.facts)
        if start is None:
            self._cursor = TransactionCursor(confirmed, 0)
            if self._settings.snapshot:
                self._read = TablesRead(self._link.tables[0].given, None)
        else:
            self._cursor = TransactionCursor(start.lsn, start.number)
            self._read, self._end = start.snapshot, start.end
        if self._read is not None:
            self._check_keys()
            self._table(self._read)
        if not self._settings.ends_now:
            self._end = None
        elif self._end is None:
            self._end = self._link.facts.flushed
        await self._opened_stream()

    def _check_keys(self) -> None:
        for table in self._link.tables:
            if not table.key:
                raise SourceError(
                    f"{self._link.names.place}: table {table.given!r} has no primary key, and a snapshot needs one: "
                    f"add it, or choose an index (ALTER TABLE … REPLICA IDENTITY USING INDEX …), or use snapshot=False"
                )

    def _table(self, read: TablesRead) -> tuple[int, PublishedTable]:
        """Return the table that is being read, and its number. Raises ``SourceError`` if it is none of the source."""
        tables = self._link.tables
        for number, table in enumerate(tables):
            if table.given == read.table and len(table.key) == len(read.last or table.key):
                return number, table
        raise SourceError(
            f"{self._link.names.place}: the checkpoint is in the middle of a snapshot of table {read.table!r}, which "
            f"is not one of {[one.given for one in tables]}, or has another key now: start the job fresh"
        )

    async def _next(self, limit: int) -> Chunk[Change[T]] | None:
        """Return the next chunk. Raises ``ConnectionLost`` and ``Rejected``."""
        if self._read is not None:
            snapshot = await self._opened_snapshot()
            if not self._is_at(snapshot):
                return await self._catch_up(snapshot, limit)
            return await self._fetch_rows(snapshot)
        if not await self._received(limit, self._end):
            return None
        records, self._decoded = self._decoded, []
        if not records:
            records = [self._tables.change(one, one.kind) for one in self._pop_ready(limit)]
        return self._records(records)

    # The snapshot.

    async def _opened_snapshot(self) -> TablesSnapshot:
        if self._snapshot is not None and self._snapshot.is_usable:
            return self._snapshot
        await self._close_snapshot()
        self._snapshot = await open_snapshot(self._link.server, self._link.names)
        return self._snapshot

    async def _close_snapshot(self) -> None:
        snapshot, self._snapshot = self._snapshot, None
        if snapshot is not None:
            await snapshot.close()

    def _is_at(self, snapshot: TablesSnapshot) -> bool:
        """Return True if rows may be read in ``snapshot``."""
        if self._is_before_rows():
            # No row was read: no change is of interest.
            self._cursor.advance(snapshot.lsn)
        return not self._ready and self._cursor.is_at(snapshot.lsn)

    def _is_before_rows(self) -> bool:
        read = self._read
        return read is not None and read.last is None and self._table(read)[0] == 0

    async def _catch_up(self, snapshot: TablesSnapshot, limit: int) -> Chunk[Change[T]]:
        """Return changes of rows that were read, which were committed before the snapshot."""
        read = self._read
        assert read is not None
        if not await self._received(limit, snapshot.lsn):
            self._cursor.advance(snapshot.lsn)
            return self._chunk([])
        received = self._pop_ready(limit)
        number, current = self._table(read)
        numbers = {table.given: n for n, table in enumerate(self._link.tables)}
        #: Old and new keys of changed rows of the table that is being read.
        keys: list[tuple[str, ...]] = []
        for one in received:
            if self._tables.table_of(one) is current:
                keys += [
                    self._tables.key(one, row) for row in (one.old, one.new) if row is not None
                ]
        try:
            flags = await snapshot.were_read(read, current, keys)
        except BaseException:
            self._ready.extendleft(reversed(received))
            raise
        were_read = dict(zip(keys, flags, strict=True))
        changes: list[tuple[TableChange, ChangeKind]] = []
        moved = dict.fromkeys(read.moved)
        for one in received:
            table = self._tables.table_of(one)
            assert table is not None
            if table is not current:
                kind = one.kind if numbers[table.given] < number else None
            elif one.kind == "truncate":
                moved.clear()
                kind = one.kind
            else:
                kind = self._kind_of_rows_read(one, were_read, moved)
            if kind is not None:
                changes.append((one, kind))
        self._read = replace(read, moved=tuple(moved))
        return self._chunk(changes)

    def _kind_of_rows_read(
        self,
        change: TableChange,
        were_read: dict[tuple[str, ...], bool],
        moved: dict[tuple[str, ...], None],
    ) -> ChangeKind | None:
        """Return the kind that a change has for the rows that were read; None if it is none for them.

        ``moved`` are the keys of rows that are left to the snapshot. The change is applied to them.
        """
        new = None if change.new is None else self._tables.key(change, change.new)
        old = None if change.old is None else self._tables.key(change, change.old)
        if change.kind == "update" and old is None:
            old = new
        was_moved = False
        if old is not None and old in moved:
            was_moved = True
            del moved[old]
        before = old is not None and were_read[old] and not was_moved
        after = new is not None and were_read[new]
        if new is not None and after and not before and (was_moved or change.lacks_values):
            moved[new] = None
            return None
        if before:
            return "update" if after else "delete"
        return "insert" if after else None

    async def _fetch_rows(self, snapshot: TablesSnapshot) -> Chunk[Change[T]]:
        """Fetch the next rows, and return the first one; none at the end of a table."""
        read = self._read
        assert read is not None
        number, table = self._table(read)
        if read.moved:
            moved = await snapshot.rows(table, read.moved)
            if len(moved.rows) != len(read.moved):
                raise InternalError(
                    f"{len(moved.rows)} rows of the snapshot have the keys {read.moved}"
                )
            self._decoder = self._tables.row_decoder(table, moved.types)
            self._rows.extend(moved.rows)
            return self._next_row()
        page = await snapshot.page(table, read.last, self._settings.page)
        if page.rows:
            self._decoder = self._tables.row_decoder(table, page.types)
            self._rows.extend(page.rows)
            return self._next_row()
        tables = self._link.tables
        self._read = None
        if number + 1 < len(tables):
            self._read = TablesRead(tables[number + 1].given, None)
        else:
            await self._close_snapshot()
        return self._chunk([])

    def _next_row(self) -> Chunk[Change[T]]:
        # Hot path of the snapshot.
        read, snapshot, decoder = self._read, self._snapshot, self._decoder
        assert read is not None
        assert snapshot is not None
        assert decoder is not None
        _, table = self._table(read)
        row = self._rows.popleft()
        change = self._tables.row(table, decoder, row, snapshot.lsn, snapshot.time)
        key = decoder.key(row)
        if key in read.moved:
            self._read = replace(read, moved=tuple(one for one in read.moved if one != key))
        else:
            self._read = TablesRead(table.given, key)
        return self._records([change])

    # The stream.

    async def _opened_stream(self) -> ChangeStream:
        stream = await self._link.stream(self._position())
        if stream is not self._stream:
            self._stream = stream
            self._retries.connected()  # `_changes` may then wait for hours
            self._cursor.restart()
            self._connected_at = asyncio.get_running_loop().time()
        return stream

    async def _received(self, limit: int, bound: int | None) -> bool:
        """Wait for the next changes, or for a new position alone. Return False at ``bound``, a position in the log."""
        now = asyncio.get_running_loop().time
        while True:
            stream = await self._opened_stream()
            at_bound = self._receive(stream, limit, bound)
            if self._ready or self._decoded:
                self._changed_at = now()
                return True
            if at_bound:
                return False
            if self._news_due(stream, now()):
                return True
            if stream.peek() is not None:
                await asyncio.sleep(0)
                continue
            await stream.wait(_POSITION_DELAY)

    def _pop_ready(self, limit: int) -> list[TableChange]:
        """Remove and return the first ``limit`` ready changes."""
        ready = self._ready
        if len(ready) > limit:
            return [ready.popleft() for _ in range(limit)]
        taken = list(ready)
        ready.clear()
        return taken

    def _receive(self, stream: ChangeStream, limit: int, bound: int | None) -> bool:
        """Handle messages until ``limit`` changes are ready. Return True if all before ``bound`` were handled."""
        cursor = self._cursor
        handled = 0
        while handled < _MOST_AT_ONCE:
            if cursor.in_transaction and (rows := self._receive_rows(stream, limit)):
                handled += rows
                continue
            handled += 1
            received = stream.peek()
            message = None if isinstance(received, Keepalive) else received
            # The end of a transaction is part of the position after its last change.
            if not self._room(limit) and (message is None or not is_commit(message)):
                return False
            if bound is not None and cursor.is_at(bound):
                return True
            if received is None:
                return False
            if isinstance(received, Keepalive):
                if not cursor.in_transaction:
                    cursor.advance(received.end)
            elif bound is not None and (begin_lsn(received) or 0) >= bound:
                cursor.advance(bound)
                return True
            elif (decoded := message_of(received)) is not None:
                self._ready += self._tables.of_source(cursor.handle(decoded))
            stream.take()
        return False

    def _receive_rows(self, stream: ChangeStream, limit: int) -> int:
        """Handle the messages with changed rows that are next, and return their number; 0 at ``limit``.

        They need no comparison with a bound: that is between two transactions.
        """
        # Hot path of the stream.
        rows = stream.take_rows(min(self._room(limit), _MOST_AT_ONCE))
        if rows and self._read is None:
            self._decoded += self._tables.rows(self._cursor.pass_rows(rows), self._cursor)
        elif rows:
            self._ready += self._tables.of_source(self._cursor.rows(map(row_of, rows)))
        return len(rows)

    def _room(self, limit: int) -> int:
        """Return how many further rows may be received for the next chunk."""
        if self._read is None:
            return 0 if self._ready else limit - len(self._decoded)
        return max(0, limit - len(self._ready))

    def _news_due(self, stream: ChangeStream, now: float) -> bool:
        """Return True if a chunk without changes is due: for a new position, or since the split becomes idle."""
        # Messages that were received, and the rest of a transaction, may have changes.
        may_have_changes = stream.peek() is not None or self._cursor.in_transaction
        self._is_idle = not may_have_changes and self._is_silent(now)
        if self._is_idle:
            return True
        return now - self._returned_at >= _POSITION_DELAY and self._position() != self._returned

    def _is_silent(self, now: float) -> bool:
        """Return True once there was no change for ``idle_after``, and for a moment since the last connect.

        Connections that are lost more often than ``idle_after`` do not keep the split active.
        """
        after, since = self._settings.idle_after, self._changed_at
        if after is None or since is None or now - self._connected_at < min(after, _CONNECT_GRACE):
            return False
        return now - since >= after

    # Chunks.

    def _chunk(self, changes: Sequence[tuple[TableChange, ChangeKind]]) -> Chunk[Change[T]]:
        return self._records([self._tables.change(one, kind) for one, kind in changes])

    def _records(self, records: Sequence[Change[T] | BadRecord]) -> Chunk[Change[T]]:
        # Hot path of the source.
        rejected: list[BadRecord] = []
        values = cast(Sequence[Change[T]], records)
        if BadRecord in set(map(type, records)):
            rejected = [one for one in records if isinstance(one, BadRecord)]
            values = [one for one in records if not isinstance(one, BadRecord)]
        now = asyncio.get_running_loop().time()
        idle, self._is_idle = self._is_idle and not records, False
        if idle:
            self._changed_at = None
        self._returned, self._returned_at = self._position(), now
        return Chunk(
            values,
            self._returned.encoded(),
            epoch_millis(values),
            rejected,
            idle=idle,
        )

    def _position(self) -> ChangePosition:
        """Return the position after the changes that were taken from ``_ready``."""
        lsn, number = self._cursor.lsn, self._cursor.number
        if self._ready:
            first = self._ready[0]
            lsn, number = first.transaction.lsn, first.number - 1
        return ChangePosition(self._link.facts.system, lsn, number, self._read, self._end)
