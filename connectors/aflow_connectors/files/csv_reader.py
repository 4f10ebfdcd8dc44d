"""Reader of CSV records from lines. A record may take several lines, since fields may contain line feeds."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from aflow.connect import BadRecord, Chunk, Reader, SourceError
from aflow.errors import shown
from aflow_connectors.bad_records import BadRecords
from aflow_connectors.files.lines import Lines
from aflow_connectors.files.source import undecodable

T = TypeVar("T")


class CsvReader(Reader[T]):
    """Reader of CSV records. A position is that of the line, followed by the names of the columns."""

    def __init__(
        self,
        lines: Lines,
        form: CsvFormat,
        columns: tuple[str, ...] | None,
        convert: Callable[[dict[str, str]], T],
        bad_records: BadRecords,
    ) -> None:
        self._lines = lines
        self._format = form
        #: None until the header has been read.
        self._columns = columns
        self._convert = convert
        self._bad_records = bad_records

    async def read(self, limit: int) -> Chunk[T] | None:
        columns = self._columns or await self._read_header()
        while columns:
            lines = self._lines.peek(limit)
            if values := self._simple(columns, lines):
                self._lines.consume(lines)
                return Chunk(values, (*self._lines.position, *columns))
            found = await self._next(limit)
            if not found:
                break
            chunk = self._chunk(columns, found)
            if chunk.values or chunk.rejected:
                return chunk
        return None

    async def close(self) -> None:
        await self._lines.close()

    async def _read_header(self) -> tuple[str, ...] | None:
        """Return the names of the columns; None if the file is empty."""
        while found := await self._next(1):
            row = found[0]
            number = self._lines.position.line + 1
            self._lines.consume(self._lines.peek(row.end))
            if row.fields or row.problem:
                if problem := row.problem or problem_of_columns(row.fields):
                    raise SourceError(
                        f"{self._lines.path}, line {number:,}: bad header: {problem}; if the file has none, "
                        "columns= names the columns"
                    )
                self._columns = tuple(row.fields)
                return self._columns
        return None

    def _simple(self, columns: tuple[str, ...], lines: list[bytes]) -> list[T]:
        """Return the records of ``lines`` if each line is a valid one without quotes, twice as fast; none otherwise."""
        records = simple_rows(lines, self._format)
        if set(map(len, records)) != {len(columns)}:
            return []
        convert = self._convert
        try:
            return [convert(dict(zip(columns, fields, strict=True))) for fields in records]
        except ValueError:
            return []

    async def _next(self, limit: int) -> list[CsvRow]:
        """Return up to ``limit`` records, at least one, without consuming them; none at the end of the file."""
        window = limit
        while True:
            lines = self._lines.peek(window)
            final = self._lines.ended and self._lines.are_all(lines)
            found = rows(lines, self._format, final=final)
            if found or final:
                return found[:limit]
            # Not even one: the first record continues after these lines.
            if self._lines.are_all(lines):
                self._check_size(lines)
                await self._lines.more()
            window = 2 * max(window, len(lines))

    def _check_size(self, lines: Sequence[bytes]) -> None:
        if sum(map(len, lines)) > self._format.max_record_bytes:
            raise SourceError(
                f"{self._lines.path}, line {self._lines.position.line + 1:,}: the record is longer than "
                f"max_line_bytes = {self._format.max_record_bytes:,}; a quote that is never closed?"
            )

    def _chunk(self, columns: tuple[str, ...], found: Sequence[CsvRow]) -> Chunk[T]:
        lines = self._lines.peek(found[-1].end)
        values: list[T] = []
        rejected: list[BadRecord] = []
        begin = 0
        for row in found:
            try:
                if row.fields or row.problem:
                    values.append(self._convert(_record(columns, row)))
            except ValueError as exc:
                reason = f"{exc}{_hint(str(exc), columns)}"
                rejected.append(self._bad(row, lines, begin, reason))
            begin = row.end
        self._lines.consume(lines)
        return Chunk(values, (*self._lines.position, *columns), rejected=rejected)

    def _bad(self, row: CsvRow, lines: Sequence[bytes], begin: int, reason: str) -> BadRecord:
        where = f"line {self._lines.position.line + begin + 1:,}"
        if row.endless:
            raise SourceError(f"{self._lines.path}, {where}: {reason}; {row.endless}")
        return self._bad_records.bad(
            where, reason, b"".join(lines[begin : row.end]).removesuffix(b"\n")
        )


def problem_of_columns(names: Sequence[str]) -> str:
    """Return why ``names`` cannot be the columns; empty if they can."""
    if not names:
        return "there are no columns"
    twice = sorted({name for name in names if names.count(name) > 1})
    return f"duplicate names: {', '.join(map(repr, twice))}" if twice else ""


def _hint(reason: str, columns: Sequence[str]) -> str:
    """Return advice on the whole file if a declared column is missing."""
    if "missing required field" not in reason:
        return ""
    return (
        f", the columns are {shown(tuple(columns))}; if these are no names of columns, delimiter= says what "
        "separates them, and columns= names them where the file does not"
    )


def _record(columns: Sequence[str], row: CsvRow) -> dict[str, str]:
    if row.problem:
        raise ValueError(row.problem)
    if len(row.fields) != len(columns):
        raise ValueError(
            f"it has {len(row.fields)} fields, but there are {len(columns)} columns {shown(tuple(columns))}"
        )
    return dict(zip(columns, row.fields, strict=True))


@dataclass(frozen=True, slots=True)
class CsvFormat:
    """Format of a CSV file."""

    delimiter: str
    encoding: str
    max_record_bytes: int


@dataclass(slots=True)
class CsvRow:
    """A record or its problem; without fields for a blank line."""

    fields: list[str]
    #: Index of the line after it.
    end: int
    problem: str = ""
    #: Set if the end of the record is unknown, so that it cannot be skipped: advice for the user.
    endless: str = ""


class _IncompleteRecord(Exception):
    """The buffered lines end inside a record, and the file continues."""


def rows(lines: Sequence[bytes], form: CsvFormat, *, final: bool) -> list[CsvRow]:
    """Return the records that are complete in ``lines``; all of them if these are the ``final`` lines of the file."""
    texts, is_text = _decoded(lines, form.encoding)
    reader = csv.reader(_feed(texts, final=final), delimiter=form.delimiter, strict=True)
    found: list[CsvRow] = []
    while not (found and found[-1].endless):
        try:
            row = CsvRow(next(reader), reader.line_num)
        except (StopIteration, _IncompleteRecord):
            break
        except csv.Error as exc:
            row = CsvRow([], reader.line_num, str(exc), endless=_endless(str(exc)))
        if not is_text and not row.problem:
            row.problem = _problem_of_text(row.fields, form.encoding)
        found.append(row)
    return found


def simple_rows(lines: Sequence[bytes], form: CsvFormat) -> list[list[str]]:
    """Return the fields of each of ``lines`` if all are valid and there is no quote; an empty list otherwise."""
    content = b"".join(lines).removesuffix(b"\n")
    if b'"' in content:
        return []
    try:
        texts = content.decode(form.encoding).split("\n")
        records = list(csv.reader(texts, delimiter=form.delimiter, strict=True))
    except (UnicodeDecodeError, csv.Error):
        return []
    # In UTF-7 a line feed may be written in letters, and is part of a line then.
    return records if len(records) == len(lines) else []


def _endless(problem: str) -> str:
    """Return advice on a record whose end is unknown; empty for one that ends with its line."""
    if "field limit" in problem:
        return "a quote that is never closed? If not, csv.field_size_limit(n) raises the limit"
    # Strict mode reports this only inside quotes. Skipping the record would skip all valid ones after it.
    if "unexpected end of data" in problem:
        return "the file ends inside quotes, so a quote of this record is never closed"
    return ""


def _feed(texts: Sequence[str], *, final: bool) -> Iterator[str]:
    yield from texts
    if not final:
        # If the input just ended, the parser would report the record that it is parsing as broken.
        raise _IncompleteRecord


def _decoded(lines: Sequence[bytes], encoding: str) -> tuple[list[str], bool]:
    """Return the lines as str, and False if they contain undecodable bytes, which are escaped."""
    try:
        return [line.decode(encoding) for line in lines], True
    except UnicodeDecodeError:
        # The ends of records must still be found, so undecodable lines are parsed too.
        return [line.decode(encoding, "surrogateescape") for line in lines], False


def _problem_of_text(fields: Sequence[str], encoding: str) -> str:
    for number, field in enumerate(fields, start=1):
        try:
            field.encode(encoding, "surrogateescape").decode(encoding)
        except UnicodeDecodeError as exc:
            return f"in field {number}, {undecodable(exc)}"
    return ""
