"""``DeltaSource``: the rows of a Delta table, version by version.

A position is ``(version, rows, whole)``: the number of rows of that version that were read, and 1 while they are all
rows of the table at that version, 0 while they are those that the version has added or changed. Files of a version are
read in the order of their paths, and rows of a change feed are sorted, so that rows have the same numbers at each
reading.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar, cast

from aflow.connect import BadRecord, Chunk, Position, Reader, Source, SourceError, Split, Tag
from aflow.errors import AflowError, FlowDefinitionError, shown
from aflow_connectors.arguments import checked_dead_letters, checked_interval, checked_texts
from aflow_connectors.bad_records import BadRecords
from aflow_connectors.delta.table import TableLocation
from aflow_connectors.files.arrow_records import Conversion, SchemaMismatch, chunk_of
from aflow_connectors.files.optional import pyarrow
from aflow_connectors.worker_thread import WorkerThread

T = TypeVar("T")

#: Maximum values converted to Python at a time.
_VALUES: Final = 24_576
#: Operations that rewrite files without changing rows.
_REWRITES: Final = frozenset({"OPTIMIZE"})
#: The column of a change feed with the kind of the change.
_KIND: Final = "_change_type"


class ChangeKind(Enum):
    """The effect of a change on a row."""

    INSERT = "insert"
    DELETE = "delete"
    BEFORE = "update_preimage"
    """The row before an update."""
    AFTER = "update_postimage"
    """The row after an update."""


@dataclass(frozen=True, slots=True)
class RowChange(Generic[T]):
    """A change of one row, by the table version ``version``."""

    kind: ChangeKind
    row: T
    version: int


class DeltaSource(Source[T]):
    """Read the rows of the Delta table at ``url``, a path or a URL. It needs ``pip install "aflow-streams[lake]"``.

    The rows of the newest version are read (``start="snapshot"``), or those that the versions after ``start`` have
    added. With ``discover_every`` the source never ends: it looks for new versions at this interval, and reads the rows
    that they add. A version that deletes or updates rows is an error; one that only rewrites files (OPTIMIZE) is not.
    Use ``DeltaChanges`` for tables with a change feed.

    Without ``of`` a row becomes a dict with pyarrow's Python values; with it, as for ``ParquetSource``. ``columns`` and
    ``dead_letters`` are as there. ``client`` are the ``storage_options`` of deltalake. Raises ``SourceError`` with the
    URL and the version, also if VACUUM or the retention of the log removed what was not read.
    """

    max_parallelism = 1

    def __init__(
        self,
        url: str | Path,
        *,
        of: type[T] | None = None,
        start: Literal["snapshot"] | int = "snapshot",
        dead_letters: Tag[BadRecord] | None = None,
        discover_every: timedelta | None = None,
        columns: Sequence[str] | None = None,
        client: Mapping[str, str] | None = None,
    ) -> None:
        owner = type(self).__name__
        checked_dead_letters(owner, dead_letters)
        checked_interval(owner, discover_every)
        if start != "snapshot" and (type(start) is not int or start < 0):
            raise FlowDefinitionError(
                f"{owner}: start= must be 'snapshot' or the number of a version, not {shown(start)}"
            )
        self._location: Final = TableLocation(owner, url, client)
        self._start: Final = start
        self._poll: Final = discover_every
        self._columns: Final = None if columns is None else checked_texts(owner, "columns", columns)
        self._convert: Final = Conversion(owner, of)
        self.dead_letters = dead_letters
        self.bounded = discover_every is None

    async def splits(self) -> Sequence[Split]:
        """Return one split: versions have an order."""
        return [Split(self._location.url)]

    async def reader(self, split: Split, position: Position | None) -> Reader[T]:
        rows = self._rows(TablePosition.of(position, self._location.url))
        return TableReader(rows, BadRecords(self._location.url, self.dead_letters), self._poll)

    def _rows(self, start: TablePosition | None) -> TableRows[T]:
        return TableRows(self._location, start or self._first(), self._columns, self._convert)

    def _first(self) -> TablePosition | None:
        return None if self._start == "snapshot" else TablePosition(self._start + 1, 0, 0)


class DeltaChanges(DeltaSource[RowChange[T]]):
    """Read the changes of a Delta table with a change feed (``delta.enableChangeDataFeed``), as ``RowChange``.

    The rows of the newest version are the first changes, all of kind INSERT (``start="snapshot"``), or the changes
    after the version ``start`` are read. The changes of one version are held in memory. The arguments are as for
    ``DeltaSource``; ``of`` is the type of ``RowChange.row``.
    """

    def __init__(
        self,
        url: str | Path,
        *,
        of: type[T] | None = None,
        start: Literal["snapshot"] | int = "snapshot",
        dead_letters: Tag[BadRecord] | None = None,
        discover_every: timedelta | None = None,
        client: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(
            url,
            start=start,
            dead_letters=dead_letters,
            discover_every=discover_every,
            client=client,
        )
        self._rows_of: Final = Conversion("DeltaChanges", of)

    def _rows(self, start: TablePosition | None) -> TableRows[RowChange[T]]:
        return ChangeRows(self._location, start or self._first(), self._rows_of)


class TablePosition(NamedTuple):
    """Position after a row; plain numbers, so that any codec can store it."""

    version: int
    rows: int
    whole: int

    @classmethod
    def of(cls, position: Position | None, place: str) -> TablePosition | None:
        """Return a checked position from a checkpoint. Raises ``SourceError``."""
        if position is None:
            return None
        if isinstance(position, (tuple, list)):
            parts = cast("Sequence[object]", position)
            numbers = [part for part in parts if isinstance(part, int)]
            if len(numbers) == len(parts) == len(cls._fields):
                return cls(*numbers)
        raise SourceError(f"{place}: {shown(position)} is not a position in a Delta table")


class TableRows(Generic[T]):
    """Rows of a table that were read and not taken yet; ``prepare`` blocks."""

    def __init__(
        self,
        location: TableLocation,
        start: TablePosition | None,
        columns: Sequence[str] | None,
        convert: Conversion[Any],
    ) -> None:
        self.location: Final = location
        self._columns: Final = None if columns is None else list(columns)
        self._convert: Final = convert
        #: After the last row that was taken; None before the table was opened.
        self._position: TablePosition | None = start
        self._blocks: Iterator[list[T | SchemaMismatch]] | None = None
        self._ready: list[T | SchemaMismatch] = []
        self._taken = 0

    @property
    def are_there(self) -> bool:
        return self._taken < len(self._ready)

    def prepare(self) -> None:
        """Prepare rows to be taken, if the table has any that were not read. Raises ``SourceError``."""
        try:
            while not self.are_there:
                if self._blocks is None and not self._open():
                    return
                assert self._blocks is not None
                block = next(self._blocks, None)
                self._ready, self._taken = block or [], 0
                if block is None:
                    assert self._position is not None
                    self._blocks = None
                    self._position = TablePosition(self._position.version + 1, 0, 0)
        except AflowError:
            raise
        # deltalake and pyarrow raise errors of many classes.
        except Exception as exc:
            at = "" if self._position is None else f" at version {self._position.version}"
            raise SourceError(
                f"cannot read {self.location.url}{at}: {self.location.reason(exc)}"
            ) from None

    def take(self, limit: int) -> tuple[list[T | SchemaMismatch], TablePosition]:
        """Return up to ``limit`` prepared rows and the position after them; at least one must be there."""
        rows = self._ready[self._taken : self._taken + limit]
        self._taken += len(rows)
        assert self._position is not None
        self._position = self._position._replace(rows=self._position.rows + len(rows))
        return rows, self._position

    def _open(self) -> bool:
        """Begin the version of the position; return False if there is no such version yet."""
        if self._position is None:
            self._position = TablePosition(self.location.opened().version(), 0, 1)
        elif self._position.version > self.location.opened().version():
            return False
        version, rows, whole = self._position
        self._blocks = self._snapshot(version, rows) if whole else self._changes(version, rows)
        return True

    def _snapshot(self, version: int, skip: int) -> Iterator[list[T | SchemaMismatch]]:
        data = self.location.opened(version).to_pyarrow_dataset()
        return self._converted(self._batches(data, list(data.get_fragments()), skip))

    def _changes(self, version: int, skip: int) -> Iterator[list[T | SchemaMismatch]]:
        """Yield the rows that a version has added. Raises ``SourceError`` if it has changed others."""
        if version == 0:
            return self._snapshot(version, skip)
        table = self.location.opened(version)
        data = table.to_pyarrow_dataset()
        before = {one.path for one in _fragments(self.location.opened(version - 1))}
        files = list(data.get_fragments())
        removed = before - {one.path for one in files}
        if removed:
            operation = self._operation(version)
            if operation in _REWRITES:
                return iter(())
            raise SourceError(
                f"version {version} of {self.location.url} ({operation}) changed or deleted rows, which DeltaSource "
                f"cannot follow: enable the change feed of the table and read it with DeltaChanges"
            )
        added = [one for one in files if one.path not in before]
        return self._converted(self._batches(data, added, skip))

    def _operation(self, version: int) -> str:
        """Return the operation that made a version."""
        table = self.location.opened()
        history = table.history(table.version() - version + 1)
        return next(
            (str(one.get("operation")) for one in history if one.get("version") == version), ""
        )

    def _batches(self, data: Any, fragments: list[Any], skip: int) -> Iterator[Any]:
        columns = self._columns or data.schema.names
        size = max(1, _VALUES // max(1, len(columns)))
        for fragment in sorted(fragments, key=lambda one: one.path):
            if skip and skip >= (rows := fragment.count_rows()):
                skip -= rows
                continue
            for batch in fragment.to_batches(schema=data.schema, columns=columns, batch_size=size):
                rest = batch.slice(skip)
                skip = max(0, skip - batch.num_rows)
                if rest.num_rows:
                    yield rest

    def _converted(self, batches: Iterator[Any]) -> Iterator[list[T | SchemaMismatch]]:
        for batch in batches:
            yield self._convert(batch)


class ChangeRows(TableRows[RowChange[T]]):
    """Changes of a table that were read and not taken yet."""

    def __init__(
        self, location: TableLocation, start: TablePosition | None, convert: Conversion[T]
    ) -> None:
        super().__init__(location, start, None, convert)

    def _snapshot(self, version: int, skip: int) -> Iterator[list[RowChange[T] | SchemaMismatch]]:
        data = self.location.opened(version).to_pyarrow_dataset()
        for batch in self._batches(data, list(data.get_fragments()), skip):
            rows: list[T | SchemaMismatch] = self._convert(batch)
            yield [_change(ChangeKind.INSERT, row, version) for row in rows]

    def _changes(self, version: int, skip: int) -> Iterator[list[RowChange[T] | SchemaMismatch]]:
        if self._operation(version) in _REWRITES:
            return
        arrow = pyarrow("DeltaChanges")
        table = self.location.opened(version)
        if table.metadata().configuration.get("delta.enableChangeDataFeed") != "true":
            # Without a feed deltalake returns what it can infer, without the changes that it cannot.
            raise SourceError(
                f"version {version} of {self.location.url} has no change feed: set delta.enableChangeDataFeed, and "
                f"start after that version"
            )
        read = arrow.RecordBatchReader.from_stream(table.load_cdf(version, version))
        schema = arrow.schema([*arrow.schema(table.schema()), arrow.field(_KIND, arrow.string())])
        changes = read.read_all().select(schema.names).cast(schema)
        whole = _sorted(arrow, changes).slice(skip)
        size = max(1, _VALUES // max(1, whole.num_columns))
        for batch in whole.to_batches(max_chunksize=size):
            kinds = [ChangeKind(one) for one in batch.column(_KIND).to_pylist()]
            names = [name for name in batch.schema.names if name != _KIND]
            rows: list[T | SchemaMismatch] = self._convert(batch.select(names))
            yield [_change(kind, row, version) for kind, row in zip(kinds, rows, strict=True)]


def _change(
    kind: ChangeKind, row: T | SchemaMismatch, version: int
) -> RowChange[T] | SchemaMismatch:
    return row if isinstance(row, SchemaMismatch) else RowChange(kind, row, version)


def _sorted(arrow: Any, table: Any) -> Any:
    """Return the rows of a change feed in an order that is the same at each reading."""
    if any(arrow.types.is_nested(field.type) for field in table.schema):
        texts = [repr(row) for row in table.to_pylist()]
        return table.take(sorted(range(len(texts)), key=texts.__getitem__))
    return table.sort_by([(name, "ascending") for name in table.schema.names])


def _fragments(table: Any) -> list[Any]:
    return list(table.to_pyarrow_dataset().get_fragments())


class TableReader(Reader[T]):
    """Reader of the rows of a table; ``poll`` is the interval at which it looks for new versions; None: it ends."""

    def __init__(self, rows: TableRows[T], bad_records: BadRecords, poll: timedelta | None) -> None:
        self._rows = rows
        self._bad_records = bad_records
        self._poll = poll
        self._blocking = WorkerThread()

    async def read(self, limit: int) -> Chunk[T] | None:
        while not self._rows.are_there:
            await self._blocking.run(self._rows.prepare)
            if self._rows.are_there:
                break
            if self._poll is None:
                return None
            await asyncio.sleep(self._poll.total_seconds())
        rows, position = self._rows.take(limit)
        first = position.rows - len(rows)
        return chunk_of(
            rows,
            tuple(position),
            self._bad_records,
            lambda number: f"version {position.version}, row {first + number:,}",
        )
