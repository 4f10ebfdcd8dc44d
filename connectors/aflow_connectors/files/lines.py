"""Files of lines, read in large blocks in a worker thread, and records of one line each.

A position is ``(offset, line, length, checksum)``: the bytes (of the uncompressed content) and the lines before it, and
length and CRC-32 of the last of these lines. With these, a file that was replaced or truncated since is detected
instead of yielding other records.

Lines end in a line feed. A carriage return before it belongs to the line; the parser removes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Generic, NamedTuple, TypeVar
from zlib import crc32

import orjson

from aflow.connect import BadRecord, Chunk, Position, Reader, SourceError
from aflow_connectors.files.compression import ByteStream, DamagedFile, open_bytes
from aflow_connectors.files.source import BadRecords, numbers_of, undecodable
from aflow_connectors.worker_thread import WorkerThread

#: Bytes read at a time. With 1 MiB there is one hop to the thread for about ten thousand lines.
_BLOCK: Final = 1 << 20
_UTF8_MARK: Final = b"\xef\xbb\xbf"
_UTF16_MARKS: Final = (b"\xff\xfe", b"\xfe\xff")


class LinePosition(NamedTuple):
    """Position after a line; plain numbers, so that any codec can store it."""

    offset: int = 0
    line: int = 0
    length: int = 0
    checksum: int = 0

    @classmethod
    def of(cls, position: Position, path: Path) -> LinePosition:
        """Return a checked position from a checkpoint. Raises ``SourceError``."""
        return cls(*numbers_of(position, len(cls._fields), path, "a file of lines"))


class _Blocks:
    """The blocking half: splits a file into lists of lines. Its methods run in a worker thread."""

    def __init__(self, path: Path, start: LinePosition, max_line_bytes: int) -> None:
        self._path = path
        self._start = start
        self._max_line_bytes = max_line_bytes
        #: At most the maximum line length, so that only a line across the end of a block can be too long.
        self._block = min(_BLOCK, max_line_bytes)
        self._stream: ByteStream | None = None
        #: Number of lines returned so far, for messages.
        self._line = start.line
        #: Pieces of a line whose end was not read yet.
        self._begun: list[bytes] = []
        #: The next list of lines, if it was read and not taken; empty at the end of the file.
        self.ready: list[bytes] | None = None
        #: Bytes of the byte order mark at the start of the file, which belongs to no line.
        self.mark = 0
        #: True if the last line of the file has no line feed; known when it has been read.
        self.unterminated = False

    def prepare(self) -> None:
        """Read ``ready`` unless it is there. Raises ``SourceError``."""
        if self.ready is None:
            try:
                self.ready = self._next_lines()
            except (OSError, DamagedFile) as exc:
                reason = exc.strerror if isinstance(exc, OSError) else str(exc)
                where = f", after line {self._line:,}" if self._line else ""
                raise SourceError(f"cannot read {self._path}{where}: {reason}") from exc
            self._line += len(self.ready)

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()

    def _next_lines(self) -> list[bytes]:
        if self._stream is None:
            self._stream = open_bytes(self._path)
            block = self._first_block(self._stream)
        else:
            block = self._stream.read(self._block)
        while block:
            pieces = block.split(b"\n")
            self._begun.append(pieces[0])
            self._check_length()
            if len(pieces) > 1:
                pieces[0] = b"".join(self._begun)
                self._begun = [pieces.pop()]
                return pieces
            block = self._stream.read(self._block)
        last = b"".join(self._begun)
        self._begun = []
        self.unterminated = self.unterminated or bool(last)
        return [last] if last else []

    def _first_block(self, stream: ByteStream) -> bytes:
        if self._start.offset:
            self._go_to_start(stream)
            return stream.read(self._block)
        block = stream.read(self._block)
        if block.startswith(_UTF16_MARKS):
            raise DamagedFile(
                "it is in UTF-16, where lines cannot be separated byte by byte; convert it first: "
                "iconv -f UTF-16 -t UTF-8"
            )
        if block.startswith(_UTF8_MARK):
            self.mark = len(_UTF8_MARK)
        return block[self.mark :]

    def _go_to_start(self, stream: ByteStream) -> None:
        start = self._start
        there = stream.skip(start.offset - start.length)
        before = stream.read(start.length) if there else b""
        if len(before) < start.length or not there:
            raise DamagedFile(
                f"it is shorter than the {start.offset:,} bytes that were read before: it was cut or replaced"
            )
        if crc32(before) != start.checksum:
            raise DamagedFile(
                f"line {start.line:,} is another than when it was read before: the file was replaced or changed"
            )

    def _check_length(self) -> None:
        length = sum(map(len, self._begun))
        if length > self._max_line_bytes:
            raise DamagedFile(
                f"line {self._line + 1:,} is longer than max_line_bytes = {self._max_line_bytes:,} and "
                f"begins with {self._begun[0][:40]!r}; is this a file of lines?"
            )


class Lines:
    """Lines of a file that were read and not consumed yet. All methods belong to one coroutine."""

    def __init__(self, path: Path, start: LinePosition, max_line_bytes: int) -> None:
        self.path = path
        #: After the last line that was consumed.
        self.position = start
        self._blocks = _Blocks(path, start, max_line_bytes)
        self._blocking = WorkerThread()
        self._lines: list[bytes] = []
        #: Index in ``_lines`` of the first line that was not consumed.
        self._next = 0
        #: True if the last of ``_lines`` is the last of the file and has no line feed.
        self._unterminated = False
        #: True once the last line of the file is in ``_lines``.
        self.ended = False

    def __len__(self) -> int:
        return len(self._lines) - self._next

    def peek(self, count: int) -> list[bytes]:
        """Return up to ``count`` next lines, without their line feeds and without consuming them."""
        return self._lines[self._next : self._next + count]

    def consume(self, lines: Sequence[bytes]) -> None:
        """Advance the position past ``lines``, which are the next ones."""
        offset, line, _, _ = self.position
        self._next += len(lines)
        offset += sum(map(len, lines)) + len(lines) + (0 if offset else self._blocks.mark)
        last = lines[-1]
        if self._unterminated and not len(self):
            offset -= 1
        else:
            last += b"\n"
        self.position = LinePosition(offset, line + len(lines), len(last), crc32(last))

    async def more(self) -> bool:
        """Read more lines; return False at the end of the file. Raises ``SourceError``."""
        if self.ended:
            return False
        await self._blocking.run(self._blocks.prepare)
        block, self._blocks.ready = self._blocks.ready or [], None
        self._unterminated = self._blocks.unterminated
        self.ended = not block
        self._lines = self._lines[self._next :] + block
        self._next = 0
        return not self.ended

    async def close(self) -> None:
        await self._blocking.finish(self._blocks.close)


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LineParser(Generic[T]):
    """Parser of lines into records. Both functions raise ``ValueError`` for an invalid line."""

    one: Callable[[bytes], T]
    many: Callable[[list[bytes]], list[T]]
    """Parses many lines at once, as fast as possible; one bad line fails all."""
    encoding: str
    skip_blank: bool


class LineReader(Reader[T]):
    """Reader of records of one line each."""

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
        # Parsers report undecodable bytes poorly, so they are checked first.
        try:
            line.decode(self._parser.encoding)
        except UnicodeDecodeError as undecoded:
            return undecodable(undecoded)
        if isinstance(exc, orjson.JSONDecodeError):
            return f"{exc.msg} at column {exc.colno}"
        return str(exc)
