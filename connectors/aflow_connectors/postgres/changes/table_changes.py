"""Changes of tables as records of the source, by the definitions that the stream has sent."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from itertools import groupby, repeat
from operator import attrgetter
from typing import Any, Final, Generic, TypeVar

from aflow.connect import BadRecord, SourceError
from aflow_connectors.bad_records import BadRecords
from aflow_connectors.postgres.changes.change import Change, ChangeKind
from aflow_connectors.postgres.changes.messages import (
    UNCHANGED,
    Begin,
    Relation,
    TupleData,
    columns_of,
    datetime_of,
    lsn_text,
    only_new_kind,
    relation_of,
    row_head,
    row_of,
)
from aflow_connectors.postgres.changes.row_decoder import (
    RecordType,
    RowDecoder,
    RowUnsuitable,
    raw_text,
)
from aflow_connectors.postgres.changes.slot import PublishedTable, ServerFacts
from aflow_connectors.postgres.changes.transactions import TableChange, TransactionCursor

T = TypeVar("T")

_logger = logging.getLogger("aflow.connectors")

_TIME: Final = attrgetter("time")


class TableChanges(Generic[T]):
    """Converts the changes of the tables of a source. ``types`` are the types of the records, by the given names."""

    def __init__(
        self,
        place: str,
        types: Mapping[str, RecordType],
        bad: BadRecords,
        *,
        require_before: bool = False,
    ) -> None:
        self._place = place
        self._require_before = require_before
        self._types = types
        self._bad = bad
        #: The tables, by their names and by their oids.
        self._named: dict[tuple[str, str], PublishedTable] = {}
        self._numbered: dict[int, PublishedTable] = {}
        #: The LSN after which the tables were looked up.
        self._looked_up = 0
        #: The type of each domain, by oids.
        self._domains: Mapping[int, int] = {}
        #: The definitions of the stream, by their ids as objects, with their tables and decoders.
        self._known: dict[int, tuple[Relation, PublishedTable | None, RowDecoder | None]] = {}
        #: The decoders of the last definitions, by the oids of tables.
        self._last: dict[int, RowDecoder] = {}
        #: The transaction of the last change, and the time of its commit, which its changes share.
        self._transaction: Begin | None = None
        self._time = datetime_of(0)

    def set_tables(self, tables: Sequence[PublishedTable], facts: ServerFacts) -> None:
        """Set the tables, which were looked up after ``facts``."""
        self._named = {(one.schema, one.name): one for one in tables}
        self._numbered = {one.oid: one for one in tables}
        self._looked_up = facts.flushed
        self._domains = facts.domains

    def table_of(self, change: TableChange) -> PublishedTable | None:
        """Return the table of a change; None if it is not one of the source.

        Raises ``SourceError`` if the table was renamed or moved since the source has looked it up.
        """
        return self._lookup(change.relation, change.transaction.lsn)[0]

    def rows(
        self, messages: Sequence[bytes], cursor: TransactionCursor
    ) -> Sequence[Change[T] | BadRecord]:
        """Return the changes of ``messages`` as records: the last ones that ``cursor`` has passed.

        Those of tables that are not of the source are left out. Raises ``SourceError`` as ``table_of`` and ``change``.
        """
        # Hot path of the source.
        found: list[Change[T] | BadRecord] = []
        number = cursor.number - len(messages) + 1
        for head, group in groupby(messages, row_head):
            run = list(group)
            relation = cursor.relation(relation_of(head))
            table, decoder = self._lookup(relation, cursor.transaction.lsn)
            if table is not None and decoder is not None:
                new = self._new_rows(head, run, table, decoder, cursor.transaction)
                found += self._each(run, number, cursor, relation) if new is None else new
            number += len(run)
        return found

    def _new_rows(
        self,
        head: bytes,
        run: Sequence[bytes],
        table: PublishedTable,
        decoder: RowDecoder,
        transaction: Begin,
    ) -> Iterable[Change[T]] | None:
        """Return the changes of messages of one table; None if each has to be decoded by itself."""
        kind = only_new_kind(head)
        if kind is None or (kind == "update" and self._require_before):
            return None
        decoded = decoder.run(columns_of(run))
        if decoded is None:
            return None
        keys, records = decoded
        return map(
            Change,
            repeat(kind),
            repeat(table.given),
            keys,
            repeat(None),
            records,
            repeat(self._commit_time(transaction)),
            repeat(transaction.lsn),
            repeat(transaction.xid),
        )

    def _each(
        self, run: Sequence[bytes], number: int, cursor: TransactionCursor, relation: Relation
    ) -> Iterable[Change[T] | BadRecord]:
        for count, message in enumerate(run, number):
            row = row_of(message)
            one = TableChange(
                row.kind, relation, row.old, row.old_is_full, row.new, cursor.transaction, count
            )
            yield self.change(one, one.kind)

    def of_source(self, changes: Sequence[TableChange]) -> list[TableChange]:
        """Return those of ``changes`` whose tables are of the source. Raises ``SourceError`` as ``table_of`` does."""
        # Hot path of the source. Most changes are of the table of the preceding one.
        found: list[TableChange] = []
        relation: Relation | None = None
        is_of_source = False
        for one in changes:
            if one.relation is not relation:
                relation, is_of_source = one.relation, self.table_of(one) is not None
            if is_of_source:
                found.append(one)
        return found

    def key(self, change: TableChange, row: TupleData) -> tuple[str, ...]:
        _, decoder = self._lookup(change.relation, change.transaction.lsn)
        assert decoder is not None  # of a table of the source
        return decoder.key(row)

    def change(self, change: TableChange, kind: ChangeKind) -> Change[T] | BadRecord:
        """Return a change of a table of the source as a record. Raises ``SourceError`` without dead letters."""
        table, decoder = self._lookup(change.relation, change.transaction.lsn)
        assert table is not None  # a table of the source
        assert decoder is not None
        transaction, old, new = change.transaction, change.old, change.new
        if new is not None and old is not None and change.old_is_full and UNCHANGED in new:
            new = [was if now is UNCHANGED else now for was, now in zip(old, new, strict=True)]
        if self._require_before and kind in ("update", "delete") and not change.old_is_full:
            # The replica identity was changed while the job ran, or that of a partition is another one.
            raise SourceError(
                f"{self._where(table)}, LSN {lsn_text(transaction.lsn)}: the {kind} was sent without the row before "
                f"it, as require_before=True demands; set REPLICA IDENTITY FULL of the table and of its partitions, "
                f"and start the job fresh, with another slot"
            )
        given = new if kind == "insert" or old is None else old
        before = after = None
        unchanged: tuple[str, ...] = ()
        try:
            if old is not None and change.old_is_full and kind != "insert":
                before = decoder.record(old)
            if new is not None and kind != "delete":
                after = decoder.record(new)
                if change.kind == "update":
                    unchanged = decoder.unchanged(new)
        except RowUnsuitable as exc:
            place = f"table {table.given}, LSN {lsn_text(transaction.lsn)}, change {change.number}"
            return self._bad.bad(place, str(exc), raw_text(given or ()))
        return Change(
            kind,
            table.given,
            () if given is None else decoder.key(given),
            before,
            after,
            self._commit_time(transaction),
            transaction.lsn,
            transaction.xid,
            unchanged,
        )

    def row_decoder(self, table: PublishedTable, types: Sequence[int]) -> RowDecoder:
        """Return the decoder of rows of a snapshot. Raises ``SourceError`` if the class does not fit."""
        columns = list(zip(table.columns, types, strict=True))
        return RowDecoder(self._types[table.given], columns, table.key, self._where(table))

    def row(
        self,
        table: PublishedTable,
        decoder: RowDecoder,
        row: Sequence[bytes | None],
        lsn: int,
        time: datetime,
    ) -> Change[T] | BadRecord:
        """Return a row of a snapshot as an insert. Raises ``SourceError`` without dead letters."""
        key = decoder.key(row)
        try:
            return Change("insert", table.given, key, None, decoder.record(row), time, lsn, None)
        except RowUnsuitable as exc:
            place = f"table {table.given}, key {', '.join(key)}"
            return self._bad.bad(place, str(exc), raw_text(row))

    def _where(self, table: PublishedTable) -> str:
        return f"{self._place}, table {table.given!r}"

    def _commit_time(self, transaction: Begin) -> datetime:
        if transaction is not self._transaction:
            self._transaction, self._time = transaction, datetime_of(transaction.time)
        return self._time

    def _lookup(
        self, relation: Relation, lsn: int
    ) -> tuple[PublishedTable | None, RowDecoder | None]:
        """Return the table of a definition in a transaction at ``lsn``, and its decoder. Raises ``SourceError``."""
        known = self._known.get(id(relation))
        if known is not None:
            return known[1:]
        table = self._table_of(relation, lsn)
        decoder = None if table is None else self._new_decoder(table, relation)
        if table is not None and decoder is not None:
            self._log_difference(table, self._last.get(relation.oid), decoder)
            self._last[relation.oid] = decoder
        self._known[id(relation)] = relation, table, decoder
        return table, decoder

    def _table_of(self, relation: Relation, lsn: int) -> PublishedTable | None:
        """Return the table of a definition in a transaction at ``lsn``. Raises ``SourceError``."""
        table = self._numbered.get(relation.oid)
        if table is None:
            return self._named.get((relation.schema, relation.name))
        if lsn >= self._looked_up and (relation.schema, relation.name) != (
            table.schema,
            table.name,
        ):
            # A publication follows a table to its new name.
            raise SourceError(
                f"{self._where(table)} was renamed or moved to {relation.schema}.{relation.name}: name it so in the "
                f"job, or rename it back, and continue from the checkpoint"
            )
        # The log has former names of the table for changes before it was renamed.
        return table

    def _new_decoder(self, table: PublishedTable, relation: Relation) -> RowDecoder:
        domains = self._domains
        columns = [(one.name, domains.get(one.type, one.type)) for one in relation.columns]
        if relation.identity == "f":
            names = {name for name, _ in columns}
            key: Sequence[str] = table.key if names.issuperset(table.key) else ()
        else:
            key = [one.name for one in relation.columns if one.in_identity]
            if set(key) == set(table.key):
                key = table.key  # in the order of the index
        return RowDecoder(self._types[table.given], columns, key, self._where(table))

    def _log_difference(
        self, table: PublishedTable, before: RowDecoder | None, now: RowDecoder
    ) -> None:
        if before is None or before.columns == now.columns:
            return
        was, is_ = dict(before.columns), dict(now.columns)
        added = [name for name in is_ if name not in was]
        removed = [name for name in was if name not in is_]
        retyped = [name for name in is_ if name in was and was[name] != is_[name]]
        _logger.warning(
            "%s: its columns have changed: added %s, removed %s, of another type %s",
            self._where(table),
            added,
            removed,
            retyped,
            extra={
                "event": "schema_changed",
                "place": self._place,
                "table": table.given,
                "added": added,
                "removed": removed,
                "retyped": retyped,
            },
        )


def epoch_millis(changes: Sequence[Change[Any]]) -> list[int]:
    """Return the times of changes in epoch ms."""
    # Hot path of the source. The changes of a transaction share their time.
    times: list[int] = []
    for time, same in groupby(map(_TIME, changes)):
        times += [round(time.timestamp() * 1000)] * len(list(same))
    return times
