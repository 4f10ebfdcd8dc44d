"""Lines become the fields of CSV records."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from aflow_connectors.files.source import undecodable


@dataclass(frozen=True, slots=True)
class CsvFormat:
    """What has to be known to read a CSV file."""

    delimiter: str
    encoding: str
    max_record_bytes: int


@dataclass(slots=True)
class Row:
    """A record, or what is wrong with it; without fields for a blank line."""

    fields: list[str]
    #: Index of the line behind it.
    end: int
    problem: str = ""
    #: Set if nobody can tell where the record ends, so that it cannot be left out: what to do then.
    endless: str = ""


class _Cut(Exception):
    """The lines at hand end, but not the file."""


def rows(lines: Sequence[bytes], form: CsvFormat, *, final: bool) -> list[Row]:
    """The records that are complete in ``lines``; all of them if these lines are the ``final`` ones of the file."""
    texts, is_text = _decoded(lines, form.encoding)
    reader = csv.reader(_feed(texts, final=final), delimiter=form.delimiter, strict=True)
    found: list[Row] = []
    while not (found and found[-1].endless):
        try:
            row = Row(next(reader), reader.line_num)
        except (StopIteration, _Cut):
            break
        except csv.Error as exc:
            row = Row([], reader.line_num, str(exc), endless=_endless(str(exc)))
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
        raise _Cut


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
