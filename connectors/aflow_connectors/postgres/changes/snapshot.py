"""Reading of tables as they were at one LSN, page by page in the order of their keys."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from aflow_connectors.postgres.changes.messages import datetime_of
from aflow_connectors.postgres.changes.position import TablesRead
from aflow_connectors.postgres.changes.session import (
    QueryRows,
    ReplicationServer,
    ReplicationSession,
)
from aflow_connectors.postgres.changes.slot import (
    Names,
    PublishedTable,
    begin_snapshot,
    typed,
    up_to,
)
from aflow_connectors.postgres.table import quoted


class TablesSnapshot:
    """A transaction that sees what was committed before ``lsn``, and nothing else."""

    def __init__(self, session: ReplicationSession, lsn: int, micros: int) -> None:
        self._session = session
        self.lsn = lsn
        #: The begin of the transaction, on the server's clock.
        self.time = datetime_of(micros)

    @property
    def is_usable(self) -> bool:
        return self._session.is_usable

    async def page(
        self, table: PublishedTable, last: tuple[str, ...] | None, count: int
    ) -> QueryRows:
        """Return at most ``count`` rows after key ``last``. Raises ``Rejected`` or ``ConnectionLost``."""
        key = _columns(table, table.key)
        conditions = [f"({table.condition})"] if table.condition else []
        if last is not None:
            conditions.append(f"ROW({key}) > {_key(table, last)}")
        where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
        return await self._session.query(
            f"SELECT {_columns(table, table.columns)} FROM {table.full_name}{where} ORDER BY {key} LIMIT {count}"
        )

    async def rows(self, table: PublishedTable, keys: Sequence[tuple[str, ...]]) -> QueryRows:
        """Return the rows with ``keys``. Raises ``Rejected`` or ``ConnectionLost``."""
        listed = ", ".join(_key(table, key) for key in keys)
        return await self._session.query(
            f"SELECT {_columns(table, table.columns)} FROM {table.full_name} "
            f"WHERE ROW({_columns(table, table.key)}) IN ({listed})"
        )

    async def were_read(
        self, read: TablesRead, table: PublishedTable, keys: list[tuple[str, ...]]
    ) -> list[bool]:
        """Return for each of ``keys`` of the table that is being read whether its row is among those that were read."""
        if read.last is None or not keys:
            return [False] * len(keys)
        return await up_to(self._session, table, read.last, keys)

    async def close(self) -> None:
        await self._session.close()


def _columns(table: PublishedTable, names: Sequence[str]) -> str:
    # Qualified: ORDER BY would find names of the result first.
    return ", ".join(f"{table.full_name}.{quoted(one)}" for one in names)


def _key(table: PublishedTable, key: tuple[str, ...]) -> str:
    return f"ROW({', '.join(map(typed, key, table.key_types))})"


async def open_snapshot(server: ReplicationServer, names: Names) -> TablesSnapshot:
    """Begin a snapshot, once all transactions that are open now have ended."""
    session = await server.connect()
    try:
        return TablesSnapshot(session, *await begin_snapshot(session, names, secrets.token_hex(4)))
    except BaseException:
        await session.close()
        raise
