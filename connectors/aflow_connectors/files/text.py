"""``TextSource``: each line is a record."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import ClassVar

from aflow.connect import BadRecord, Position, Reader, Tag
from aflow_connectors.bad_records import BadRecords
from aflow_connectors.files.arguments import checked_encoding, checked_line_bound
from aflow_connectors.files.input_file import InputFile
from aflow_connectors.files.lines import LineParser, LinePosition, LineReader, Lines
from aflow_connectors.files.source import MAX_LINE_BYTES, FileSource


class TextSource(FileSource[str]):
    """Read lines of text files, without their ends (line feed, or carriage return and line feed), blank lines too.

    The arguments are those of ``JsonLinesSource``. In a folder, files that end in ``.txt`` or ``.log`` are read, also
    with ``.gz`` or ``.zst`` appended. A line that cannot be decoded by ``encoding`` is bad.
    """

    suffixes: ClassVar[Sequence[str]] = tuple(
        f".{name}{codec}" for name in ("txt", "log") for codec in ("", ".gz", ".zst")
    )

    def __init__(
        self,
        path: str | Path,
        *,
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
        self._encoding = checked_encoding("TextSource", encoding)
        self._max_line_bytes = checked_line_bound("TextSource", max_line_bytes)

    def file_reader(self, path: InputFile, position: Position | None) -> Reader[str]:
        lines = Lines(path, LinePosition.of(position, path), self._max_line_bytes)
        return LineReader(lines, _parser(self._encoding), BadRecords(path, self.dead_letters))


def _parser(encoding: str) -> LineParser[str]:
    def one(line: bytes) -> str:
        return line.decode(encoding).removesuffix("\n").removesuffix("\r")

    return LineParser(one, lambda lines: list(map(one, lines)), encoding, skip_blank=False)
