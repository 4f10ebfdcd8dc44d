"""A Spark table as the target of a sink: its partitions, and their replacement piece by piece.

Theory. The table is partitioned by a column ``aflow_piece`` that names the sink, writer and checkpoint of a row:
``totals-00000-000012``. A *piece*, the output that one writer has staged for one checkpoint, is a partition of its own.
Writing one replaces the partitions of its rows, and no others (Spark's dynamic partition overwrite), so a second write,
or one after a partial write, is idempotent. It need not be known whether a piece was written before; a plain table
could not tell, since it records no writers. When a job is restored from an older checkpoint, later output is dropped as
partitions.

The name of a sink proves nothing: two jobs may have sinks of one name. So the table records the owner of a sink's
output as a property, and a job whose checkpoint has another owner is refused before it drops anything.

Rejected alternatives: an append that first queries the table for rows of the checkpoint needs an atomic append, and
Spark publishes its files one by one; a table of written checkpoints cannot be changed atomically with the target; MERGE
needs other formats.

Spark takes the overwrite mode from the session alone: ``insertInto`` ignores it as an option and would then empty the
table. So writes use a session of their own, whose mode is checked before each write, and the table must still have its
partitions.

All calls block: they are for worker threads.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from secrets import choice, token_hex
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import unquote

from aflow.backfill.savepoint import SAVEPOINT
from aflow.connect import SinkError
from aflow.errors import InternalError
from aflow_connectors.spark.calls import is_connect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

PIECE: Final = "aflow_piece"

#: Suffix of the piece of a backfill, in place of the numbers of a writer and a checkpoint. If the backfill continued
#: from a savepoint, the number of its own savepoint and a token follow: ``history-000002-c0ffee42``.
HISTORY: Final = "history"

#: Token of a continued piece. It begins with a letter, which numbers of writers and checkpoints do not have.
_TOKEN: Final = "[a-f][0-9a-f]{7}"

#: Pattern of the suffix of a piece of history; its group is the number of the savepoint, if that is not the first.
HISTORY_SUFFIX: Final = rf"{HISTORY}(?:-(\d{{6,}})-{_TOKEN})?"

#: Table property with the owner of a sink's output: this prefix, and the name of the sink.
_OWNER: Final = "aflow.owner."

#: Formats of Spark's own catalog in which overwriting by partition is verified.
_FORMATS: Final = frozenset({"orc", "parquet"})

_MODE: Final = "spark.sql.sources.partitionOverwriteMode"

#: Titles in Spark's description of a table: of its partition columns, and of its details.
_PARTITIONS: Final = "# Partition Information"
_DETAILS: Final = "# Detailed Table Information"

_FULL_NAME: Final = ("Catalog", "Database", "Table")

#: Spark's name of a partition without value.
_NULL: Final = "__HIVE_DEFAULT_PARTITION__"


@dataclass(frozen=True, slots=True)
class TablePartition:
    """A partition written by a sink; ``columns`` are the partition columns of the table, with their values."""

    columns: tuple[tuple[str, str], ...]
    piece: str
    subtask: int
    checkpoint: int
    history: bool = False
    """True if a backfill wrote it, for its savepoint."""

    def sql(self) -> str:
        """Return the partition as ``ALTER TABLE`` spells it."""
        values = (
            f"{_quoted(name)} = {'NULL' if value == _NULL else _literal(value)}"
            for name, value in self.columns
        )
        return f"PARTITION ({', '.join(values)})"


class SparkTable:
    """The table ``name`` for one sink. ``session`` must be the ``writing_session`` of ``readers``."""

    def __init__(
        self, session: SparkSession, name: str, *, sink: str, readers: SparkSession
    ) -> None:
        self._session = session
        self._readers = readers
        self._sink = sink
        self.name = name
        #: Qualified after the first lookup: users of the other session may change its catalog or database.
        self._full_name = name

    def columns(self) -> StructType | None:
        """Return the columns without ``aflow_piece``; None if there is no such table. Raises ``SinkError`` for an
        unsupported table.
        """
        from pyspark.sql.types import StructType

        if not self._session.catalog.tableExists(self.name):
            return None
        self._check_kind()
        fields = self._session.table(self.name).schema.fields
        return StructType([one for one in fields if one.name != PIECE])

    def create(self, columns: StructType) -> None:
        """Create the table, in Parquet."""
        from pyspark.sql.types import StringType, StructField, StructType

        # Records are checked before they are written, and readers may add columns that older rows lack.
        fields = [StructField(one.name, one.dataType) for one in columns.fields]
        schema = StructType([*fields, StructField(PIECE, StringType())])
        # Not by SQL: on Connect, only an active session formats types as text. Its overloads name types of pandas.
        empty = cast(Any, self._session).createDataFrame([], schema)
        empty.write.partitionBy(PIECE).saveAsTable(self.name, format="parquet", mode="ignore")
        self._check_kind()

    def partitions(self) -> list[TablePartition]:
        """Return the partitions that this sink wrote; none if there is no table."""
        if not self._session.catalog.tableExists(self.name):
            return []
        rows = self._session.sql(f"SHOW PARTITIONS {self.name}").collect()
        found = (self._partition(str(row[0])) for row in rows)
        return [one for one in found if one is not None]

    def owner(self) -> str | None:
        """Return the owner that the table records for this sink; None if it records none, or does not exist."""
        if not self._session.catalog.tableExists(self.name):
            return None
        rows = self._session.sql(f"SHOW TBLPROPERTIES {self.name}").collect()
        return {str(row[0]): str(row[1]) for row in rows}.get(f"{_OWNER}{self._sink}")

    def record_owner(self, owner: str) -> None:
        """Record in the table that partitions with the name of this sink are of ``owner``; no-op without a table."""
        if self.owner() != owner and self._session.catalog.tableExists(self.name):
            entry = f"{_literal(f'{_OWNER}{self._sink}')} = {_literal(owner)}"
            self._session.sql(f"ALTER TABLE {self.name} SET TBLPROPERTIES ({entry})")

    def drop(self, partitions: Sequence[TablePartition]) -> None:
        """Drop ``partitions`` with their rows."""
        if partitions:
            which = ", ".join(one.sql() for one in partitions)
            self._session.sql(f"ALTER TABLE {self.name} DROP IF EXISTS {which}")
            self._refresh_readers()

    def replace(self, files: Sequence[Path], columns: StructType) -> None:
        """Write staged files, at least one, into the partitions of their pieces, replacing their content.

        ``columns`` are those of the table, looked up just before.
        """
        self._check_mode()
        reader = self._session.read.schema(columns).option("ignoreMissingFiles", "false")
        rows = reader.parquet(*(f"file://{file.absolute()}" for file in files))
        number = "regexp_extract(_metadata.file_name, '([0-9]+-[0-9]+)[.]parquet$', 1)"
        self._insert(rows, f"concat({_literal(f'{self._sink}-')}, {number})")

    def replace_history(self, rows: DataFrame, *, suffix: str) -> None:
        """Write ``rows``, of the writing session, as the piece with ``suffix``; an earlier one was dropped."""
        self._check_mode()
        self._insert(rows, _literal(f"{self._sink}-{suffix}"))

    def _insert(self, rows: DataFrame, piece: str) -> None:
        """Insert ``rows``; ``piece`` is the SQL expression for the name of a row's piece."""
        piece = f"{piece} AS {PIECE}"
        order = self._session.table(self.name).columns
        chosen = [piece if name == PIECE else _quoted(name) for name in order]
        rows.selectExpr(*chosen).write.insertInto(self.name, overwrite=True)
        self._refresh_readers()

    def error(self, reason: str) -> SinkError:
        """Return ``reason`` as the failure of this sink."""
        return SinkError(f"sink {self._sink!r}: table {self.name}: {reason}")

    def _check_kind(self) -> None:
        """Raise ``SinkError`` for a table on which the effect of a write is unknown or harmful."""
        rows = self._session.sql(f"DESCRIBE TABLE EXTENDED {self.name}").collect()
        described = [(str(row[0]), str(row[1])) for row in rows]
        details = dict(_section(_DETAILS, described))
        kind = details.get("Provider", "of no known format")
        if kind.lower() not in _FORMATS:
            known = " and ".join(sorted(_FORMATS))
            raise self.error(
                f"it is {kind}, and the sink writes into tables of Spark's own catalog in {known}: give it one of "
                f"these, or write a folder with SparkSink and load that"
            )
        if PIECE not in dict(_section(_PARTITIONS, described)):
            raise self.error(
                f"it is not partitioned by {PIECE}, which names the checkpoint of each row: make it with "
                f"'{PIECE} STRING' as a column and in PARTITIONED BY, or let the sink make it"
            )
        self._full_name = ".".join(_quoted(details[part]) for part in _FULL_NAME)

    def _refresh_readers(self) -> None:
        """Refresh the file list of the session that users read with: it has not seen the write."""
        self._readers.catalog.refreshTable(self._full_name)

    def _check_mode(self) -> None:
        mode = self._session.conf.get(_MODE)
        if str(mode).lower() != "dynamic":
            raise InternalError(
                f"sink {self._sink!r}: {_MODE} is {mode}, by which the write would empty table {self.name}"
            )

    def _partition(self, shown: str) -> TablePartition | None:
        pairs = [part.partition("=") for part in shown.split("/")]
        columns = tuple((unquote(name), unquote(value)) for name, _, value in pairs)
        piece = dict(columns).get(PIECE, "")
        history = re.fullmatch(f"{re.escape(self._sink)}-{HISTORY_SUFFIX}", piece)
        if history is not None:
            return TablePartition(columns, piece, 0, int(history[1] or SAVEPOINT), history=True)
        numbers = re.fullmatch(rf"{re.escape(self._sink)}-(\d{{5,}})-(\d{{6,}})", piece)
        return numbers and TablePartition(columns, piece, int(numbers[1]), int(numbers[2]))


