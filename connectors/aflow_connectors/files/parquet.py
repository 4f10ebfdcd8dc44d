"""``ParquetSource``: columns, in row groups."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import ClassVar, TypeVar, overload

from aflow.connect import BadRecord, Chunk, Position, Reader, Tag
from aflow.errors import FlowDefinitionError
from aflow_connectors.arguments import checked_texts
from aflow_connectors.bad_records import BadRecords
from aflow_connectors.files.arrow_records import Conversion, SchemaMismatch, chunk_of
from aflow_connectors.files.input_file import InputFile
from aflow_connectors.files.jsonl import JsonObject
from aflow_connectors.files.parquet_rows import ParquetPosition, ParquetRows
from aflow_connectors.files.source import FileSource
from aflow_connectors.worker_thread import WorkerThread

T = TypeVar("T")


class ParquetSource(FileSource[T]):
    """Read records from Parquet files, in row order; needs pyarrow: ``pip install "aflow-streams[parquet]"``.

    Without ``of`` a row becomes a dict with pyarrow's Python values. A timestamp becomes a datetime; one that Spark
    wrote as an instant is in UTC, even if the file does not say so. With ``of``, a dataclass, ``msgspec.Struct``,
    TypedDict or the like, a row that does not match is bad; undeclared columns are ignored. Only ``columns`` are read,
    if given.

    ``path``, ``dead_letters``, ``discover_every`` and ``concurrency`` are as for ``JsonLinesSource``. In a folder,
    files that end in ``.parquet`` are read. An unreadable file is always a ``SourceError``, and a missing pyarrow a
    ``ConnectorError``.
    """

    suffixes: ClassVar[Sequence[str]] = (".parquet",)

    @overload
    def __init__(
        self: ParquetSource[JsonObject],
        path: str | Path,
        *,
        of: None = None,
        columns: Sequence[str] | None = None,
        dead_letters: Tag[BadRecord] | None = None,
        discover_every: timedelta | None = None,
        concurrency: int | None = 1,
    ) -> None: ...

    @overload
    def __init__(
        self,
        path: str | Path,
        *,
        of: type[T],
        columns: Sequence[str] | None = None,
        dead_letters: Tag[BadRecord] | None = None,
        discover_every: timedelta | None = None,
        concurrency: int | None = 1,
    ) -> None: ...

    def __init__(
        self,
        path: str | Path,
        *,
        of: type[T] | None = None,
        columns: Sequence[str] | None = None,
        dead_letters: Tag[BadRecord] | None = None,
        discover_every: timedelta | None = None,
        concurrency: int | None = 1,
    ) -> None:
        super().__init__(
            path,
            dead_letters=dead_letters,
            discover_every=discover_every,
            concurrency=concurrency,
        )
        if columns is not None:
            columns = checked_texts("ParquetSource", "columns", columns)
        if columns is not None and not columns:
            raise FlowDefinitionError("ParquetSource: columns= is empty; leave it out to read all")
        self._columns = None if columns is None else list(columns)
        self._convert = Conversion("ParquetSource", of)

    def file_reader(self, path: InputFile, position: Position | None) -> Reader[T]:
        rows = ParquetRows(path, ParquetPosition.of(position, path), self._columns, self._convert)
        return ParquetReader(rows, BadRecords(path, self.dead_letters))


class ParquetReader(Reader[T]):
    """Reader of rows; they are converted to Python values in the worker thread too."""

    def __init__(self, rows: ParquetRows[T | SchemaMismatch], bad_records: BadRecords) -> None:
        self._rows = rows
        self._bad_records = bad_records
        self._blocking = WorkerThread()

    async def read(self, limit: int) -> Chunk[T] | None:
        if not self._rows.are_there:
            await self._blocking.run(self._rows.prepare)
        rows, position = self._rows.take(limit)
        if not rows:
            return None
        first = position.row - len(rows)
        return chunk_of(
            rows,
            tuple(position),
            self._bad_records,
            lambda number: f"row group {position.group}, row {first + number:,}",
        )

    async def close(self) -> None:
        await self._blocking.finish(self._rows.close)
