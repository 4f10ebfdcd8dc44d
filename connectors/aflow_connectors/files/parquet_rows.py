"""The rows of a Parquet file, a few at a time, with a position behind each row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from aflow.connect import Position, SourceError
from aflow.errors import AflowError
from aflow_connectors.files.optional import pyarrow_parquet

Row = dict[str, object]

#: Rows that are decoded at a time.
_DECODED: Final = 8192


class ParquetPosition(NamedTuple):
    """Behind a row; plain numbers, so that any codec can store it."""

    group: int = 0
    #: Rows of the group that were read.
    row: int = 0
    #: Rows of the file, by which a file that has been replaced is noticed.
    total: int = -1

    @classmethod
    def of(cls, position: Position, path: Path) -> ParquetPosition:
        """Check a position that comes from a checkpoint. Raises ``SourceError``."""
        if position is None:
            return cls()
        if isinstance(position, (tuple, list)):
            parts = cast(Sequence[object], position)
            numbers = [part for part in parts if isinstance(part, int)]
            if len(numbers) == len(parts) == len(cls._fields):
                return cls(*numbers)
        raise SourceError(f"{path}: {position!r} is not a position in a Parquet file")


class Rows:
    """The rows of a file. ``prepare`` and ``close`` block: they are for worker threads, one call at a time."""

    def __init__(self, path: Path, start: ParquetPosition, columns: list[str] | None) -> None:
        self._path = path
        #: Behind the last row that was prepared.
        self._position = start
        self._columns = columns
        # pyarrow has no types.
        self._file: Any = None
        self._batches: Iterator[tuple[int, Any]] = iter(())
        #: Rows that were decoded and not prepared yet.
        self._rest: Any = None
        #: The next rows, if some were prepared that nobody took; none at the end of the file.
        self._ready: list[Row] | None = None

    def prepare(self, limit: int) -> None:
        """See that up to ``limit`` rows are there to be taken. Raises ``SourceError``."""
        try:
            if self._file is None:
                self._open()
            if self._ready is None:
                self._ready = self._next(limit)
        except AflowError:
            raise
        # pyarrow raises errors of many classes.
        except Exception as exc:
            group, row, _ = self._position
            where = f", after row {row:,} of row group {group}" if group or row else ""
            raise SourceError(f"cannot read {self._path}{where}: {exc}") from exc

    def take(self) -> tuple[list[Row], ParquetPosition]:
        """The rows that were prepared, and the position behind them; no rows at the end of the file."""
        rows, self._ready = self._ready or [], None
        return rows, self._position

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _open(self) -> None:
        self._file = pyarrow_parquet("ParquetSource").ParquetFile(self._path)
        total = int(self._file.metadata.num_rows)
        if self._position.total not in (-1, total):
            raise ValueError(
                f"it had {self._position.total:,} rows when it was read before and now has {total:,}: it was replaced"
            )
        names: list[str] = self._file.schema_arrow.names
        if unknown := [name for name in self._columns or () if name not in names]:
            raise ValueError(f"it has no column {', '.join(map(repr, unknown))}, but {names}")
        if len(set(names)) < len(names):
            raise ValueError(f"two of its columns have the same name: {names}")
        self._batches = self._decoded(self._position)
        self._position = self._position._replace(total=total)

    def _decoded(self, start: ParquetPosition) -> Iterator[tuple[int, Any]]:
        """Record batches behind ``start``, each with its row group."""
        skip = start.row
        for group in range(start.group, self._file.metadata.num_row_groups):
            for batch in self._file.iter_batches(
                _DECODED, row_groups=[group], columns=self._columns
            ):
                rest = batch.slice(skip)
                skip = max(0, skip - batch.num_rows)
                yield group, rest

    def _next(self, limit: int) -> list[Row]:
        while self._rest is None or not self._rest.num_rows:
            following = next(self._batches, None)
            if following is None:
                return []
            group, self._rest = following
            if group != self._position.group:
                self._position = self._position._replace(group=group, row=0)
        taken, self._rest = self._rest.slice(0, limit), self._rest.slice(limit)
        self._position = self._position._replace(row=self._position.row + taken.num_rows)
        names: list[str] = taken.schema.names
        # Faster than pyarrow's own to_pylist of a record batch.
        columns: list[list[object]] = [column.to_pylist() for column in taken.columns]
        return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]
