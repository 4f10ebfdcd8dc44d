"""``SparkSink``: a folder of Parquet files for Spark."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar
from weakref import WeakValueDictionary

from anyio import to_thread

from aflow.connect import Writer, WriterContext
from aflow.errors import FlowDefinitionError
from aflow_connectors.files.output.file_sink import FileSink
from aflow_connectors.files.output.names import Parts, PartTarget
from aflow_connectors.files.output.output_file import FileOutput, SinkOutput
from aflow_connectors.files.output.pieces import PieceOutput
from aflow_connectors.files.parquet_sink import ParquetWriter
from aflow_connectors.spark.tables.columns import Columns, SharedTable, checked_schema, parsed
from aflow_connectors.worker_thread import WorkerThread

if TYPE_CHECKING:
    from aflow_connectors.spark.dataframe.schema import Schema

T = TypeVar("T")

ROWS: Final = 65_536
"""Records of a row group, which wait in memory until it is written."""

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):")


class SparkSink(FileSink[T]):
    """Write records into a folder of Parquet files, which ``spark.read.parquet(folder)`` reads. Makes no Spark calls.

    Records are dicts, dataclasses, ``msgspec.Struct`` or NamedTuples, each with exactly the fields that are columns.
    ``schema`` declares their names and types: a string like ``"n BIGINT, at TIMESTAMP"`` (parsed with the active
    session), a ``StructType`` or a ``pyarrow.Schema``. Without it they are inferred from the first row group:
    ``row_group`` records, or those before the first checkpoint. Timestamps are written in microseconds UTC. Types that
    Spark would read differently are refused: intervals, times of day, variants.

    With checkpoints each record is written exactly once and becomes visible when its checkpoint is complete: each
    writer creates a file for each checkpoint with records, ``part-00000-000012.parquet``. Until then its records are in
    files of the same folder whose names begin with a dot, which Spark ignores. Without checkpoints each writer's file
    appears when its input has ended.

    ``path`` is a folder, whatever its suffix, in a local or mounted file system; a URI with a scheme other than
    ``file`` is refused. A folder with output of an earlier run is refused too, unless ``overwrite``, which removes that
    output when the new run begins (without checkpoints: ends).

    Raises ``FlowDefinitionError`` for invalid arguments, ``ConnectorError`` if a package is missing, and in the job
    ``SinkError`` with the path and the reason, also if Spark cannot parse the string ``schema``.
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
        #: Columns of the sinks that have open writers, by name.
        self._columns: WeakValueDictionary[str, Columns] = WeakValueDictionary()

    async def writer(self, context: WriterContext) -> Writer[T]:
        owner = f"sink {context.name!r}: {self.path}"
        schema = await to_thread.run_sync(partial(parsed, owner, self.schema))
        columns = self._columns.setdefault(context.name, Columns(owner, schema))
        writer = await super().writer(context)
        del columns  # which the writer holds now
        return writer

    def writer_into(self, output: SinkOutput, blocking: WorkerThread) -> Writer[T]:
        columns = self._columns[output.sink]
        return FolderWriter(SharedTable(output, columns), output, blocking, self.row_group)

    def _output(self, context: WriterContext) -> SinkOutput:
        parts, name, owner = self._parts(), context.name, self._owner(context.name)
        if context.checkpoints:
            return PieceOutput(parts, sink=name, subtask=context.subtask, owner=owner)
        target = PartTarget(parts.part(context.subtask), parts, context.parallelism)
        return FileOutput(target, sink=name, overwrite=self.overwrite, owner=owner)

    def _parts(self) -> Parts:
        return folder_parts(self.path)


def folder_parts(path: Path) -> Parts:
    """Return the file names of a ``SparkSink``."""
    # Spark's folders are often called out.parquet; for other sinks that is the name of a file.
    return Parts(path, "part", SparkSink.suffix)


class FolderWriter(ParquetWriter[T]):
    """Writer of ``ParquetSink`` that keeps no file without columns: Spark may infer its columns from it."""

    def __init__(
        self, table: SharedTable, output: SinkOutput, blocking: WorkerThread, row_group: int
    ) -> None:
        super().__init__(table, output, blocking, row_group)
        self._shared = table

    async def flush(self) -> None:
        """Publish the file under its name; nothing can be written after that."""
        await super().flush()
        if not (self._output.in_pieces or self._shared.has_columns):
            await self._blocking.run(self._output.path.unlink)


def local_folder(owner: str, path: str | Path, *, argument: str = "the path") -> str | Path:
    """Return ``path`` without ``file://``. Raises ``FlowDefinitionError`` for URIs of other file systems."""
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
    """Return ``row_group``. Raises ``FlowDefinitionError`` if it is less than 1."""
    if row_group < 1:
        raise FlowDefinitionError(f"{owner}: row_group must be at least 1, not {row_group}")
    return row_group
