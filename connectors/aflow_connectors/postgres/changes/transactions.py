"""``TransactionCursor``: a machine from the messages of a stream to changes, with the position after each.

States: between two transactions, or in one, which is returned, partly returned, or skipped.

- The server sends transactions in the order of their commits, from the LSN that it was asked for, or from the one that
  the slot has confirmed. So a stream may begin with transactions that the position has passed. They are skipped.
- The transaction of the position is sent whole. Its first changes are skipped, by their number. The number counts all
  rows and truncated tables of a transaction, those of other tables of the publication, too: then it does not depend on
  the arguments of the source. A message that truncates several tables counts each.
- After a Commit, the position is its end, and number 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from aflow.errors import InternalError
from aflow_connectors.postgres.changes.change import ChangeKind
from aflow_connectors.postgres.changes.messages import (
    UNCHANGED,
    Begin,
    Commit,
    Message,
    Relation,
    RowChanged,
    Truncate,
    TupleData,
)


# A struct for the reason of ``RowChanged``.
class TableChange(msgspec.Struct, frozen=True):
    """A change of one table. ``number`` is that in its transaction, from 1."""

    kind: ChangeKind
    relation: Relation
    old: TupleData | None
    old_is_full: bool
    new: TupleData | None
    transaction: Begin
    number: int

    @property
    def lacks_values(self) -> bool:
        """True if large values of the row were not sent, since an update has not changed them."""
        return self.new is not None and UNCHANGED in self.new and not self.old_is_full


class TransactionCursor:
    """See the theory at the top of the module. The position is ``lsn`` and ``number``."""

    def __init__(self, lsn: int, number: int) -> None:
        self.lsn = lsn
        self.number = number
        self._relations: dict[int, Relation] = {}
        self._transaction: Begin | None = None
        #: Changes of the transaction up to here are skipped; None: all.
        self._skip: int | None = 0
        #: Changes of the transaction that were received.
        self._count = 0

    @property
    def in_transaction(self) -> bool:
        return self._transaction is not None

    def is_at(self, lsn: int) -> bool:
        """Return True if all transactions that were committed before ``lsn`` were handled."""
        return self._transaction is None and self.lsn >= lsn

    def restart(self) -> None:
        """Continue with a new stream, which begins at ``lsn`` or before it."""
        # The server sends all definitions again before their first use.
        self._transaction = None

    def advance(self, lsn: int) -> None:
        """Pass all transactions that were committed before ``lsn``, if that is after the position.

        Only between two transactions.
        """
        if self._transaction is not None:
            raise InternalError("a position advances in the middle of a transaction")
        if lsn > self.lsn:
            self.lsn, self.number = lsn, 0

    def handle(self, message: Message) -> Sequence[TableChange]:
        """Return the changes of ``message`` that are after the position, which then is after them."""
        if isinstance(message, RowChanged):
            return self.rows((message,))
        if isinstance(message, Begin):
            self._begin(message)
        elif isinstance(message, Commit):
            self._transaction = None
            self.advance(message.end)
        elif isinstance(message, Relation):
            # The same object for the same definition, which the server repeats from time to time.
            if self._relations.get(message.oid) != message:
                self._relations[message.oid] = message
        else:
            return self._truncated(message)
        return ()

    def rows(self, rows: Iterable[RowChanged]) -> list[TableChange]:
        """Return the changes of ``rows``, in one transaction, that are after the position, as ``handle`` does."""
        # Hot path of the source.
        transaction, relations = self._transaction, self._relations
        skip, count = self._skip, self._count
        found: list[TableChange] = []
        for row in rows:
            count += 1
            if skip is None or count <= skip or transaction is None:
                continue
            found.append(
                TableChange(
                    row.kind,
                    relations[row.relation],
                    row.old,
                    row.old_is_full,
                    row.new,
                    transaction,
                    count,
                )
            )
        self._count = count
        if found:
            self.number = count
        return found

    def pass_rows(self, messages: Sequence[bytes]) -> Sequence[bytes]:
        """Return those of ``messages`` with changed rows, in one transaction, that are after the position.

        The position then is after them: ``number`` is that of the last one.
        """
        before = self._count
        self._count = before + len(messages)
        if self._skip is None or self._transaction is None:
            return ()
        found = messages[max(0, self._skip - before) :]
        if found:
            self.number = self._count
        return found

    @property
    def transaction(self) -> Begin:
        """The transaction that was begun. Raises ``InternalError`` between two transactions."""
        if self._transaction is None:
            raise InternalError("a changed row is in no transaction")
        return self._transaction

    def relation(self, oid: int) -> Relation:
        """Return the definition of a table as of the last message."""
        return self._relations[oid]

    def _begin(self, begin: Begin) -> None:
        self._transaction, self._count = begin, 0
        if begin.lsn > self.lsn:
            self.lsn, self.number = begin.lsn, 0
        self._skip = self.number if begin.lsn == self.lsn else None

    def _next(self) -> Begin | None:
        """Count a change. Return its transaction, None if it is skipped."""
        self._count += 1
        if self._skip is None or self._count <= self._skip:
            return None
        self.number = self._count
        return self._transaction

    def _truncated(self, message: Truncate) -> Sequence[TableChange]:
        found: list[TableChange] = []
        for oid in message.relations:
            transaction = self._next()
            if transaction is not None:
                relation = self._relations[oid]
                found.append(
                    TableChange("truncate", relation, None, False, None, transaction, self._count)
                )
        return found
