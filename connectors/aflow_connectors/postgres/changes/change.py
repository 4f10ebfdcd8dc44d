"""``Change``: a change of a row, as the source of changes returns it."""

from __future__ import annotations

from datetime import datetime
from typing import Generic, Literal, TypeAlias, TypeVar

import msgspec

T_co = TypeVar("T_co", covariant=True)

ChangeKind: TypeAlias = Literal["insert", "update", "delete", "truncate"]


class Change(msgspec.Struct, Generic[T_co], frozen=True):
    # A struct, since one is made for each row: a frozen dataclass takes ten times as long.
    """An inserted, updated or deleted row of a table, or a truncated table.

    A row of the snapshot is an insert without ``transaction``.
    """

    kind: ChangeKind
    table: str
    """The table, as it is named in the source."""
    key: tuple[str, ...]
    """The key of the row before the change (of an insert: after it), as PostgreSQL writes it as text.

    It consists of the columns of the replica identity, or of the primary key if the replica identity is full. It is
    empty for tables without, and for a truncated table."""
    before: T_co | None
    """The row before the change; only for updates and deletes of tables with REPLICA IDENTITY FULL."""
    after: T_co | None
    """The row after the change; None for deletes and truncated tables."""
    time: datetime
    """The time of the commit, in UTC; for rows of the snapshot the begin of the snapshot."""
    lsn: int
    """The position of the commit in the write-ahead log of the server. It grows from transaction to transaction."""
    transaction: int | None
    """The id of the transaction; None for rows of the snapshot."""
    unchanged: tuple[str, ...] = ()
    """Columns without value in ``after``: large values that an update has not changed are not sent, unless the table
    has REPLICA IDENTITY FULL. ``after`` has the defaults of its class for them."""
