"""Writes a folder of Parquet for Spark to read."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar
from weakref import WeakValueDictionary

from anyio import to_thread

from aflow.connect import Writer, WriterContext
from aflow.errors import FlowDefinitionError
from aflow_connectors.blocking import Blocking
from aflow_connectors.files.output import Output, OutputFile
from aflow_connectors.files.parquet_sink import ParquetWriter
from aflow_connectors.files.parts import Parts, Target
from aflow_connectors.files.pieces import PieceOutput
from aflow_connectors.files.sink import FileSink
from aflow_connectors.spark.table_columns import Columns, SharedTable, checked_schema, parsed

if TYPE_CHECKING:
    from aflow_connectors.spark.schemas import Schema

T = TypeVar("T")

ROWS: Final = 65_536
"""Records of a row group, which wait in memory until it is written."""

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")


class SparkSink(FileSink[T]):
    """Writes records into a folder of Parquet files, which ``spark.read.parquet(folder)`` reads. Calls no Spark.

    Records are dicts, dataclasses, ``msgspec.Struct`` or NamedTuples, each with exactly the fields that are columns.
    ``schema`` says their names and types: text like ``"n BIGINT, at TIMESTAMP"`` (which needs an active session to
    read it), a ``StructType`` or a ``pyarrow.Schema``; without it they are those of the first row group, of
    ``row_group`` records or as many as come before the first checkpoint. Moments are written in microseconds UTC. Types
    that Spark would not read as they were declared are refused: intervals, times of day, variants.

    With checkpoints each record is there exactly once, and visible when its checkpoint is complete: each writer makes
    a file for each checkpoint in which it has written something, ``part-00000-000012.parquet``. What is not complete
    stands in the same folder in files whose names begin with a dot, which Spark passes over. Without checkpoints each
    writer's file appears when its input has ended.

    ``path`` is a folder, whatever its name ends in, of a file system of this machine, mounted ones included; a URI of
    another scheme than ``file`` is refused. A folder with output of an earlier run is refused, too, unless
    ``overwrite``, which removes that when the new run begins (without checkpoints: ends).

    Raises ``FlowDefinitionError`` for arguments, ``ConnectorError`` if a package is missing, and in the job
    ``SinkError`` with the path and the reason, also if Spark cannot read the text of ``schema``.
    """

    suffix = ".parquet"

    def __init__(
        self,
        path: str | Path,
        *,
        schema: Schema | None = None,
        row_group: int = ROWS,
        overwrite: bool = False,
    ) -> None:
        super().__init__(local_folder("SparkSink", path), overwrite=overwrite)
        self.schema = checked_schema("SparkSink", schema)
        self.row_group = checked_row_group("SparkSink", row_group)
        #: Of the sinks that have writers now, by name.
        self._columns: WeakValueDictionary[str, Columns] = WeakValueDictionary()

    async def writer(self, context: WriterContext) -> Writer[T]:
        owner = f"sink {context.name!r}: {self.path}"
        schema = await to_thread.run_sync(partial(parsed, owner, self.schema))
        columns = self._columns.setdefault(context.name, Columns(owner, schema))
        output, blocking = await self._open(context)
        return FolderWriter(SharedTable(output, columns), output, blocking, self.row_group)

    def _output(self, context: WriterContext) -> Output:
        parts, name, owner = self._parts(), context.name, self._owner(context.name)
        if context.checkpoints:
            return PieceOutput(parts, sink=name, subtask=context.subtask, owner=owner)
        target = Target(parts.part(context.subtask), parts, context.parallelism)
        return OutputFile(target, sink=name, overwrite=self.overwrite, owner=owner)

    def _parts(self) -> Parts:
        return folder_parts(self.path)


def folder_parts(path: Path) -> Parts:
    """The names of the files of a ``SparkSink``."""
    # Spark's folders are often called out.parquet, which for other sinks is the name of a file.
    return Parts(path, "part", SparkSink.suffix)


class FolderWriter(ParquetWriter[T]):
    """As that of ``ParquetSink``, and leaves no file without columns: Spark might take the columns of all from it."""

    def __init__(
        self, table: SharedTable, output: Output, blocking: Blocking, row_group: int
    ) -> None:
        super().__init__(table, output, blocking, row_group)
        self._shared = table

    async def flush(self) -> None:
        """Give the file its name: nothing can be written after that."""
        await super().flush()
        if not (self._output.in_pieces or self._shared.has_columns):
            await self._blocking.run(self._output.path.unlink)


def local_folder(owner: str, path: str | Path, *, argument: str = "the path") -> str | Path:
    """``path`` without ``file://``. Raises ``FlowDefinitionError`` for URIs of other file systems."""
    if not isinstance(path, str):
        return path
    found = _SCHEME.match(path)
    if found is None:
        return path
    if found[1].lower() != "file":
        raise FlowDefinitionError(
            f"{owner}: {argument} is {path!r}, and files are staged and renamed on a file system of this machine only: "
            f"give a folder, which may be one where {found[1]}: is mounted"
        )
    rest = path[found.end() :]
    return rest[2:] if rest.startswith("///") else rest


def checked_row_group(owner: str, row_group: int) -> int:
    """``row_group``. Raises ``FlowDefinitionError`` for less than a record."""
    if row_group < 1:
        raise FlowDefinitionError(f"{owner}: row_group must be at least 1, not {row_group}")
    return row_group
