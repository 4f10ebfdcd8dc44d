"""``CsvSource``: records of fields, which may be quoted and then contain line feeds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from pathlib import Path
from typing import ClassVar, Final, TypeVar, cast, overload

import msgspec

from aflow.connect import BadRecord, Position, Reader, SourceError, Tag
from aflow.errors import FlowDefinitionError
from aflow_connectors.arguments import checked_texts
from aflow_connectors.bad_records import BadRecords
from aflow_connectors.files.arguments import (
    checked_delimiter,
    checked_encoding,
    checked_line_bound,
)
from aflow_connectors.files.csv_reader import CsvFormat, CsvReader, problem_of_columns
from aflow_connectors.files.input_file import InputFile
from aflow_connectors.files.lines import LinePosition, Lines
from aflow_connectors.files.source import MAX_LINE_BYTES, FileSource

T = TypeVar("T")

_LINE_NUMBERS: Final = len(LinePosition._fields)


class CsvSource(FileSource[T]):
    """Read records from CSV files, as ``csv`` of the standard library does in strict mode; blank lines are skipped.

    The first record of each file names the columns, unless ``columns`` does (then all records are data). Without ``of``
    a record becomes a dict of str. With ``of`` its fields are converted to the declared numbers, booleans, dates and so
    on; a field whose text is in ``missing`` becomes None. Columns that ``of`` does not declare are ignored.

    Bad records (too few or too many fields, text that cannot be converted, broken quotes) are handled as bad lines of
    ``JsonLinesSource``, and so are ``path``, ``encoding``, ``max_line_bytes`` (here of a whole record),
    ``discover_every`` and ``concurrency``. In a folder, files that end in ``.csv`` or ``.tsv`` are read, also with
    ``.gz`` or ``.zst`` appended. A field has at most ``csv.field_size_limit()`` characters (131,072). A longer one is
    always an error, since a quote that is never closed looks the same; so is a file that ends inside quotes.
    """

    suffixes: ClassVar[Sequence[str]] = tuple(
        f".{name}{codec}" for name in ("csv", "tsv") for codec in ("", ".gz", ".zst")
    )

    @overload
    def __init__(
        self: CsvSource[dict[str, str]],
        path: str | Path,
        *,
        of: None = None,
        columns: Sequence[str] | None = None,
        delimiter: str = ",",
        dead_letters: Tag[BadRecord] | None = None,
        encoding: str = "utf-8",
        max_line_bytes: int = MAX_LINE_BYTES,
        discover_every: timedelta | None = None,
        concurrency: int | None = 1,
    ) -> None: ...

    @overload
    def __init__(
        self,
        path: str | Path,
        *,
        of: type[T],
        columns: Sequence[str] | None = None,
        delimiter: str = ",",
        missing: Collection[str] = (),
        dead_letters: Tag[BadRecord] | None = None,
        encoding: str = "utf-8",
        max_line_bytes: int = MAX_LINE_BYTES,
        discover_every: timedelta | None = None,
        concurrency: int | None = 1,
    ) -> None: ...

    def __init__(
        self,
        path: str | Path,
        *,
        of: type[T] | None = None,
        columns: Sequence[str] | None = None,
        delimiter: str = ",",
        missing: Collection[str] = (),
        dead_letters: Tag[BadRecord] | None = None,
        encoding: str = "utf-8",
        max_line_bytes: int = MAX_LINE_BYTES,
        discover_every: timedelta | None = None,
        concurrency: int | None = 1,
    ) -> None:
        super().__init__(
            path,
            dead_letters=dead_letters,
            discover_every=discover_every,
            concurrency=concurrency,
        )
        missing = checked_texts("CsvSource", "missing", missing)
        if columns is not None:
            columns = checked_texts("CsvSource", "columns", columns)
        if of is None and missing:
            raise FlowDefinitionError(
                "CsvSource: missing= says which texts become None, which needs of="
            )
        if columns is not None and (problem := problem_of_columns(columns)):
            raise FlowDefinitionError(f"CsvSource: columns= {problem}")
        self._format = CsvFormat(
            checked_delimiter("CsvSource", delimiter),
            checked_encoding("CsvSource", encoding),
            checked_line_bound("CsvSource", max_line_bytes),
        )
        self._columns = None if columns is None else tuple(columns)
        self._convert = _conversion(of, frozenset(missing))

    def file_reader(self, path: InputFile, position: Position | None) -> Reader[T]:
        start, columns = _start(position, path)
        lines = Lines(path, start, self._format.max_record_bytes)
        bad_records = BadRecords(path, self.dead_letters)
        return CsvReader(lines, self._format, columns or self._columns, self._convert, bad_records)


def _start(position: Position, path: InputFile) -> tuple[LinePosition, tuple[str, ...] | None]:
    """Return the line position and the columns in the position of a ``CsvReader``."""
    if position is None:
        return LinePosition(), None
    if isinstance(position, (tuple, list)):
        parts = cast(Sequence[object], position)
        names = [part for part in parts[_LINE_NUMBERS:] if isinstance(part, str)]
        if names and len(names) == len(parts) - _LINE_NUMBERS:
            return LinePosition.of(parts[:_LINE_NUMBERS], path), tuple(names)
    raise SourceError(f"{path}: {position!r} is not a position in a CSV file")


def _conversion(of: type[T] | None, missing: frozenset[str]) -> Callable[[dict[str, str]], T]:
    if of is None:
        # The overloads of the constructor make T a dict of str here.
        return lambda record: cast(T, record)
    try:
        msgspec.json.Decoder(of)
    except TypeError as exc:
        raise FlowDefinitionError(f"CsvSource: cannot convert into {of!r}: {exc}") from exc
    if not missing:
        return lambda record: msgspec.convert(record, of, strict=False)
    return lambda record: msgspec.convert(
        {name: None if text in missing else text for name, text in record.items()}, of, strict=False
    )
