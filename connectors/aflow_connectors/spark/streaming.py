"""The rows of a DataFrame read while Spark computes them, without writing anything.

Spark sends rows to a driver pickled, which is slow, so Arrow batches are packed into rows of a single column. The
``__arrow_c_stream__`` of a DataFrame does the same, but in pyspark 4.3.0 it fails for timestamps.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from importlib import import_module
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, TypeVar

from anyio import CancelScope, to_thread

from aflow.connect import Chunk, Reader, SourceError
from aflow_connectors.files.arrow_records import Conversion, Unfit
from aflow_connectors.files.arrow_values import NoValue
from aflow_connectors.files.conversion import chunk_of
from aflow_connectors.files.optional import pyarrow
from aflow_connectors.files.source import BadRecords
from aflow_connectors.spark.calls import Calls

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

T = TypeVar("T")

#: Rows that are converted to Python values at once, as with files.
_PREPARED: Final = 4096
#: Seconds that ``close`` waits for a thread that Spark does not release.
_GRACE: Final = 1.0


class StreamReader(Reader[T]):
    """Reader of the rows of a DataFrame, of which Spark computes one partition after the other."""

    def __init__(self, frame: DataFrame, convert: Conversion[T], bad_records: BadRecords) -> None:
        self._calls = Calls(frame.sparkSession, error=SourceError)
        self._blocks = _blocks(frame, convert)
        #: Held by the thread that advances the iterator.
        self._inside = Lock()
        self._bad_records = bad_records
        self._rows: list[T | Unfit] = []
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
        if self._begun and not self._ended:
            await self._calls.stop()
        with CancelScope(shield=True):
            await to_thread.run_sync(self._end)

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


def _blocks(frame: DataFrame, convert: Conversion[T]) -> Generator[list[T | Unfit]]:
    for batch in _batches(frame):
        for begin in range(0, batch.num_rows, _PREPARED):
            try:
                yield convert(batch.slice(begin, _PREPARED))
            except NoValue as exc:
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
