"""Files that arrive in a folder one after the other, in the order of the records."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from shutil import rmtree
from typing import Any, Final

import pyarrow
import pyarrow.parquet

#: Without types.
_arrow: Any = pyarrow
_parquet: Any = pyarrow.parquet

_NAME: Final = "{:05}.parquet"


@dataclass(frozen=True, slots=True)
class ArrivingFiles:
    """The rows of a table, cut into ``files`` files, which arrive in ``folder``.

    A file that has not arrived has a name that begins with a dot, which Spark ignores.
    """

    folder: Path
    files: int

    def cut(self, tables: Sequence[Path], *, order: str | None = None) -> None:
        """Write the rows of Parquet files, sorted by the column ``order``, into files that have not arrived."""
        rows = _arrow.concat_tables([_parquet.read_table(path) for path in sorted(tables)])
        if order is not None:
            rows = rows.sort_by(order)
        if self.folder.exists():
            rmtree(self.folder)
        self.folder.mkdir(parents=True)
        size = -(-rows.num_rows // self.files)
        for number in range(self.files):
            _parquet.write_table(rows.slice(number * size, size), self._waiting(number))

    def arrive(self, number: int) -> None:
        """Let a file appear, complete and at once."""
        waiting, now = self._waiting(number), time.time()
        os.utime(waiting, (now, now))  # Spark reads files in the order of these times
        waiting.rename(self.folder / _NAME.format(number))

    def _waiting(self, number: int) -> Path:
        return self.folder / f".{_NAME.format(number)}"


async def arrive(tables: Sequence[ArrivingFiles], interval: timedelta) -> None:
    """Let one file of each table arrive after the other, one each ``interval``."""
    for number in range(max(one.files for one in tables)):
        for one in tables:
            one.arrive(number)
        await asyncio.sleep(interval.total_seconds())
