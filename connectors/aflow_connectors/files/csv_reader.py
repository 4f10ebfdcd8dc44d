"""Reads CSV records from lines: as many lines as a record takes, because fields may hold line feeds."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from aflow.connect import BadRecord, Chunk, Reader, SourceError
from aflow.errors import shown
from aflow_connectors.files.lines import Lines
from aflow_connectors.files.source import BadRecords, undecodable

T = TypeVar("T")


class CsvReader(Reader[T]):
    """Reads records of CSV. A position is that of the line, followed by the names of the columns."""

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
        """The names of the columns; None if there is nothing in the file."""
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
        """The records of ``lines`` if each line is a good one without quotes, twice as fast; none otherwise."""
        records = simple_rows(lines, self._format)
        if set(map(len, records)) != {len(columns)}:
            return []
        convert = self._convert
        try:
            return [convert(dict(zip(columns, fields, strict=True))) for fields in records]
        except ValueError:
            return []

    async def _next(self, limit: int) -> list[CsvRow]:
        """Up to ``limit`` records, at least one; none at the end of the file. They are not consumed by that."""
        window = limit
        while True:
            lines = self._lines.peek(window)
            final = self._lines.ended and len(lines) == len(self._lines)
            found = rows(lines, self._format, final=final)
            if found or final:
                return found[:limit]
            # Not even one: the first record goes on behind the lines looked at.
            if len(lines) == len(self._lines):
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
        return self._bad_records.bad(where, reason, b"\n".join(lines[begin : row.end]))


def problem_of_columns(names: Sequence[str]) -> str:
    """Why these cannot be the names of columns; empty if they can."""
    if not names:
        return "there are no columns"
    twice = sorted({name for name in names if names.count(name) > 1})
    return f"a name stands twice: {', '.join(map(repr, twice))}" if twice else ""


def _hint(reason: str, columns: Sequence[str]) -> str:
    """What may be wrong with the whole file where a declared column is not there."""
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
    """What has to be known to read a CSV file."""

    delimiter: str
    encoding: str
    max_record_bytes: int


@dataclass(slots=True)
class CsvRow:
    """A record, or what is wrong with it; without fields for a blank line."""

    fields: list[str]
    #: Index of the line behind it.
    end: int
    problem: str = ""
    #: Set if nobody can tell where the record ends, so that it cannot be left out: what to do then.
    endless: str = ""


class _IncompleteRecord(Exception):
    """The lines at hand end, but not the file."""


def rows(lines: Sequence[bytes], form: CsvFormat, *, final: bool) -> list[CsvRow]:
    """The records that are complete in ``lines``; all of them if these lines are the ``final`` ones of the file."""
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
    """The fields of each of ``lines`` if all are good and there is no quote; nothing where it is not that simple."""
    content = b"\n".join(lines)
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
    """What to do about a record whose end nobody can tell; empty for one that ends where its line does."""
    if "field limit" in problem:
        return "a quote that is never closed? If not, csv.field_size_limit(n) raises the limit"
    # Strict mode reports this only inside quotes. To leave the record out would leave out all good ones behind it.
    if "unexpected end of data" in problem:
        return "the file ends inside quotes, so a quote of this record is never closed"
    return ""


def _feed(texts: Sequence[str], *, final: bool) -> Iterator[str]:
    for text in texts:
        yield text + "\n"
    if not final:
        # A mere end would make the parser call the record that it is in the middle of broken.
        raise _IncompleteRecord


def _decoded(lines: Sequence[bytes], encoding: str) -> tuple[list[str], bool]:
    """The lines as str, and False if bytes that are no text stand in them, escaped."""
    try:
        return [line.decode(encoding) for line in lines], True
    except UnicodeDecodeError:
        # Where records end is still to be found, so a line that is no text goes through the parser, too.
        return [line.decode(encoding, "surrogateescape") for line in lines], False


def _problem_of_text(fields: Sequence[str], encoding: str) -> str:
    for number, field in enumerate(fields, start=1):
        try:
            field.encode(encoding, "surrogateescape").decode(encoding)
        except UnicodeDecodeError as exc:
            return f"in field {number}, {undecodable(exc)}"
    return ""
