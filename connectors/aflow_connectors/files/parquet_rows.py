"""Rows of a Parquet file, read in small batches, with a position after each row."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from io import BufferedReader
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, TypeVar

from aflow.connect import Position, SourceError
from aflow.errors import AflowError
from aflow_connectors.files.arrow_values import with_leaves
from aflow_connectors.files.input_file import InputFile
from aflow_connectors.files.optional import pyarrow, pyarrow_parquet
from aflow_connectors.files.source import numbers_of

V = TypeVar("V")

#: Maximum rows decoded and converted to Python values at a time: each batch is a hop to a thread and back.
_DECODED: Final = 8192
#: Maximum values converted to Python at a time: a thousand of them hold the GIL for some 150 µs.
_VALUES: Final = 24_576


class ParquetPosition(NamedTuple):
    """Position after a row; plain numbers, so that any codec can store it."""

    group: int = 0
    #: Number of rows of the group that were read.
    row: int = 0
    #: Rows of the file, by which a replaced file is detected.
    total: int = -1

    @classmethod
    def of(cls, position: Position, path: InputFile) -> ParquetPosition:
        """Return a checked position from a checkpoint. Raises ``SourceError``."""
        return cls(*numbers_of(position, len(cls._fields), path, "a Parquet file"))


class ParquetRows(Generic[V]):
    """Rows of a file; ``convert`` makes them of record batches.

    ``prepare`` and ``close`` are for worker threads: they block.
    """

    def __init__(
        self,
        path: InputFile,
        start: ParquetPosition,
        columns: list[str] | None,
        convert: Callable[[Any], list[V]],
    ) -> None:
        self._path = path
        #: After the last row that was taken.
        self._position: ParquetPosition = start
        self._columns = columns
        self._convert = convert
        # pyarrow has no types.
        self._file: Any = None
        self._blocks: Iterator[tuple[int, list[V]]] = iter(())
        #: Row group of the prepared rows, these rows, and the number of them that were taken.
        self._group = start.group
        self._rows: list[V] = []
        self._taken = 0

    @property
    def are_there(self) -> bool:
        """Return True if rows can be taken without preparing any."""
        return self._taken < len(self._rows)

    def prepare(self) -> None:
        """Prepare rows to be taken, unless the file has ended. Raises ``SourceError``."""
        try:
            if self._file is None:
                self._open()
            if not self.are_there:
                block = next(self._blocks, None)
                self._rows, self._taken = [], 0
                if block is not None:
                    self._group, self._rows = block
        except AflowError:
            raise
        # pyarrow raises errors of many classes.
        except Exception as exc:
            group, row, _ = self._position
            where = f", after row {row:,} of row group {group}" if group or row else ""
            raise SourceError(f"cannot read {self._path}{where}: {exc}") from exc

    def take(self, limit: int) -> tuple[list[V], ParquetPosition]:
        """Return up to ``limit`` prepared rows and the position after them; none at the end of the file."""
        rows = self._rows[self._taken : self._taken + limit]
        self._taken += len(rows)
        if self._group != self._position.group:
            self._position = self._position._replace(group=self._group, row=0)
        self._position = self._position._replace(row=self._position.row + len(rows))
        return rows, self._position

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def _open(self) -> None:
        parquet = pyarrow_parquet("ParquetSource")
        file = self._file = parquet.ParquetFile(self._input(), page_checksum_verification=True)
        instants = InstantsOfSpark.of(file)
        if instants is not None:
            file.close()
            # Decoded as ns, distant timestamps would overflow.
            file = self._file = parquet.ParquetFile(
                self._input(), coerce_int96_timestamp_unit="us", page_checksum_verification=True
            )
        total = int(file.metadata.num_rows)
        if self._position.total not in (-1, total):
            raise ValueError(
                f"it had {self._position.total:,} rows when it was read before and now has {total:,}: it was replaced"
            )
        metadata = file.metadata
        by_group = sum(metadata.row_group(n).num_rows for n in range(metadata.num_row_groups))
        if by_group != total:
            raise ValueError(
                f"it is damaged: its footer counts {total:,} rows, and its row groups {by_group:,}"
            )
        names: list[str] = file.schema_arrow.names
        if unknown := [name for name in self._columns or () if name not in names]:
            raise ValueError(f"it has no column {', '.join(map(repr, unknown))}, but {names}")
        if len(set(names)) < len(names):
            raise ValueError(f"two of its columns have the same name: {names}")
        self._blocks = self._decoded(self._position, instants)
        self._position = self._position._replace(total=total)

    def _input(self) -> Path | BufferedReader:
        # pyarrow reads a file of its own without the GIL.
        return self._path if isinstance(self._path, Path) else self._path.open("rb")

    def _decoded(
        self, start: ParquetPosition, instants: InstantsOfSpark | None
    ) -> Iterator[tuple[int, list[V]]]:
        """Yield rows after ``start``, in small batches, each with its row group."""
        skip = start.row
        metadata = self._file.metadata
        for group in range(start.group, metadata.num_row_groups):
            left = int(metadata.row_group(group).num_rows) if metadata.num_columns else 0
            for batch in self._file.iter_batches(
                _DECODED, row_groups=[group], columns=self._columns
            ):
                left -= batch.num_rows
                rest = batch.slice(skip)
                skip = max(0, skip - batch.num_rows)
                if instants is not None:
                    rest = instants.corrected(rest)
                prepared = max(1, _VALUES // max(1, rest.num_columns))
                for begin in range(0, rest.num_rows, prepared):
                    yield group, self._convert(rest.slice(begin, prepared))
            if left:
                # A damaged header of a page, which no checksum covers, lets pyarrow skip the page.
                raise ValueError(f"it is damaged: row group {group} has {left:,} rows too few")


#: Key of Spark's version in its files.
_SPARK: Final = b"org.apache.spark.version"


class InstantsOfSpark:
    """Correct types of the columns in which Spark wrote instants without time zone.

    By default Spark writes a TIMESTAMP, which is an instant, as INT96. This type has no time zone, so pyarrow reads it
    as a local time. Spark's TIMESTAMP_NTZ, which is a local time, has another type.
    """

    def __init__(self, types: dict[str, Any]) -> None:
        self._types = types

    @classmethod
    def of(cls, file: Any) -> InstantsOfSpark | None:
        """Return the corrections for a ``ParquetFile``; None if there are none."""
        if _SPARK not in (file.metadata.metadata or {}):
            return None
        arrow = pyarrow("ParquetSource")
        leaves = [file.schema.column(number) for number in range(len(file.schema))]
        old = iter([leaf.physical_type == "INT96" for leaf in leaves])
        types = {
            field.name: with_leaves(
                arrow, field.type, lambda leaf: arrow.timestamp("us", "UTC") if next(old) else leaf
            )
            for field in file.schema_arrow
        }
        known = {field.name: field.type for field in file.schema_arrow}
        differing = {name: kind for name, kind in types.items() if kind != known[name]}
        return cls(differing) if differing else None

    def corrected(self, batch: Any) -> Any:
        """Return ``batch`` with its instants in UTC."""
        for number, name in enumerate(batch.schema.names):
            if name in self._types:
                column = batch.column(number).cast(self._types[name])
                batch = batch.set_column(number, name, column)
        return batch