def history_suffix(savepoint: int) -> str:
    """Return a suffix for the piece of history of a savepoint.

    It is a new one for each backfill that continues: several may continue from one savepoint, and each replaces the
    output of the one before it. So the name in the savepoint of a replaced one is not in the table any more.
    """
    if savepoint == SAVEPOINT:
        return HISTORY
    return f"{HISTORY}-{savepoint:06}-{choice('abcdef')}{token_hex(4)[1:]}"


def _section(title: str, described: Sequence[tuple[str, str]]) -> Sequence[tuple[str, str]]:
    """Return the lines of a section, which ends with an empty line; none if there is no such section."""
    names = [name for name, _ in described]
    if title not in names:
        return ()
    section = described[names.index(title) + 1 :]
    return list(takewhile(lambda line: line[0], section))


def writing_session(session: SparkSession) -> SparkSession:
    """Return a session like ``session`` except for the overwrite mode."""
    writing = _clone(session) if is_connect(session) else _similar_session(session)
    writing.conf.set(_MODE, "dynamic")
    return writing


def _clone(session: SparkSession) -> SparkSession:
    # Only sessions of Connect have it, and they are of another class; classic ones cannot be cloned from Python.
    return cast("SparkSession", cast(Any, session).cloneSession())


def _similar_session(session: SparkSession) -> SparkSession:
    """Return a new classic session with the settings, catalog and database of another."""
    new = session.newSession()
    for name, value in session.conf.getAll.items():
        if new.conf.get(name, None) != value and new.conf.isModifiable(name):
            new.conf.set(name, value)
    new.catalog.setCurrentCatalog(session.catalog.currentCatalog())
    new.catalog.setCurrentDatabase(session.catalog.currentDatabase())
    return new


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
