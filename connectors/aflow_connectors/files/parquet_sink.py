"""``ParquetSink``: Parquet files."""

from __future__ import annotations

from collections.abc import Awaitable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from aflow.connect import Batch, Committable, Writer
from aflow.errors import AflowError, FlowDefinitionError, shown
from aflow_connectors.fields import fields_of
from aflow_connectors.files.optional import pyarrow, pyarrow_parquet
from aflow_connectors.files.output.file_sink import FileSink
from aflow_connectors.files.output.output_file import SinkOutput
from aflow_connectors.worker_thread import WorkerThread

T = TypeVar("T")

_NAME: Final = "ParquetSink"
ROW_GROUP: Final = 65_536
"""Default of the records in a row group."""


class ParquetSink(FileSink[T]):
    """Write Parquet; needs pyarrow: ``pip install "aflow-streams[parquet]"``. Records are as for ``CsvSink``.

    ``schema`` is a ``pyarrow.Schema``; without it, names and types of the columns are those of the first row group, and
    without any record the file has no columns. Each record must have exactly the fields that are columns. A row group
    is written when ``row_group`` records are buffered (65,536 by default); they are in memory until then.

    ``path`` and ``overwrite``, and the effect of checkpoints, are as for ``JsonLinesSink``; a folder gets files
    ``part-00000.parquet`` and so on. Raises ``SinkError`` with the path and the reason, and ``ConnectorError`` if
    pyarrow is missing.
    """

    suffix = ".parquet"

    def __init__(
        self,
        path: str | Path,
        *,
        schema: object | None = None,
        row_group: int = ROW_GROUP,
        overwrite: bool = False,
    ) -> None:
        super().__init__(path, overwrite=overwrite)
        if self.path.suffix in (".gz", ".zst"):
            raise FlowDefinitionError(
                f"ParquetSink: {str(path)!r} ends in {self.path.suffix}, but Parquet compresses by itself, and nothing "
                f"could read it so; name it {str(self.path.with_suffix(''))!r}"
            )
        if row_group < 1:
            raise FlowDefinitionError(f"ParquetSink: row_group must be at least 1, not {row_group}")
        if schema is not None and not isinstance(schema, pyarrow(_NAME).Schema):
            raise FlowDefinitionError(
                f"ParquetSink: schema must be a pyarrow.Schema, not {schema!r}"
            )
        self.schema = schema
        self.row_group = row_group

    def writer_into(self, output: SinkOutput, blocking: WorkerThread) -> Writer[T]:
        return ParquetWriter(ParquetTable(output, self.schema), output, blocking, self.row_group)


class ParquetWriter(Writer[T]):
    """Buffers records and writes them as row groups."""

    def __init__(
        self, table: ParquetTable, output: SinkOutput, blocking: WorkerThread, row_group: int
    ) -> None:
        self._table = table
        self._output = output
        self._blocking = blocking
        self._row_group = row_group
        self._records: list[T] = []

    def write(self, batch: Batch[T]) -> Awaitable[None] | None:
        self._records.extend(batch.values)
        return None if len(self._records) < self._row_group else self._write_groups()

    async def prepare(self, checkpoint: int) -> Committable:
        """End the file: later records are written into another one."""
        await self._end_file()
        return await self._blocking.run(partial(self._output.prepare, checkpoint))

    async def commit(self, committable: Committable) -> None:
        await self._blocking.run(partial(self._output.commit, committable))

    async def flush(self) -> None:
        """Publish the file under its name; nothing can be written after that."""
        await self._end_file()
        await self._blocking.run(self._output.finish)

    async def close(self) -> None:
        await self._blocking.finish(self._table.abandon)
        await self._blocking.finish(self._output.discard)

    async def _end_file(self) -> None:
        records, self._records = self._records, []
        await self._blocking.run(partial(self._table.write, records))
        await self._blocking.run(self._table.finish)

    async def _write_groups(self) -> None:
        size = self._row_group
        while len(self._records) >= size:
            records, self._records = self._records[:size], self._records[size:]
            await self._blocking.run(partial(self._table.write, records))


class ParquetTable:
    """The blocking half: row groups of a file. Its methods run in a worker thread.

    Subclasses with other columns, or for readers that need more metadata, override ``columns`` or ``new_writer``.
    """

    def __init__(self, output: SinkOutput, schema: object | None) -> None:
        self._output = output
        # pyarrow has no types.
        self._schema: Any = schema
        self._writer: Any = None

    def write(self, records: Sequence[object]) -> None:
        """Write a row group, if there are records. Raises ``SinkError``."""
        if records:
            with self._errors():
                table = self.columns(records)
                self._opened(table.schema).write_table(table, row_group_size=len(records))

    def finish(self) -> None:
        """Write the end of the file, if there is or must be one. Raises ``SinkError``."""
        if self._writer is None and self._output.in_pieces:
            return
        with self._errors():
            self._opened(self._schema or pyarrow(_NAME).schema([])).close()
        self._writer = None

    def abandon(self) -> None:
        """Close the file, which will be removed."""
        # Otherwise pyarrow writes the end of the file into a closed file when it collects the writer.
        if self._writer is not None:
            with suppress(Exception):
                self._writer.close()
        self._writer = None

    def _opened(self, schema: Any) -> Any:
        if self._writer is None:
            self._writer = self.new_writer(schema)
            self._schema = schema
        return self._writer

    def new_writer(self, schema: Any) -> Any:
        """Return a ``pyarrow.parquet.ParquetWriter``."""
        return pyarrow_parquet(_NAME).ParquetWriter(
            self._output.file, schema, write_page_checksum=True
        )

    def columns(self, records: Sequence[object]) -> Any:
        """Return a ``pyarrow.Table`` of ``records``, at least one. Raises ``SinkError`` for an unfit record."""
        rows = [self._fields(record) for record in records]
        schema = self._schema
        names: list[str] = list(rows[0]) if schema is None else schema.names
        expected = set(names)
        for row in rows:
            if set(row) != expected:
                raise self._output.unwritable(
                    f"record {shown(row)}", f"its fields are not the columns {names}"
                )
        arrays = [
            self._array(name, [row[name] for row in rows], schema and schema.field(name).type)
            for name in names
        ]
        arrow = pyarrow(_NAME)
        return (
            arrow.table(arrays, names=names)
            if schema is None
            else arrow.table(arrays, schema=schema)
        )

    def _array(self, name: str, values: list[object], kind: Any) -> Any:
        arrow = pyarrow(_NAME)
        try:
            return arrow.array(values, type=kind)
        except (arrow.ArrowException, OverflowError) as exc:
            raise self._output.unwritable(f"column {name!r}", f"{exc}{_hint(kind)}") from exc

    def _fields(self, record: object) -> Mapping[str, object]:
        try:
            return fields_of(record)
        except TypeError as exc:
            raise self._output.unwritable(f"record {shown(record)}", exc) from exc

    @contextmanager
    def _errors(self) -> Generator[None]:
        try:
            yield
        except AflowError:
            raise
        # pyarrow raises errors of many classes.
        except Exception as exc:
            reason = exc.strerror if isinstance(exc, OSError) and exc.strerror else exc
            raise self._output.error(f"cannot write {self._output.shown}: {reason}") from exc


def _hint(kind: Any) -> str:
    """Return advice for a column whose type was inferred from None alone."""
    if kind is None or not pyarrow(_NAME).types.is_null(kind):
        return ""
    return "; in the first row group it was always None, which has no type: schema= says the types of all columns"
