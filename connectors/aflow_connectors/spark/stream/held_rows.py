"""Rows of batches that wait for a savepoint, as Parquet files in the state folder. All methods block.

Theory. A savepoint holds all records before one moment, its *cut*, and no others. A running stream that is asked for
one holds back the records from the cut on, until its watermark arrives there. Only the function of ``event_time`` has
their timestamps, so the rows of whole batches are stored, and the epoch of such a batch processes the stored rows, up
to the cut. Once the savepoint exists, one epoch processes all of them again, from the cut on. The manifest of each
epoch names the rows that wait, so a query that begins after a crash processes them first.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aflow.errors import FlowDefinitionError, RestoreError
from aflow_connectors.files.output.lock_file import sync_folder
from aflow_connectors.spark.backfill.folders import uri_of
from aflow_connectors.spark.stream.rows import StreamRows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType

#: Name of the folder in the state folder.
HELD: Final = "held"


@dataclass(frozen=True, slots=True)
class HeldRows:
    """Rows that wait, by the epoch in which they arrived and by source."""

    folder: Path
    rows: StreamRows

    def check(self) -> None:
        """Raise ``FlowDefinitionError`` for columns that no Parquet file can have."""
        for name, source in self.rows.sources.items():
            for column in source.frame.schema:
                if _has_null_type(column.dataType):
                    raise FlowDefinitionError(
                        f"source {name!r}: column {column.name!r} has the type NULL, in which rows cannot be stored "
                        f"until the savepoint is written: remove it, or cast it to another type"
                    )

    def write(self, rows: DataFrame, epoch: int, query: str) -> str:
        """Store the rows of a batch durably, and return their name.

        ``query`` identifies the driver: a job of a killed one may write the same epoch meanwhile.
        """
        name = f"{epoch}-{query}"
        for source in self.rows.sources:
            folder = self._folder(name, source)
            found = self.rows.of_source(source, rows)
            found.write.mode("overwrite").parquet(uri_of(folder))
            _sync(folder)
        return name

    def read(self, session: SparkSession, source: str, names: Sequence[str]) -> DataFrame:
        """Return the stored rows of a source. Raises ``RestoreError`` if some are missing."""
        folders = [self._folder(name, source) for name in names]
        for folder in folders:
            if not folder.is_dir():
                raise RestoreError(
                    f"source {source!r}: its rows in {folder}, which wait for a savepoint that was not written, are "
                    f"missing; if the source is new, or was renamed, run the stream once with its former sources"
                )
        schema = self.rows.sources[source].frame.schema
        return session.read.schema(schema).parquet(*map(uri_of, folders))

    def clean(self, needed: Iterable[str]) -> None:
        """Remove rows that no epoch needs. Files that cannot be removed are left: the next call removes them."""
        names = set(needed)
        if not names:
            shutil.rmtree(self.folder, ignore_errors=True)
        elif self.folder.is_dir():
            for path in self.folder.iterdir():
                if path.name not in names:
                    shutil.rmtree(path, ignore_errors=True)

    def _folder(self, name: str, source: str) -> Path:
        # A name of a source may have any characters.
        return self.folder / name / sha256(source.encode()).hexdigest()[:16]


def _has_null_type(kind: DataType) -> bool:
    from pyspark.sql.types import ArrayType, MapType, NullType, StructType

    match kind:
        case NullType():
            return True
        case ArrayType():
            return _has_null_type(kind.elementType)
        case MapType():
            return _has_null_type(kind.keyType) or _has_null_type(kind.valueType)
        case StructType():
            return any(_has_null_type(field.dataType) for field in kind)
        case _:
            return False


def _sync(folder: Path) -> None:
    """Make the files in ``folder``, and its name, durable."""
    for path in folder.iterdir():
        with path.open("rb") as file:
            os.fsync(file.fileno())
    for one in (folder, folder.parent, folder.parent.parent):
        sync_folder(one)
