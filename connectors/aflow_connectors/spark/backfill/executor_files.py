"""Files that carry results, state and staged rows from executors to the driver.

Theory. A result file alone proves nothing: its attempt may have been superseded or may have failed. There is one for
each exit into a sink and each attempt at a partition, and the rows of an attempt name its files. So the files named by
the rows that Spark accepts are the results; all others are removed with their folder. Only the driver creates that
folder, before anything runs: an attempt that outlives the backfill does not find it. The same holds for state, if
driver and executors share the staging folder.

Staged rows are written by Spark. The driver reads them directly if it can access the files, since a Spark job takes a
tenth of a second. It reads only files that Spark marked as complete (``_SUCCESS``); Spark reads the others.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final
from uuid import uuid4

from aflow.connect import ConnectorError
from aflow_connectors.files.optional import pyarrow_parquet
from aflow_connectors.spark.dataframe.arrow import pa
from aflow_connectors.spark.dataframe.columns import RowsOut
from aflow_connectors.spark.tables.columns import parquet_writer

#: Approximate bytes in memory after which a row group is written, regardless of its number of records.
_BYTES: Final = 32 * 2**20
#: Maximum number of records converted at once, and the number of the first ones, whose size is unknown.
_AT_ONCE: Final = 4_096
_FIRST: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTarget:
    """Destination of the records of a sink, for executors."""

    owner: str
    """Prefix of error messages."""
    folder: str
    """Path that driver and executors share."""
    columns: RowsOut
    row_group: int
    """Records of a row group."""


class ResultFiles:
    """Files of one attempt at partition ``number``, by exit; a context manager."""

    def __init__(self, targets: Mapping[int, FileTarget], number: int) -> None:
        self._targets = targets
        self._number = number
        self._open: dict[int, _File] = {}

    def __contains__(self, exit: int) -> bool:
        """Return True if records of ``exit`` are written here."""
        return exit in self._targets

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

    def write(self, exit: int, records: Sequence[Any]) -> None:
        """Write records. Raises ``ConnectorError`` for records that do not fit, and files that cannot be written."""
        if exit not in self._open:
            name = f"part-{exit:02}-{self._number:05}-{uuid4().hex}.parquet"
            self._open[exit] = _File(self._targets[exit], name)
        self._open[exit].write(records)

    def finish(self) -> dict[int, str]:
        """Close the files and return their names by exit. Raises ``ConnectorError``."""
        names = {exit: file.finish() for exit, file in self._open.items()}
        self._open.clear()
        return names


class _File:
    def __init__(self, target: FileTarget, name: str) -> None:
        self._target = target
        self._name = name
        self._path = Path(target.folder) / name
        #: Batches of the next row group.
        self._batches: list[Any] = []
        self._rows = self._bytes = 0
        self._at_once = min(_FIRST, target.row_group)
        self._writer: Any = None

    def write(self, records: Sequence[Any]) -> None:
        begin = 0
        while begin < len(records):
            some = records[begin : begin + min(self._at_once, self._target.row_group - self._rows)]
            begin += len(some)
            self._add(self._target.columns.batch(some))

    def _add(self, batch: Any) -> None:
        self._batches.append(batch)
        self._rows += batch.num_rows
        self._bytes += batch.nbytes
        # About an eighth of a row group of this size.
        self._at_once = max(1, min(_AT_ONCE, _BYTES // 8 * self._rows // max(self._bytes, 1)))
        if self._rows >= self._target.row_group or self._bytes >= _BYTES:
            self._write_group()

    def finish(self) -> str:
        if self._batches:
            self._write_group()
        with self._errors():
            self._writer.close()
        return self._name

    def abandon(self) -> None:
        """Close and remove a file that is no result."""
        if self._writer is not None:
            with suppress(Exception):
                self._writer.close()
        with suppress(OSError):
            self._path.unlink(missing_ok=True)

    def _write_group(self) -> None:
        table = pa.Table.from_batches(self._batches)
        self._batches, self._rows, self._bytes = [], 0, 0
        with self._errors():
            if self._writer is None:
                self._writer = parquet_writer(str(self._path), table.schema, owner="a backfill")
            self._writer.write_table(table, row_group_size=table.num_rows)

    @contextmanager
    def _errors(self) -> Generator[None]:
        try:
            yield
        except (OSError, pa.ArrowException) as exc:
            lost = isinstance(exc, OSError) and exc.errno == errno.ENOENT
            hint = "; the folder must be one that driver and executors see alike" if lost else ""
            raise ConnectorError(
                f"{self._target.owner}: executor {socket.gethostname()} cannot write {self._path}: {exc}{hint}"
            ) from exc


#: Bytes of a chunk in the driver's memory.
_CHUNK: Final = 4 * 2**20


def write_state(folder: Path, number: int, chunks: Iterable[bytes]) -> str:
    """Write the state of partition ``number`` of a fragment; return the file name. Raises ``ConnectorError``."""
    path = folder / f"{number:05}-{uuid4().hex}"
    try:
        with path.open("xb") as file:
            file.writelines(chunks)
    except OSError as exc:
        raise ConnectorError(
            f"executor {socket.gethostname()} cannot write state to {path}: {exc.strerror or exc}; the staging folder "
            f"must be one that driver and executors see alike, with room for the state"
        ) from exc
    return path.name


def read_state(folder: Path, name: str) -> Iterator[bytes]:
    """Yield the content that ``write_state`` wrote, in chunks; blocks. Raises ``ConnectorError``."""
    path = folder / name
    try:
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                yield chunk
    except OSError as exc:
        raise ConnectorError(
            f"cannot read state from {path}, where an executor has written it: {exc.strerror or exc}; the staging "
            f"folder must be one that driver and executors see alike"
        ) from exc


#: Rows per batch. Each has some megabytes.
_ROWS_AT_ONCE: Final = 8


def files_of(fragment: Path | None, exit: int) -> list[Path] | None:
    """Return the files with the rows of ``exit`` in the folder of a fragment; None if the driver cannot read them."""
    if fragment is None or not (fragment / "_SUCCESS").is_file():
        return None
    folder = fragment / f"exit={exit}"
    try:
        if not folder.exists():
            return []
        files = sorted(one for one in folder.iterdir() if one.suffix == ".parquet" and _shown(one))
        for file in files:
            _opened(file)
    except (OSError, pa.ArrowException):
        return None
    return files


def payloads(files: Sequence[Path]) -> Iterator[bytes]:
    """Yield the payloads of all rows, in no order; blocks."""
    for file in files:
        for batch in _opened(file).iter_batches(_ROWS_AT_ONCE, columns=["payload"]):
            yield from batch.column("payload").to_pylist()


def _shown(file: Path) -> bool:
    """Return False for files that Spark ignores too."""
    return not file.name.startswith((".", "_"))


def _opened(file: Path) -> Any:
    return pyarrow_parquet("a backfill").ParquetFile(str(file), page_checksum_verification=True)
