"""Exactly-once rows: staged in a table of their own until their checkpoint is complete.

Theory. A writer inserts the rows of an epoch (the records between two checkpoints) into ``_aflow_staged``, encoded,
many in one entry. ``prepare`` names the epoch; that name is the committable. ``commit`` moves the rows into the table,
in one transaction that also records the checkpoint in ``_aflow_commits``. So it is atomic and idempotent, and a crash
at any instant leaves an epoch either staged or in the table.

The rows could also be stored in the committable. But then every checkpoint would hold a copy of all output since the
preceding one, and an epoch would have to fit in memory; it would save writing the rows twice into the database.

Constraints are checked before the checkpoint counts: ``prepare`` inserts the rows and rolls back. A commit that fails
because of the data would fail again after each restart.

All calls block: they are for worker threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, cast

from aflow.connect import Committable
from aflow.errors import RestoreError, shown
from aflow.model.codecs import PLAIN, CodecError
from aflow_connectors.commit_errors import foreign_committable
from aflow_connectors.rows import RowRejected
from aflow_connectors.sqlite.database import Database, Row, text
from aflow_connectors.sqlite.rows import insert

_TABLES: Final = (
    """CREATE TABLE IF NOT EXISTS _aflow_staged (
        sink TEXT NOT NULL, "table" TEXT NOT NULL, writer INTEGER NOT NULL, epoch INTEGER NOT NULL,
        rows BLOB NOT NULL)""",
    """CREATE INDEX IF NOT EXISTS _aflow_staged_by_epoch
        ON _aflow_staged (sink, "table", writer, epoch)""",
    """CREATE TABLE IF NOT EXISTS _aflow_commits (
        sink TEXT NOT NULL, "table" TEXT NOT NULL, writer INTEGER NOT NULL, checkpoint INTEGER NOT NULL,
        PRIMARY KEY (sink, "table", writer)) WITHOUT ROWID""",
)
#: Largest integer of SQLite.
_LARGEST: Final = 2**63 - 1
_OF_SINK: Final = 'sink = ? AND "table" = ?'
_OF_EPOCH: Final = f"{_OF_SINK} AND writer = ? AND epoch = ?"


@dataclass(frozen=True, slots=True)
class PreparedRows:
    """Rows that ``writer`` has staged between checkpoint ``epoch`` and ``checkpoint``."""

    writer: int
    epoch: int
    checkpoint: int
    rows: int
    columns: tuple[str, ...]
    owner: str = ""
    """Lineage of runs that staged them; empty in checkpoints of versions without owners."""
    database: str = ""
    """Database in which they were staged, for messages."""

    def stored(self) -> Committable:
        return {
            "owner": self.owner,
            "database": self.database,
            "writer": self.writer,
            "epoch": self.epoch,
            "checkpoint": self.checkpoint,
            "rows": self.rows,
            "columns": list(self.columns),
        }

    @classmethod
    def of(cls, committable: Committable, *, sink: str) -> PreparedRows:
        """Return the decoded committable. Raises ``RestoreError`` unless a ``SqliteSink`` prepared it."""
        try:
            fields = cast(dict[str, object], committable)
            writer, epoch, checkpoint, rows = (
                cast(int, fields[name]) for name in ("writer", "epoch", "checkpoint", "rows")
            )
            columns = cast(list[str], fields["columns"])
            owner, path = cast(str, fields.get("owner", "")), cast(str, fields.get("database", ""))
            kinds = {type(one) for one in (writer, epoch, checkpoint, rows)}
            texts = {type(one) for one in (owner, path, *columns)}
            numbers = all(0 <= one <= _LARGEST for one in (writer, epoch, checkpoint, rows))
            if kinds == {int} and numbers and texts == {str} and isinstance(columns, list):
                "".join((owner, path, *columns)).encode()  # SQLite takes no text that is not UTF-8
                return cls(writer, epoch, checkpoint, rows, tuple(columns), owner, path)
        except (AttributeError, KeyError, TypeError, UnicodeEncodeError):
            pass  # of another kind: refused below
        raise foreign_committable(sink, committable)


class StagingTable:
    """Staged rows of one owner and one table, and the checkpoints that were committed.

    The owner is a random id that checkpoints carry from run to run: a job never changes the staged rows of another one,
    even under the same name of the sink.
    """

    def __init__(self, database: Database, table: str, owner: str) -> None:
        self._database = database
        self._table = table
        self.owner = owner
        identity = f"{database.sink}/{owner}" if owner else database.sink
        self._sink = (identity, table)

    def create(self) -> None:
        """Create the staging tables if they do not exist."""
        with self._database.transaction("cannot make the tables for checkpoints"):
            for statement in _TABLES:
                self._database.run(statement)

    def stage(self, writer: int, epoch: int, rows: Sequence[Row]) -> None:
        """Stage ``rows``, durably. Raises ``SinkError``."""
        data = self._encoded(rows)
        with self._database.transaction(f"cannot stage rows for table {self._table!r}"):
            self._database.run(
                "INSERT INTO _aflow_staged VALUES (?, ?, ?, ?, ?)",
                (*self._sink, writer, epoch, data),
            )

    def _encoded(self, rows: Sequence[Row]) -> bytes:
        try:
            return PLAIN.encode([list(row) for row in rows])
        except CodecError as exc:  # text that is none: half of a surrogate pair
            if len(rows) > 1:
                for row in rows:
                    self._encoded([row])
            raise self._database.error(
                f"table {self._table!r} cannot take row {shown(rows[0])}: {exc.__cause__ or exc}"
            ) from exc

    def check(self, prepared: PreparedRows) -> None:
        """Raise ``SinkError`` that shows the row if the table would reject it, or if the checkpoint was committed
        before.
        """
        last = self._committed(prepared.writer)
        if last is not None and prepared.checkpoint <= last:
            raise self._database.error(
                f"table {self._table!r} has the rows of checkpoint {last} of this sink already, and now gets "
                f"{prepared.checkpoint}; was the storage of checkpoints replaced? Resume from a checkpoint of this "
                f"output, or start fresh (restore='fresh')"
            )
        if prepared.rows:
            with self._database.trial(f"table {self._table!r} cannot take the rows"):
                self._insert(prepared)

    def commit(self, prepared: PreparedRows) -> None:
        """Move the rows into the table, unless that was done before. Raises ``SinkError``."""
        with self._database.transaction(f"cannot commit to table {self._table!r}"):
            last = self._committed(prepared.writer)
            if last is not None and prepared.checkpoint <= last:
                return
            moved = self._insert(prepared)
            if moved != prepared.rows:
                raise self._database.error(
                    f"{prepared.rows:,} rows were prepared for checkpoint {prepared.checkpoint} of table "
                    f"{self._table!r}, and {moved:,} are staged as {self._sink[0]!r} in _aflow_staged: were rows "
                    f"removed there, or did another job resume from the same checkpoint?"
                )
            self._database.run(
                f"DELETE FROM _aflow_staged WHERE {_OF_EPOCH}",
                (*self._sink, prepared.writer, prepared.epoch),
            )
            self._database.run(
                "INSERT OR REPLACE INTO _aflow_commits VALUES (?, ?, ?, ?)",
                (*self._sink, prepared.writer, prepared.checkpoint),
            )

    def recover(self, prepared: Sequence[PreparedRows]) -> None:
        """Commit ``prepared``, of this owner, and remove all other rows that it has staged.

        Raises ``SinkError``, and ``RestoreError`` if the rows were staged in another database.
        """
        self._refuse_other_database(prepared)
        self._refuse_to_repeat(prepared)
        for one in sorted(prepared, key=lambda one: one.checkpoint):
            self.commit(one)
        with self._database.transaction(f"cannot remove rows staged for table {self._table!r}"):
            self._database.run(f"DELETE FROM _aflow_staged WHERE {_OF_SINK}", self._sink)

    def _refuse_other_database(self, prepared: Sequence[PreparedRows]) -> None:
        found = next((one for one in prepared if one.rows), None)
        if found is None or self._knows_owner():
            return
        where = f" in {found.database}" if found.database else ""
        raise RestoreError(
            f"sink {self._database.sink!r}: checkpoint {found.checkpoint} has {found.rows:,} rows for table "
            f"{self._table!r} that were staged{where}, and the database {self._database.path} holds nothing of this "
            f"job. Was the path or the table of the sink changed? Give it the former ones, or let it resume in a copy "
            f"of the former database; a job that starts fresh (restore='fresh') may write into any"
        )

    def _knows_owner(self) -> bool:
        """Return True if the owner has staged or committed anything for this table."""
        with self._database.errors(f"cannot recover table {self._table!r}"):
            return any(
                self._database.run(f"SELECT 1 FROM {one} WHERE {_OF_SINK} LIMIT 1", self._sink)
                for one in ("_aflow_staged", "_aflow_commits")
            )

    def _refuse_to_repeat(self, prepared: Sequence[PreparedRows]) -> None:
        """Raise ``SinkError`` if the table has rows of later checkpoints, which cannot be removed."""
        newest = max(one.checkpoint for one in prepared)  # one at least: else the owner is new
        sql = f"SELECT max(checkpoint) FROM _aflow_commits WHERE {_OF_SINK}"
        with self._database.errors(f"cannot recover table {self._table!r}"):
            ((last,),) = self._database.run(sql, self._sink)
        if isinstance(last, int) and last > newest:
            raise self._database.error(
                f"the job resumes from checkpoint {newest}, but table {self._table!r} has the rows up to checkpoint "
                f"{last} already, which would be duplicated: remove from it what is to be written again and then "
                f"UPDATE _aflow_commits SET checkpoint = {newest} WHERE sink = {text(self._sink[0])}, or bring "
                f"back the database of then"
            )

    def _committed(self, writer: int) -> int | None:
        sql = f"SELECT checkpoint FROM _aflow_commits WHERE {_OF_SINK} AND writer = ?"
        with self._database.errors(f"cannot look up the checkpoint of table {self._table!r}"):
            found = self._database.run(sql, (*self._sink, writer))
        return cast(int, found[0][0]) if found else None

    def _insert(self, prepared: PreparedRows) -> int:
        """Insert the staged rows; return their number."""
        statement = insert(self._table, prepared.columns)
        count = 0
        for rows in self._staged(prepared):
            count += len(rows)
            try:
                self._database.run_many(statement, rows)
            except RowRejected as exc:
                row = dict(zip(prepared.columns, rows[exc.index], strict=False))
                raise self._database.error(
                    f"table {self._table!r} cannot take row {shown(row)}: {exc}"
                ) from exc
        return count

    def _staged(self, prepared: PreparedRows) -> Iterator[list[Row]]:
        sql = f"SELECT rows FROM _aflow_staged WHERE {_OF_EPOCH} ORDER BY rowid"
        values = (*self._sink, prepared.writer, prepared.epoch)
        for data in self._database.blobs(sql, values):
            yield [tuple(row) for row in cast(list[list[object]], PLAIN.decode(data))]
