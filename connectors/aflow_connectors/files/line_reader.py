"""Files in which each line is a record of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import orjson

from aflow.connect import BadRecord, Chunk, Reader
from aflow_connectors.files.lines import Lines
from aflow_connectors.files.source import BadRecords, undecodable

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LineParser(Generic[T]):
    """How lines become records. Both raise ``ValueError`` for a line that is none."""

    one: Callable[[bytes], T]
    many: Callable[[list[bytes]], list[T]]
    """The same for many lines at once, as fast as it goes; the first bad line spoils all."""
    encoding: str
    skip_blank: bool


class LineReader(Reader[T]):
    """Reads records of one line each."""

    def __init__(self, lines: Lines, parser: LineParser[T], bad_records: BadRecords) -> None:
        self._lines = lines
        self._parser = parser
        self._bad_records = bad_records

    # Hot: `python -m bench files`.
    async def read(self, limit: int) -> Chunk[T] | None:
        while True:
            lines = self._lines.peek(limit)
            if lines:
                values, rejected = self._parse(lines)
                self._lines.consume(lines)
                if values or rejected:
                    return Chunk(values, tuple(self._lines.position), rejected=rejected)
            elif not await self._lines.more():
                return None

    async def close(self) -> None:
        await self._lines.close()

    def _parse(self, lines: list[bytes]) -> tuple[list[T], list[BadRecord]]:
        try:
            return self._parser.many(lines), []
        except ValueError:
            return self._parse_one_by_one(lines)

    def _parse_one_by_one(self, lines: list[bytes]) -> tuple[list[T], list[BadRecord]]:
        values: list[T] = []
        rejected: list[BadRecord] = []
        skip_blank = self._parser.skip_blank
        first = self._lines.position.line + 1
        for number, line in enumerate(lines, start=first):
            try:
                values.append(self._parser.one(line))
            except ValueError as exc:
                if skip_blank and not line.strip():
                    continue
                reason = self._reason(exc, line)
                rejected.append(self._bad_records.bad(f"line {number:,}", reason, line))
        return values, rejected

    def _reason(self, exc: ValueError, line: bytes) -> str:
        # Parsers say little about bytes that are no text, so they are looked at first.
        try:
            line.decode(self._parser.encoding)
        except UnicodeDecodeError as undecoded:
            return undecodable(undecoded)
        if isinstance(exc, orjson.JSONDecodeError):
            return f"{exc.msg} at column {exc.colno}"
        return str(exc)
