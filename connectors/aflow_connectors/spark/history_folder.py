"""History in the folder of a ``SparkSink``: files that its live job knows as what a checkpoint has committed.

Spark writes them into a folder inside that one, whose name begins with a dot, and which nobody reads. When they are
whole they become pieces of checkpoint ``SAVEPOINT``, first *pending*, then shown (``aflow_connectors.files.pieces``).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from shutil import rmtree
from typing import IO, TYPE_CHECKING, Any, Final
from uuid import uuid4

from aflow.backfill.savepoint import SAVEPOINT
from aflow.connect import Committable
from aflow_connectors.files.disk import Taken, claim, make_folder, remove_unclaimed, sync_folder
from aflow_connectors.files.optional import pyarrow_parquet
from aflow_connectors.files.output import Place, let_go
from aflow_connectors.files.parts import pending
from aflow_connectors.files.pieces import Prepared, Recovery, show
from aflow_connectors.spark.destinations import Destination
from aflow_connectors.spark.paths import uri_of
from aflow_connectors.spark.sink import SparkSink, folder_parts
from aflow_connectors.spark.table_columns import parsed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

#: Folders into which Spark writes.
_HIDDEN: Final = ".history-"


class HistoryFolder(Place, Destination):
    """The folder of a ``SparkSink``."""

    def __init__(self, target: SparkSink[Any], sink: str) -> None:
        super().__init__(target.path, sink=sink)
        self._schema = target.schema
        self._overwrite = target.overwrite
        self._parts = folder_parts(target.path)
        #: Keeps writers of jobs away; None before anything is prepared, and behind that.
        self._lock: IO[bytes] | None = None
        self._prepared: list[Prepared] = []

    def check(self) -> None:
        """Raises ``SinkError`` for output of an earlier run that must stay, and while another job writes here."""
        self.columns()
        with self.errors():
            there = [path for path, _ in self._parts.pieces()] + self._parts.parts()
            if self.path.exists() and not self.path.is_dir():
                raise self.error(f"{self.path} is a file, and Spark reads a folder")
            if there and not self._overwrite:
                raise self.already_there(there[0])
            for lock in self._parts.locks():
                if not remove_unclaimed(lock):
                    raise self.taken(lock)

    def columns(self) -> StructType | None:
        return parsed(f"sink {self.sink!r}: {self.path}", self._schema)

    def write(
        self, table: DataFrame | None, *, records: int, scratch: str
    ) -> Sequence[Committable]:
        recovery = Recovery(self.path, self._parts, sink=self.sink, overwrite=self._overwrite)
        recovery.recover([])
        with self.errors():
            make_folder(self.path)
            self._lock = self._claimed()
            self._remove_hidden()
        if table is not None:
            hidden = self.path / f"{_HIDDEN}{uuid4().hex}"
            # As files of the live job are; Spark's own default is not what other readers expect.
            writer = table.write.option("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
            writer.parquet(uri_of(hidden))
            with self.errors():
                self._check_all_there(hidden, records)
                self._prepared.extend(self._pending(hidden))
                rmtree(hidden)
                sync_folder(self.path)
        # That nothing was prepared says as well that there is something to go on from.
        empty = Prepared(SAVEPOINT, "", str(self.path.absolute()))
        return [one.stored() for one in self._prepared or [empty]]

    def show(self) -> None:
        with self.errors():
            for one in self._prepared:
                show(self._parts, one, self)
        self._prepared.clear()
        self._let_go()

    def drop(self) -> None:
        for one in self._prepared:
            with suppress(OSError):
                pending(self.path, one.piece).unlink(missing_ok=True)
        self._prepared.clear()
        if self._lock is not None:
            self._remove_hidden()
        self._let_go()

    def _pending(self, hidden: Path) -> Iterator[Prepared]:
        """Make the files that Spark has written durable, under names that no reader reads."""
        filled = (file for file in _files(hidden) if _rows(file))
        for number, file in enumerate(filled):
            piece = self._parts.piece(number, SAVEPOINT)
            with file.open("rb") as raw:
                os.fsync(raw.fileno())
            file.rename(pending(self.path, piece))
            yield Prepared(SAVEPOINT, piece, str(self.path.absolute()))

    def _check_all_there(self, hidden: Path, records: int) -> None:
        found = sum(map(_rows, _files(hidden)))
        if found != records:
            raise self.error(
                f"executors have written {records} records to {hidden}, and {found} of them can be seen on this "
                f"machine: the folder of a SparkSink must be one that the driver and all executors see alike"
            )

    def _claimed(self) -> IO[bytes]:
        lock = self._parts.lock(0)
        try:
            return claim(lock)
        except Taken:
            raise self.taken(lock) from None

    def _remove_hidden(self) -> None:
        """Remove what a backfill has left that was killed."""
        for one in self.path.glob(f"{_HIDDEN}*"):
            rmtree(one, ignore_errors=True)

    def _let_go(self) -> None:
        if self._lock is not None:
            let_go(self._lock, None, self._parts.lock(0))
            self._lock = None


def _files(folder: Path) -> list[Path]:
    return sorted(folder.glob("part-*.parquet")) if folder.is_dir() else []


def _rows(file: Path) -> int:
    metadata: Any = pyarrow_parquet("SparkSink").read_metadata(str(file))
    return int(metadata.num_rows)
