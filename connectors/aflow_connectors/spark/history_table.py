"""Results of a backfill in the table of a ``SparkTableSink``: one piece, which its live job keeps.

The piece is a partition like those of checkpoints, ``aflow_piece = 'totals-history'``, and counts as written for
checkpoint ``SAVEPOINT``. A repeated backfill replaces it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from aflow.backfill.savepoint import SAVEPOINT
from aflow.connect import Committable
from aflow_connectors.files.pieces import Prepared
from aflow_connectors.owners import new_owner
from aflow_connectors.spark.backfill.destinations import TableDestination
from aflow_connectors.spark.tables.columns import differences, misfits, parsed
from aflow_connectors.spark.tables.spark_table import SparkTable, writing_session
from aflow_connectors.spark.tables.staged_pieces import HISTORY_PIECE, Staging

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from aflow_connectors.spark.tables.table_sink import SparkTableSink


class HistoryTable(TableDestination):
    """The table of a ``SparkTableSink``."""

    def __init__(self, target: SparkTableSink[Any], sink: str) -> None:
        self.sink = sink
        self._target = target
        self._staging = Staging(target.staging, target.table, sink=sink)
        self._opened: tuple[SparkSession, SparkTable] | None = None

    def check(self) -> None:
        """Raise ``SinkError`` for a table with other columns, and for output of an earlier run that must be kept."""
        self.columns()
        table = self._table()
        live = [one for one in table.partitions() if not one.history]
        if live and not self._target.overwrite:
            raise table.error(
                f"a job with a sink of this name has written into it ({live[0].piece}, and {len(live) - 1} more "
                f"pieces): give the sink another name, or pass overwrite=True, which removes what it has written"
            )

    def columns(self) -> StructType | None:
        table = self._table()
        asked, there = parsed(f"sink {self.sink!r}", self._target.schema), table.columns()
        if there is not None and asked is not None and (found := differences(asked, there)):
            raise table.error(f"{'; '.join(found)}; without schema= the table's own columns count")
        return asked or there

    def write(
        self, table: DataFrame | None, *, records: int, scratch: str
    ) -> Sequence[Committable]:
        target = self._table()
        # A backfill repeated over other data may have other partitions.
        target.drop([one for one in target.partitions() if one.history or self._target.overwrite])
        if table is not None:
            self._load(table, target, scratch)
        piece = HISTORY_PIECE if records else ""
        folder, owner = str(self._staging.path.absolute()), new_owner()
        target.record_owner(owner)
        return [Prepared(SAVEPOINT, piece, folder, owner).stored()]

    def _load(self, rows: DataFrame, target: SparkTable, scratch: str) -> None:
        # Staged in files, since only the writing session overwrites by partition.
        rows.write.parquet(scratch)
        there = target.columns()
        if there is None:
            there = rows.schema
            target.create(there)
        if found := misfits(rows.schema, there):
            raise target.error(f"{'; '.join(found)}: was it changed meanwhile?")
        target.replace_history(self._writes().read.schema(there).parquet(scratch))

    def _table(self) -> SparkTable:
        return self._open()[1]

    def _writes(self) -> SparkSession:
        return self._open()[0]

    def _open(self) -> tuple[SparkSession, SparkTable]:
        if self._opened is None:
            readers = self._target.session
            writes = writing_session(readers)
            table = SparkTable(writes, self._target.table, sink=self.sink, readers=readers)
            self._opened = writes, table
        return self._opened
