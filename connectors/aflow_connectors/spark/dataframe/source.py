"""``SparkSource``: the rows of a DataFrame as a source, read from a snapshot or while Spark computes them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar, overload

from anyio import to_thread

from aflow.connect import BadRecord, Chunk, Position, Reader, Source, SourceError, Split, Tag
from aflow.errors import FlowDefinitionError, shown
from aflow_connectors.arguments import checked_dead_letters
from aflow_connectors.bad_records import BadRecords
from aflow_connectors.files.arguments import checked_concurrency
from aflow_connectors.files.arrow_records import Conversion, SchemaMismatch, chunk_of
from aflow_connectors.files.arrow_values import UnsupportedValue
from aflow_connectors.files.jsonl import JsonObject
from aflow_connectors.files.optional import pyarrow
from aflow_connectors.files.parquet import ParquetReader
from aflow_connectors.files.parquet_rows import ParquetPosition, ParquetRows
from aflow_connectors.spark.calls import Calls, call
from aflow_connectors.spark.dataframe.snapshot import Snapshot, SnapshotFiles, snapshot_folder
from aflow_connectors.spark.environment import use_this_python
from aflow_connectors.worker_thread import WorkerThread

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from aflow_connectors.spark.dataframe.schema import ArrowSchema

    Frame: TypeAlias = DataFrame | Callable[[], DataFrame]
    from pyspark.sql import DataFrame


T = TypeVar("T")

_NAME: Final = "SparkSource"
_STREAM: Final = (Split("stream"),)


class SparkSource(Source[T]):
    """Read records from a Spark DataFrame, by way of a snapshot or as a stream.

    Needs ``pip install "aflow-streams[spark]"``.

    With ``snapshot``, a folder of its own, Spark writes the DataFrame there once as Parquet, and the job reads these
    files: in parallel, exactly once with checkpoints, and after a restart without Spark. A complete snapshot is reused,
    also by later jobs, so a new one needs a new folder. ``snapshot`` is a path or a ``file:`` URI in a file system that
    this process shares with Spark's executors. Keep it as long as a checkpoint refers to it.

    Without a snapshot, rows are read while Spark computes them, one partition after the other in one subtask, and
    nothing is written. A second run may return other rows in another order, so the source is not replayable and no
    checkpoint can be restored in the middle of it.

    ``frame`` may be a function that returns the DataFrame; it is called (in a worker thread) only when Spark is needed.
    Without ``of`` a row becomes a dict; ``of`` and ``dead_letters`` are as for ``ParquetSource``. A TIMESTAMP becomes
    an aware datetime in UTC, a TIMESTAMP_NTZ a naive one. ``concurrency`` is the number of files that a subtask reads
    at a time.

    A backfill reads the DataFrame itself and uses only ``frame`` and ``of``.

    Raises ``SourceError`` if Spark cannot compute or write the rows, with Spark's error as the cause. Cancelling the
    job cancels its Spark jobs.
    """

    @overload
    def __init__(
        self: SparkSource[JsonObject],
        frame: Frame,
        *,
        snapshot: str | Path | None = None,
        of: None = None,
        dead_letters: Tag[BadRecord] | None = None,
        concurrency: int | None = 1,
    ) -> None: ...

    @overload
    def __init__(
        self,
        frame: Frame,
        *,
        snapshot: str | Path | None = None,
        of: type[T],
        dead_letters: Tag[BadRecord] | None = None,
        concurrency: int | None = 1,
    ) -> None: ...

    def __init__(
        self,
        frame: Frame,
        *,
        snapshot: str | Path | None = None,
        of: type[T] | None = None,
        dead_letters: Tag[BadRecord] | None = None,
        concurrency: int | None = 1,
    ) -> None:
        if not (callable(frame) or _is_frame(frame)):
            raise FlowDefinitionError(
                f"{_NAME} needs a DataFrame of Spark or a function that returns one, not {shown(frame)}"
            )
        checked_dead_letters(_NAME, dead_letters)
        self._frame = frame
        #: Class of the records; None for dicts.
        self.of = of
        self._convert = Conversion(_NAME, of)
        self.dead_letters = dead_letters
        self.concurrency = checked_concurrency(_NAME, concurrency)
        self.replayable = snapshot is not None
        self.max_parallelism = 1 if snapshot is None else None
        self._snapshot = None if snapshot is None else Snapshot(snapshot_folder(snapshot))
        self._files: SnapshotFiles | None = None

    def dataframe(self) -> DataFrame:
        """Return the DataFrame for a backfill, which needs no snapshot. Calls the given function, if any: blocks."""
        return self._frame() if callable(self._frame) else self._frame

    async def splits(self) -> Sequence[Split]:
        """Return the files of the snapshot, which is written if it is missing. Raises ``SourceError``."""
        if self._snapshot is None:
            return _STREAM
        self._files = await self._complete_files(self._snapshot)
        return [Split(name) for name in self._files.sizes]

    async def reader(self, split: Split, position: Position | None) -> Reader[T]:
        """Raise ``SourceError`` for a file that is not in the present snapshot; else as ``Source.reader``."""
        if self._snapshot is None:
            return await self._stream(position)
        files = self._files or await to_thread.run_sync(self._snapshot.files)
        if files is None or split.id not in files.sizes:
            raise SourceError(
                f"the snapshot {self._snapshot.folder} has no file {split.id}: it is not the one that the job had "
                "begun to read; put that back, or begin without the checkpoint"
            )
        return self._file(files.folder / split.id, position)

    async def _complete_files(self, snapshot: Snapshot) -> SnapshotFiles:
        files = await to_thread.run_sync(snapshot.files)
        if files is None:
            frame = await self._computed()
            return await call(
                frame.sparkSession,
                lambda: _write(frame, snapshot, self._convert),
                f"writing the snapshot {snapshot.folder}",
                error=SourceError,
            )
        if not callable(self._frame):
            given = self._frame
            columns = await call(
                given.sparkSession,
                lambda: _columns(given),
                "analysing the DataFrame",
                error=SourceError,
            )
            if columns != files.columns:
                raise SourceError(
                    f"the snapshot {snapshot.folder} has the columns {files.columns}, and the DataFrame {columns}: "
                    "give another folder, or remove this one, and it is written again"
                )
        return files

    def _file(self, path: Path, position: Position | None) -> Reader[T]:
        convert = _Checked(self._convert, path.parent)
        rows = ParquetRows(path, ParquetPosition.of(position, path), None, convert)
        return ParquetReader(rows, BadRecords(path, self.dead_letters))

    async def _stream(self, position: Position | None) -> Reader[T]:
        if position is not None:
            raise SourceError(
                f"{_NAME} cannot continue a stream, of which {position} rows were read before, since Spark need not "
                "give the same rows in the same order again: with snapshot= it can, or begin without the checkpoint"
            )
        frame = await self._computed()
        await call(
            frame.sparkSession,
            lambda: _prepare_stream(frame, self._convert),
            "analysing the DataFrame",
            error=SourceError,
        )
        return StreamReader(frame, self._convert, BadRecords("DataFrame", self.dead_letters))

    async def _computed(self) -> DataFrame:
        """Return the given DataFrame, or the one that the given function returns."""
        if not callable(self._frame):
            return self._frame
        frame = await to_thread.run_sync(self._frame)
        if not _is_frame(frame):
            raise SourceError(
                f"the function that {_NAME} was given must return a DataFrame of Spark, not {shown(frame)}"
            )
        return frame


def _is_frame(frame: object) -> bool:
    """Return True for a DataFrame, without importing pyspark. Checked on the type: an instance takes any attribute for
    a column.
    """
    return hasattr(type(frame), "sparkSession")


def _columns(frame: DataFrame) -> str:
    return frame.schema.simpleString()


def _write(frame: DataFrame, snapshot: Snapshot, convert: Conversion[T]) -> SnapshotFiles:
    from pyspark.sql import Observation, functions

    columns = _columns(frame)
    _check(frame, convert, in_parquet=True)
    written = Observation()
    with snapshot.writing() as rows:
        counted = frame.observe(written, functions.count(functions.lit(1)).alias("rows"))
        counted.write.parquet(f"file://{rows}")
        return snapshot.complete(rows, columns, int(written.get["rows"]))


def _prepare_stream(frame: DataFrame, convert: Conversion[T]) -> None:
    _check(frame, convert)
    use_this_python(frame.sparkSession)


def _check(frame: DataFrame, convert: Conversion[T], *, in_parquet: bool = False) -> None:
    """Raise ``SourceError`` for a DataFrame whose rows cannot become records."""
    from aflow_connectors.spark.dataframe.schema import rows_schema

    try:
        convert.check(rows_schema(frame, owner=_NAME, in_parquet=in_parquet))
    except FlowDefinitionError as exc:
        raise SourceError(str(exc)) from exc


class _Checked(Generic[T]):
    """Converter for the batches of a snapshot, which another program may have written."""

    def __init__(self, convert: Conversion[T], folder: Path) -> None:
        self._convert = convert
        self._folder = folder
        self._schema: ArrowSchema = None

    def __call__(self, batch: Any) -> list[T | SchemaMismatch]:
        if self._schema is None or not self._schema.equals(batch.schema):
            try:
                self._convert.check(batch.schema)
            except FlowDefinitionError as exc:
                raise SourceError(f"the snapshot {self._folder}: {exc}") from exc
            self._schema = batch.schema
        return self._convert(batch)


#: Rows that are converted to Python values at once, as with files.
_PREPARED: Final = 4096
#: Seconds that ``close`` waits for a thread that Spark does not release.
_GRACE: Final = 1.0


class StreamReader(Reader[T]):
    """Reader of the rows of a DataFrame, of which Spark computes one partition after the other.

    Spark sends rows to a driver pickled, which is slow, so Arrow batches are packed into rows of a single column. The
    ``__arrow_c_stream__`` of a DataFrame does the same, but in pyspark 4.3.0 it fails for timestamps.
    """

    def __init__(self, frame: DataFrame, convert: Conversion[T], bad_records: BadRecords) -> None:
        self._calls = Calls(frame.sparkSession, error=SourceError)
        self._blocks = _blocks(frame, convert)
        #: Held by the thread that advances the iterator.
        self._inside = Lock()
        self._bad_records = bad_records
        self._rows: list[T | SchemaMismatch] = []
        self._taken = 0
        #: Number of rows emitted.
        self._count = 0
        self._begun = False
        self._ended = False

    async def read(self, limit: int) -> Chunk[T] | None:
        if self._taken == len(self._rows) and not self._ended:
            self._begun = True
            await self._calls.run(self._prepare, "reading the DataFrame")
        rows = self._rows[self._taken : self._taken + limit]
        if not rows:
            return None
        first = self._count
        self._taken += len(rows)
        self._count += len(rows)
        return chunk_of(rows, self._count, self._bad_records, lambda n: f"row {first + n:,}")

    async def close(self) -> None:
        """Cancel remaining Spark work."""
        try:
            if self._begun and not self._ended:
                await self._calls.stop()
        finally:
            await WorkerThread().finish(self._end)

    def _prepare(self) -> None:
        with self._inside:
            self._rows, self._taken = [], 0
            block = next(self._blocks, None)
            if block is None:
                self._ended = True
            else:
                self._rows = block

    def _end(self) -> None:
        if self._inside.acquire(timeout=_GRACE):
            self._blocks.close()
            self._inside.release()


def _blocks(frame: DataFrame, convert: Conversion[T]) -> Generator[list[T | SchemaMismatch]]:
    for batch in _batches(frame):
        for begin in range(0, batch.num_rows, _PREPARED):
            try:
                yield convert(batch.slice(begin, _PREPARED))
            except UnsupportedValue as exc:
                raise SourceError(f"the DataFrame: {exc}") from exc


def _batches(frame: Any) -> Iterator[Any]:
    """Yield the rows of a DataFrame as record batches. One partition is computed ahead."""

    # A nested function is pickled by value: executors need no aflow for it.
    def packed(batches: Iterable[Any]) -> Iterator[Any]:
        arrow: Any = import_module("pyarrow")
        for batch in batches:
            sink = arrow.BufferOutputStream()
            with arrow.ipc.new_stream(sink, batch.schema) as stream:
                stream.write_batch(batch)
            data = arrow.array([sink.getvalue().to_pybytes()], arrow.binary())
            yield arrow.record_batch([data], names=["batch"])

    ipc = pyarrow("SparkSource").ipc
    # The argument and result of mapInArrow have no types, since pyarrow has none.
    for row in frame.mapInArrow(packed, "batch binary").toLocalIterator(prefetchPartitions=True):
        with ipc.open_stream(bytes(row.batch)) as stream:
            yield from stream
