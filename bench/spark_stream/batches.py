"""Input of a stream: files of Parquet, written before, of which each micro-batch reads two."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.spark.windows import WINDOW

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# They have no types.
np: Any = import_module("numpy")
pa: Any = import_module("pyarrow")
pc: Any = import_module("pyarrow.compute")
pq: Any = import_module("pyarrow.parquet")

COLUMNS: Final = "who string, at long, price long"
#: Key of the record that closes all windows. Its own window stays open.
CLOSING: Final = "closing"
#: Time (ms) of the first event. At 0, ``transformWithState`` takes events for late: its first watermark is 0.
_BEGIN: Final = WINDOW
#: Files of a batch: Spark reads one small file in one task.
_FILES: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Batches:
    """Micro-batches of events in time order, and a last one with an event that closes all windows."""

    rows: int
    """Events of a batch."""
    keys: int
    window_rows: int
    """Events of all keys in a window."""
    fill: int = 0
    """Events of one more batch, the first."""
    warm: int
    """Batches of ``rows`` that are processed before the measured ones."""
    measured: int

    @property
    def numbers(self) -> range:
        """Return Spark's numbers of the measured batches."""
        first = self.warm + (1 if self.fill else 0)
        return range(first, first + self.measured)

    @property
    def end(self) -> int:
        """Return the end (ms) of the last window that has events."""
        return _BEGIN + ((self._total - 1) // self.window_rows + 1) * WINDOW

    def write(self, folder: Path) -> Path:
        """Write the files, and return their folder."""
        folder.mkdir()
        for number, table in enumerate(self._tables()):
            path = folder / f"{number:05}.parquet"
            pq.write_table(table, path)
            # Spark reads files in the order of their times.
            os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))
        return folder

    @property
    def _total(self) -> int:
        return self.fill + self.rows * (self.warm + self.measured)

    def _tables(self) -> Iterator[Any]:
        sizes = [self.fill] if self.fill else []
        start = 0
        for size in (*sizes, *[self.rows] * (self.warm + self.measured)):
            for part in range(_FILES):
                first, stop = start + size * part // _FILES, start + size * (part + 1) // _FILES
                ids = np.arange(first, stop, dtype="int64")
                yield _table(
                    pc.cast(pa.array(ids * 7919 % self.keys), pa.string()),
                    _BEGIN + ids * WINDOW // self.window_rows,
                    ids % 100,
                )
            start += size
        yield _table([CLOSING], [self.end + 1], [0])  # watermarks are 1 ms behind it


def _table(who: Any, at: Any, price: Any) -> Any:
    columns = {"who": who, "at": pa.array(at, pa.int64()), "price": pa.array(price, pa.int64())}
    return pa.table(columns)


def read_stream(session: SparkSession, folder: Path) -> DataFrame:
    """Return the streaming DataFrame of the files."""
    reader = session.readStream.schema(COLUMNS).option("maxFilesPerTrigger", _FILES)
    return reader.option("maxFileAge", "100000d").parquet(str(folder))
