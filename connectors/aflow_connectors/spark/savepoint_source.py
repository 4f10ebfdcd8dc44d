"""Savepoints and checkpoints as a DataFrame.

::

    spark.dataSource.register(SavepointSource)
    state = spark.read.format("aflow-savepoint").load("savepoints/july")
    state.where("kind = 'window'").groupBy("operator", "window_start").count()

This module needs pyspark as soon as it is imported, since a data source is a class of its.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final, NamedTuple, cast

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import (
    DataType,
    IntegerType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from aflow.backfill.contents import StateRow, StoredPart, rows_of, stored_parts
from aflow.errors import FlowDefinitionError, RestoreError
from aflow.model.time import Timestamp, to_datetime

_COLUMNS: Final[Sequence[tuple[str, DataType, bool]]] = (
    ("operator", StringType(), False),
    ("what", StringType(), False),
    ("subtask", IntegerType(), False),
    ("key_group", IntegerType(), True),
    ("key", StringType(), True),
    ("kind", StringType(), False),
    ("state", StringType(), False),
    ("value", StringType(), False),
    ("timer", TimestampType(), True),
    ("window_start", TimestampType(), True),
    ("window_end", TimestampType(), True),
)

_SCHEMA: Final = StructType([StructField(*column) for column in _COLUMNS])

_OPTIONS: Final = frozenset({"path", "operator"})

#: Range of Spark's timestamps in epoch ms: the years 1 to 9999.
_FIRST: Final = -62_135_596_800_000
_LAST: Final = 253_402_300_799_999


class SavepointSource(DataSource):
    """``aflow-savepoint``: one row for each stored item, such as a state of a key, a timer, or a source position.

    ``.load(path)`` takes a savepoint, a folder of checkpoints (the newest is read), or one manifest. Each part in it is
    read by its own task, so all executors must be able to read the path. ``.option("operator", name)`` reads that step
    only. The source is read-only and does not need the code of the pipeline.

    ``operator``
        Name of the step; ``what`` is the method that created it, ``subtask`` the one that stored the row.
    ``key_group``, ``key``
        The key as JSON, as ``aflow savepoint keys`` shows it; null for state that does not belong to keys.
    ``kind``
        ``value``, ``list``, ``map`` … for declared state, ``broadcast``, ``timer``, ``window``, ``keyed`` (other keyed
        state of a step: the two sides of a join, say) or ``operator`` (source positions, watermarks …).
    ``state``, ``value``
        Name and content of the state, the latter as JSON.
    ``timer``
        Time at which it fires; ``window_start`` and ``window_end`` are the bounds of a window. The end is null for
        windows of a fixed size that are stored by their starts. A time outside Spark's range is null.
    """

    @classmethod
    def name(cls) -> str:
        return "aflow-savepoint"

    def schema(self) -> StructType:
        return _SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        """Raise ``FlowDefinitionError`` for unknown options and for a schema given by the user."""
        if schema.names != _SCHEMA.names:
            raise FlowDefinitionError(
                f"aflow-savepoint has the columns {', '.join(_SCHEMA.names)}; leave .schema(…) out and select some"
            )
        options = self.options
        unknown = sorted(set(options) - _OPTIONS)
        if unknown:
            raise FlowDefinitionError(
                f"aflow-savepoint has no option {unknown[0]!r}; it has 'operator', the name of a step"
            )
        if "path" not in options:
            raise FlowDefinitionError(
                'aflow-savepoint needs the folder of a savepoint: .format("aflow-savepoint").load("savepoints/july")'
            )
        return SavepointReader(options["path"], options.get("operator"))


class _Reading(InputPartition):
    """Partition of the DataFrame: one stored part."""

    def __init__(self, part: StoredPart) -> None:
        super().__init__(part)
        self.part = part


class SavepointReader(DataSourceReader):
    """Reader of a savepoint, part by part."""

    def __init__(self, path: str, operator: str | None = None) -> None:
        self._path = path
        self._operator = operator

    def partitions(self) -> Sequence[InputPartition]:
        """Raise ``RestoreError`` if there is no savepoint, or if it has no such step."""
        return [_Reading(part) for part in stored_parts(self._path, operator=self._operator)]

    def read(self, partition: InputPartition) -> Iterator[tuple[object, ...]]:
        """Yield the rows of a part, on an executor. Raises ``RestoreError`` for a missing or damaged part."""
        part = cast("_Reading", partition).part
        try:
            for row in rows_of(part):
                yield _columns(row)
        except RestoreError as exc:
            raise RestoreError(_advice(exc, part)) from exc


class _Columns(NamedTuple):
    """Columns of a row, in the order of the schema."""

    operator: str
    what: str
    subtask: int
    key_group: int | None
    key: str | None
    kind: str
    state: str
    value: str
    timer: datetime | None
    window_start: datetime | None
    window_end: datetime | None


def _columns(row: StateRow) -> _Columns:
    return _Columns(
        row.operator,
        row.what,
        row.subtask,
        row.key_group,
        row.key,
        row.kind,
        row.state,
        row.value,
        _moment(row.timer),
        _moment(row.window_start),
        _moment(row.window_end),
    )


def _moment(at: Timestamp | None) -> datetime | None:
    if at is None or not _FIRST <= at <= _LAST:
        return None
    return to_datetime(at)


def _advice(error: RestoreError, part: StoredPart) -> str:
    """Return the error message, with advice if this machine does not have the folder."""
    if os.path.isdir(part.folder):
        return str(error)
    return (
        f"{error}: host {socket.gethostname()!r}, on which an executor runs, has no folder {part.folder!r}; put the "
        f"savepoint where all executors can read it under the same path"
    )
