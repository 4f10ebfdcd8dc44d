"""``CsvSink``: CSV files with a header."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from io import StringIO
from pathlib import Path
from typing import Final, TypeVar
from uuid import UUID

import orjson

from aflow.connect import SinkError, Writer
from aflow.errors import FlowDefinitionError, shown
from aflow_connectors.arguments import checked_texts
from aflow_connectors.fields import fields_of, rfc3339
from aflow_connectors.files.arguments import checked_delimiter
from aflow_connectors.files.output.bytes_writer import BytesWriter
from aflow_connectors.files.output.file_sink import FileSink
from aflow_connectors.files.output.output_file import SinkOutput
from aflow_connectors.worker_thread import WorkerThread

T = TypeVar("T")

_AS_THEY_ARE: Final = frozenset({str, int, float, type(None)})


class CsvSink(FileSink[T]):
    """Write CSV with a header: records are dicts, dataclasses, ``msgspec.Struct`` or NamedTuples.

    ``columns`` are the fields to write, in this order; others are dropped. Without it the fields of the first record
    are the columns, and a record with others is an error. None becomes an empty field, datetimes and dates ISO 8601,
    booleans ``true`` and ``false``, lists and dicts JSON. Without any record and without ``columns`` the file is empty.

    ``path`` and ``overwrite``, and the effect of checkpoints, are as for ``JsonLinesSink``; a folder gets files
    ``part-00000.csv`` and so on, each with a header. Raises ``SinkError`` with the path and, for an invalid record, the
    record.
    """

    suffix = ".csv"

    def __init__(
        self,
        path: str | Path,
        *,
        columns: Sequence[str] | None = None,
        delimiter: str = ",",
        overwrite: bool = False,
    ) -> None:
        if columns is not None:
            columns = checked_texts("CsvSink", "columns", columns)
        if columns is not None and (not columns or len(set(columns)) < len(columns)):
            raise FlowDefinitionError(
                f"CsvSink: columns must be different names, at least one, not {columns!r}"
            )
        super().__init__(path, overwrite=overwrite)
        self.columns = None if columns is None else tuple(columns)
        self.delimiter = checked_delimiter("CsvSink", delimiter)

    def writer_into(self, output: SinkOutput, blocking: WorkerThread) -> Writer[T]:
        encoder = _Encoder(output, self.columns, self.delimiter)
        return BytesWriter(output, blocking, encoder.encode, head=encoder.header)


class _Encoder:
    def __init__(self, output: SinkOutput, columns: tuple[str, ...] | None, delimiter: str) -> None:
        self._output = output
        #: None until the first record is known.
        self._columns = columns
        #: True if a record may have no other fields than the columns.
        self._exact = columns is None
        self._delimiter = delimiter

    def header(self) -> bytes:
        """Return the first line of a file; empty while the columns are unknown."""
        return b"" if self._columns is None else self._lines([self._columns])

    def encode(self, records: Sequence[object]) -> bytes:
        header = b""
        if self._columns is None and records:
            self._columns = tuple(self._fields(records[0]))
            header = self.header()
        rows = [self._row(record) for record in records]
        try:
            return header + self._lines(rows)
        except UnicodeEncodeError:
            for record, row in zip(records, rows, strict=True):
                self._check_text(record, row)
            raise

    def _row(self, record: object) -> list[object]:
        fields = self._fields(record)
        columns = self._columns or ()
        if self._exact and len(fields) != len(columns):
            raise self._error(record, f"its fields are not the columns {columns}")
        try:
            return [
                value if type(value := fields[name]) in _AS_THEY_ARE else _text(value)
                for name in columns
            ]
        except KeyError as exc:
            raise self._error(record, f"it has no field {exc}") from exc
        except TypeError as exc:
            raise self._error(record, str(exc)) from exc

    def _check_text(self, record: object, row: Sequence[object]) -> None:
        for value in row:
            try:
                str(value).encode()
            except UnicodeEncodeError as exc:
                raise self._error(
                    record, f"{exc.object[exc.start]!r} is not text: {exc.reason}"
                ) from exc

    def _fields(self, record: object) -> Mapping[str, object]:
        try:
            return fields_of(record)
        except TypeError as exc:
            raise self._error(record, str(exc)) from exc

    def _error(self, record: object, reason: str) -> SinkError:
        return self._output.unwritable(f"record {shown(record)} as CSV", reason)

    def _lines(self, rows: Sequence[Sequence[object]]) -> bytes:
        text = self._formatted(rows)
        if "\r" in text:
            # The writer quotes line ends only if they are the ones that it writes itself.
            text = self._formatted(rows, quote_all=True)
        return text.encode()

    def _formatted(self, rows: Sequence[Sequence[object]], *, quote_all: bool = False) -> str:
        text = StringIO()
        writer = csv.writer(
            text,
            delimiter=self._delimiter,
            lineterminator="\n",
            quoting=csv.QUOTE_ALL if quote_all else csv.QUOTE_MINIMAL,
        )
        writer.writerows(rows)
        return text.getvalue()


def _text(value: object) -> str:
    """Return ``value`` as text. Raises ``TypeError`` for types that CSV cannot hold."""
    match value:
        case Enum():
            return _text(value.value)
        case bool():
            return "true" if value else "false"
        case datetime():
            return rfc3339(value)
        case date() | time():
            return value.isoformat()
        case str() | int() | float() | Decimal() | UUID():
            return str(value)
        case None:
            return ""
        case _:
            return orjson.dumps(value).decode()
