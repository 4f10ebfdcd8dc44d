"""``SparkSource``: the rows of a DataFrame as a source."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar, overload

from anyio import to_thread

from aflow.connect import BadRecord, Position, Reader, Source, SourceError, Split, Tag
from aflow.errors import FlowDefinitionError, shown
from aflow_connectors.files.arguments import checked_concurrency, checked_dead_letters
from aflow_connectors.files.arrow_records import Conversion, Unfit
from aflow_connectors.files.jsonl import JsonObject
from aflow_connectors.files.parquet import ParquetReader
from aflow_connectors.files.parquet_rows import ParquetPosition, Rows
from aflow_connectors.files.source import BadRecords
from aflow_connectors.spark.calls import call
from aflow_connectors.spark.dataframe.snapshot import Files, Snapshot, snapshot_folder
from aflow_connectors.spark.environment import use_this_python
from aflow_connectors.spark.streaming import StreamReader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from aflow_connectors.spark.dataframe.schema import ArrowSchema

    Frame: TypeAlias = DataFrame | Callable[[], DataFrame]

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
        self._files: Files | None = None

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

    async def _complete_files(self, snapshot: Snapshot) -> Files:
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
                    "give another folder, or remove this one, and it is written anew"
                )
        return files

    def _file(self, path: Path, position: Position | None) -> Reader[T]:
        convert = _Checked(self._convert, path.parent)
        rows = Rows(path, ParquetPosition.of(position, path), None, convert)
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


def _write(frame: DataFrame, snapshot: Snapshot, convert: Conversion[T]) -> Files:
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

    def __call__(self, batch: Any) -> list[T | Unfit]:
        if self._schema is None or not self._schema.equals(batch.schema):
            try:
                self._convert.check(batch.schema)
            except FlowDefinitionError as exc:
                raise SourceError(f"the snapshot {self._folder}: {exc}") from exc
            self._schema = batch.schema
        return self._convert(batch)
