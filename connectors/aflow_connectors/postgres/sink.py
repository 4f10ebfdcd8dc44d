"""``PostgresSink`` and ``PostgresUpsert``: tables of a PostgreSQL database."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Final, Generic, TypeVar, cast

from aflow.connect import Committable, Delivery, Sink, SinkError, Writer, WriterContext
from aflow.errors import FlowDefinitionError, shown
from aflow_connectors.commit_errors import check_one_owner
from aflow_connectors.owners import new_owner
from aflow_connectors.postgres.client import TIMEOUT, Rejected, Server, ServerLink, ServerSession
from aflow_connectors.postgres.staged_rows import (
    Fenced,
    PreparedEpoch,
    Staging,
    TableIsAhead,
    WrongCount,
)
from aflow_connectors.postgres.table import (
    Append,
    Upsert,
    WriteMethod,
    advice,
    look_up,
)
from aflow_connectors.postgres.writers import BatchWriter, EpochWriter, commit_failed
from aflow_connectors.reconnect import Reconnect
from aflow_connectors.rows import (
    RowMapper,
    RowOf,
    RowRejected,
    checked_columns,
    checked_key,
    checked_row,
    checked_table,
)

T = TypeVar("T")
R = TypeVar("R")

_RECONNECT: Final = Reconnect()


class _TableSink(Sink[T], Generic[T]):
    def __init__(
        self,
        dsn: str,
        table: str,
        *,
        columns: Sequence[str] | None,
        row: RowOf[T] | None,
        reconnect: Reconnect,
        timeout: timedelta,
        client: Mapping[str, object] | None,
    ) -> None:
        owner = type(self).__name__
        self.server = Server(owner, dsn, {} if client is None else client, reconnect, timeout)
        self.table = checked_table(owner, table)
        self.columns = checked_columns(owner, columns)
        checked_row(owner, row)
        self.row = row
        #: Columns of the key; None: rows are appended.
        self.key: tuple[str, ...] | None = None
        #: Owner and run of the staged rows, by the name of the sink in its flow.
        self._runs: dict[str, tuple[str, str]] = {}

    async def writer(self, context: WriterContext) -> Writer[T]:
        link = self._link(context.name)
        try:
            method = await self._looked_up(link)
            if context.checkpoints and self.delivery is Delivery.TRANSACTIONAL:
                staging = await self._staging(link, context.name, method)
                rows = self._mapper(link, method.table.names, method.table.copied())
                writer = EpochWriter(link, rows, staging, context.subtask)
                await writer.open()
                return writer
            if isinstance(method, Append):
                rows = self._mapper(link, method.table.names, method.table.copied())
                return BatchWriter(link, rows, method.write, self.table)
            texts = self._mapper(link, method.table.names, method.table.texts)
            return BatchWriter(link, texts, method.write, self.table)
        except BaseException:
            await link.close()
            raise

    async def recover(self, name: str, committables: Sequence[Committable]) -> None:
        """Recover as ``Sink.recover``. Raises ``RestoreError``, and ``SinkError`` if the table is ahead of the
        checkpoint.
        """
        if not (self.delivery is Delivery.TRANSACTIONAL or committables):
            return  # output that an earlier run has prepared is written in any case
        prepared = [PreparedEpoch.of(one, sink=name) for one in committables]
        owners = {one.owner for one in prepared}
        check_one_owner(name, owners, output="rows")
        link = self._link(name)
        try:
            owner = owners.pop() if owners else new_owner()
            await self._begin_run(link, name, await self._looked_up(link), owner, prepared)
        finally:
            await link.close()

    async def _staging(self, link: ServerLink, name: str, method: WriteMethod) -> Staging:
        if name not in self._runs:
            await self._begin_run(link, name, method, new_owner(), [])
        owner, run = self._runs[name]
        return Staging(name, method.table, method, owner, run)

    async def _begin_run(
        self,
        link: ServerLink,
        name: str,
        method: WriteMethod,
        owner: str,
        prepared: Sequence[PreparedEpoch],
    ) -> None:
        staging = Staging(name, method.table, method, owner, new_owner())

        async def begin(session: ServerSession) -> None:
            await staging.create(session)
            await staging.begin(session, prepared)

        try:
            await link.attempt(begin)
        except (RowRejected, Rejected, Fenced, WrongCount) as exc:
            reason = commit_failed(staging, prepared[-1], exc) if prepared else str(exc)
            raise link.error(reason) from exc
        except TableIsAhead as exc:
            raise link.error(str(exc)) from exc
        self._runs[name] = owner, staging.run

    def _link(self, name: str) -> ServerLink:
        return ServerLink(self.server, f"sink {name!r}", SinkError)

    async def _looked_up(self, link: ServerLink) -> WriteMethod:
        """Return the way to write into the table. Raises ``SinkError`` if it is not possible."""
        table = await look_up(link, self.table, self.columns, written=True)
        if self.key is None:
            return Append(table)
        missing = [one for one in self.key if one not in table.names]
        if missing:
            raise link.error(f"table {self.table!r} has no column {missing[0]!r}, named in key=")
        method = Upsert(table, self.key)
        try:
            await link.attempt(method.check)
        except Rejected as exc:
            raise link.error(f"cannot write into table {self.table!r}: {exc}{advice(exc)}") from exc
        return method

    def _mapper(
        self,
        link: ServerLink,
        columns: Sequence[str],
        convert: Callable[[Sequence[Sequence[object]]], list[R]],
    ) -> RowMapper[T, R]:
        def refused(record: object, reason: object) -> SinkError:
            text = f"table {self.table!r} cannot take record {shown(record)}: {reason}"
            return cast(SinkError, link.error(text))

        return RowMapper(columns, self.row, convert, refused, exact=self.columns is None)


class PostgresSink(_TableSink[T]):
    """Append each record as a row to ``table``, which must exist: a name, or ``schema.name``.

    ``dsn`` is a URL as of libpq. Records are dicts, dataclasses, ``msgspec.Struct`` or NamedTuples; their fields are
    written to the columns of the same names: all columns of the table (then a record may have no other fields), or
    those in ``columns``. ``row`` maps a record of another type, or with other field names, to a row: a mapping, or a
    tuple of values in the order of the columns.

    With checkpoints each record is in the table exactly once and becomes visible when its checkpoint is complete, in
    one transaction with the number of the checkpoint. Until then it is in the table ``_aflow_staged`` of the same
    schema, too. Without checkpoints each batch is a transaction, and a repeated run writes its rows again.

    ``timeout`` bounds a statement; a longer one counts as a lost connection. ``client`` has arguments for
    ``asyncpg.connect``, such as ``ssl``. Raises ``SinkError`` with sink, table and reason and, for an invalid record,
    the record.
    """

    delivery = Delivery.TRANSACTIONAL

    def __init__(
        self,
        dsn: str,
        table: str,
        *,
        columns: Sequence[str] | None = None,
        row: RowOf[T] | None = None,
        reconnect: Reconnect = _RECONNECT,
        timeout: timedelta = TIMEOUT,
        client: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(
            dsn,
            table,
            columns=columns,
            row=row,
            reconnect=reconnect,
            timeout=timeout,
            client=client,
        )


class PostgresUpsert(_TableSink[T]):
    """Write each record into the row of ``table`` with the same ``key``, or into a new one.

    The ``key`` columns must be the primary key of the table, or have a unique index together. All other written columns
    are replaced. Other arguments, and records, are as for ``PostgresSink``.

    Each batch is a transaction, and visible at once. Rows that are written again after a restart replace themselves, so
    the final content is right if the same records give the same rows. Until a restarted job has caught up, readers may
    see an earlier version of a row. With ``exactly_once``, rows become visible when their checkpoint is complete, and
    readers never see an earlier version again.
    """

    delivery = Delivery.IDEMPOTENT

    def __init__(
        self,
        dsn: str,
        table: str,
        *,
        key: str | Sequence[str],
        columns: Sequence[str] | None = None,
        row: RowOf[T] | None = None,
        exactly_once: bool = False,
        reconnect: Reconnect = _RECONNECT,
        timeout: timedelta = TIMEOUT,
        client: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(
            dsn,
            table,
            columns=columns,
            row=row,
            reconnect=reconnect,
            timeout=timeout,
            client=client,
        )
        self.key = checked_key("PostgresUpsert", key, self.columns)
        if not isinstance(exactly_once, bool):
            raise FlowDefinitionError(
                f"PostgresUpsert: exactly_once= must be a bool, not {shown(exactly_once)}"
            )
        if exactly_once:
            self.delivery = Delivery.TRANSACTIONAL
