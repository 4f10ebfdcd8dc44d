"""Results that executors write themselves: a Parquet file for each exit into a sink, of each attempt at a partition.

Theory. A file of its own says nothing: its attempt may have lost, or not have ended. The rows of an attempt name its
files, so those that Spark's rows name are the results, and all others are removed with the folder that they are in. The
driver makes that folder before anything runs, and nobody else does: an attempt that goes on behind the end of the
backfill finds none, and leaves nothing.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Final
from uuid import uuid4

from aflow.backfill.blocks import Leaving
from aflow.connect import ConnectorError, SinkError
from aflow_connectors.files.optional import pyarrow_parquet
from aflow_connectors.spark.arrow import pa
from aflow_connectors.spark.columns import RowsOut

#: Records, and bytes, that wait in memory until they are a row group.
_RECORDS: Final = 65_536
_BYTES: Final = 32 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Into:
    """Where the records of a sink go, as executors know it."""

    owner: str
    """In front of what goes wrong."""
    folder: str
    """A path that driver and executors see alike."""
    columns: RowsOut
    compression: str = "snappy"
    """As ``pyarrow`` calls it."""
    metadata: Mapping[str, str] = field(default_factory=dict[str, str])
    """Of the files."""

    @property
    def schema(self) -> Any:
        """The ``pyarrow.Schema`` of the files."""
        return self.columns.arrow.with_metadata(self.metadata)

    def seen(self, files: Sequence[str]) -> list[Path]:
        """Where ``files`` are. Raises ``SinkError`` for one that is not there: executors have another folder."""
        paths = [Path(self.folder) / name for name in files]
        for path in paths:
            if not path.exists():
                raise SinkError(
                    f"{self.owner}: an executor has written {path}, which this machine does not see: results go into "
                    f"a folder that driver and executors see alike"
                )
        return paths


class ResultFiles:
    """The files of one attempt at partition ``number``, by the exit; use it in a ``with`` block."""

    def __init__(self, into: Mapping[int, Into], number: int) -> None:
        self._into = into
        self._number = number
        self._open: dict[int, _File] = {}

    def __enter__(self) -> ResultFiles:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for file in self._open.values():
            file.abandon()

    def takes(self, leaving: Leaving) -> bool:
        """Write the records if they leave by an exit that has a file; False if not. Raises ``ConnectorError``."""
        way = leaving.way.number
        if way not in self._into:
            return False
        if way not in self._open:
            name = f"part-{way:02}-{self._number:05}-{uuid4().hex}.parquet"
            self._open[way] = _File(self._into[way], name)
        self._open[way].write(leaving.batch.values)
        return True

    def finish(self) -> dict[int, str]:
        """End the files; their names, by the exit. Raises ``ConnectorError``."""
        names = {way: file.finish() for way, file in self._open.items()}
        self._open.clear()
        return names


class _File:
    def __init__(self, into: Into, name: str) -> None:
        self._into = into
        self._name = name
        self._path = Path(into.folder) / name
        self._batches: list[Any] = []
        self._writer: Any = None

    def write(self, records: list[Any]) -> None:
        self._batches.append(self._into.columns.batch(records))
        rows = sum(one.num_rows for one in self._batches)
        if rows >= _RECORDS or sum(one.nbytes for one in self._batches) >= _BYTES:
            self._write_group()

    def finish(self) -> str:
        if self._batches:
            self._write_group()
        try:
            self._writer.close()
        except OSError as exc:
            raise self._error(exc) from exc
        return self._name

    def abandon(self) -> None:
        """Let go of a file that is no result."""
        if self._writer is not None:
            with suppress(Exception):
                self._writer.close()
        with suppress(OSError):
            self._path.unlink(missing_ok=True)

    def _write_group(self) -> None:
        batches, self._batches = self._batches, []
        table = pa.Table.from_batches(batches)
        try:
            if self._writer is None:
                self._writer = self._opened()
            self._writer.write_table(table, row_group_size=table.num_rows)
        except OSError as exc:
            raise self._error(exc) from exc

    def _opened(self) -> Any:
        into = self._into
        writer = pyarrow_parquet("a backfill").ParquetWriter
        return writer(str(self._path), into.schema, compression=into.compression)

    def _error(self, exc: OSError) -> ConnectorError:
        return ConnectorError(
            f"{self._into.owner}: executor {socket.gethostname()} cannot write {self._path}: {exc}; "
            f"the folder must be one that driver and executors see alike"
        )
