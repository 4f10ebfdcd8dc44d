"""The position of a reader of changes."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from aflow.connect import Position, SourceError
from aflow.errors import shown


@dataclass(frozen=True, slots=True)
class TablesRead:
    """The progress of a snapshot: the tables before ``table`` were read, and its rows up to key ``last``."""

    table: str
    last: tuple[str, ...] | None
    """None: no row of ``table`` was read."""
    moved: tuple[tuple[str, ...], ...] = ()
    """Keys up to ``last`` of rows that were not read: changes have moved them there, without all of their values."""


@dataclass(frozen=True, slots=True)
class ChangePosition:
    """The point after the first ``number`` changes of the transaction that was committed at ``lsn``.

    All transactions that were committed before ``lsn`` are before it. While a snapshot is being read, this applies to
    the rows of ``snapshot``, and no other row has been returned: rows that were read are up to date as of ``lsn``.
    """

    system: str
    """The identifier of the server: an LSN has no meaning for another one."""
    lsn: int
    number: int = 0
    snapshot: TablesRead | None = None
    """None once all tables were read."""
    end: int | None = None
    """The LSN at which the split ends; None: it does not end."""

    def encoded(self) -> Position:
        read = self.snapshot
        return (
            self.system,
            self.lsn,
            self.number,
            None if read is None else (read.table, read.last, read.moved),
            self.end,
        )


_Key = tuple[str, ...]
_Encoded = tuple[str, int, int, tuple[str, _Key | None, tuple[_Key, ...]] | None, int | None]


def decoded(position: Position, place: str) -> ChangePosition:
    """Return the position that was encoded. Raises ``SourceError`` for that of another source."""
    try:
        system, lsn, number, read, end = msgspec.convert(position, _Encoded)
    except msgspec.ValidationError as exc:
        raise SourceError(
            f"{place} cannot continue at {shown(position)}: the checkpoint is of another kind of source"
        ) from exc
    return ChangePosition(system, lsn, number, None if read is None else TablesRead(*read), end)
