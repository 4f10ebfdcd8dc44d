"""Files of lines, read in large blocks in a worker thread, and records of one line each.

A position is ``(offset, line, length, checksum)``: the bytes (of the uncompressed content) and the lines before it, and
length and CRC-32 of the last of these lines. With these, a file that was replaced or truncated since is detected
instead of yielding other records.

Lines end in a line feed. A carriage return before it belongs to the line; the parser removes both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from itertools import islice
from typing import Final, Generic, NamedTuple, TypeVar
from zlib import crc32

import orjson

from aflow.connect import BadRecord, Chunk, Position, Reader, SourceError
from aflow_connectors.bad_records import BadRecords
from aflow_connectors.files.compression import ByteStream, DamagedFile, open_bytes
from aflow_connectors.files.input_file import InputFile
from aflow_connectors.files.source import numbers_of, undecodable
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
    def of(cls, position: Position, path: InputFile) -> LinePosition:
        """Return a checked position from a checkpoint. Raises ``SourceError``."""
        return cls(*numbers_of(position, len(cls._fields), path, "a file of lines"))


class _Blocks:
    """The blocking half: reads a file in blocks of whole lines. Its methods run in a worker thread."""

    def __init__(self, path: InputFile, start: LinePosition, max_line_bytes: int) -> None:
        self._path = path
        self._start = start
        self._max_line_bytes = max_line_bytes
        #: At most the maximum line length, so that only a line across the end of a block can be too long.
        self._size = min(_BLOCK, max_line_bytes)
        self._stream: ByteStream | None = None
        #: Pieces of a line whose end was not read yet.
        self._begun: list[bytes] = []
        #: The next whole lines, if they were read and not taken; empty at the end of the file.
        self.ready: bytes | None = None
        #: Bytes of the byte order mark at the start of the file, which belongs to no line.
        self.mark = 0

    def prepare(self, line: int) -> None:
        """Read ``ready``, which begins after ``line`` lines, unless it is there. Raises ``SourceError``."""
        if self.ready is None:
            try:
                self.ready = self._next_lines(line)
            except (OSError, DamagedFile) as exc:
                reason = exc.strerror if isinstance(exc, OSError) else str(exc)
                where = f", after line {line:,}" if line else ""
                raise SourceError(f"cannot read {self._path}{where}: {reason}") from exc

    def close(self) -> None:
        if self._stream is not None:
            self._stream.close()

    def _next_lines(self, line: int) -> bytes:
        if self._stream is None:
            self._stream = open_bytes(self._path)
            block = self._first_block(self._stream)
        else:
            block = self._stream.read(self._size)
        while block:
            self._check_length(line, block)
            end = block.rfind(b"\n") + 1
            if end:
                lines = b"".join([*self._begun, memoryview(block)[:end]])
                self._begun = [block[end:]]
                return lines
            self._begun.append(block)
            block = self._stream.read(self._size)
        last = b"".join(self._begun)
        self._begun = []
        return last

    def _first_block(self, stream: ByteStream) -> bytes:
        if self._start.offset:
            self._go_to_start(stream)
            return stream.read(self._size)
        block = stream.read(self._size)
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

    def _check_length(self, line: int, block: bytes) -> None:
        """Check the line that ``block`` continues. Raises ``DamagedFile``."""
        end = block.find(b"\n")
        length = sum(map(len, self._begun)) + (len(block) if end < 0 else end)
        if length > self._max_line_bytes:
            begin = b"".join([*self._begun, block])[:40]
            raise DamagedFile(
                f"line {line + 1:,} is longer than max_line_bytes = {self._max_line_bytes:,} and "
                f"begins with {begin!r}; is this a file of lines?"
            )


class Lines:
    """Lines of a file that were read and not consumed yet. All methods belong to one coroutine."""

    def __init__(self, path: InputFile, start: LinePosition, max_line_bytes: int) -> None:
        self.path = path
        #: After the last line that was consumed.
        self.position = start
        self._blocks = _Blocks(path, start, max_line_bytes)
        self._blocking = WorkerThread()
        #: The last block. Lines are split off as they are needed, so that they are in the cache when they are parsed.
        self._block = BytesIO()
        #: Length of the last block, and the position in the file at which it begins.
        self._size, self._begin = 0, start.offset
        #: The lines that were split off and not consumed.
        self._lines: list[bytes] = []
        #: True once the last line of the file is in ``_block``.
        self.ended = False

    def peek(self, count: int) -> list[bytes]:
        """Return up to ``count`` next lines without consuming them, each with its line feed.

        Only the last line of the file may have none.
        """
        lines = self._lines
        if len(lines) < count:
            lines += islice(self._block, count - len(lines))
        return lines[:count]

    def are_all(self, lines: Sequence[bytes]) -> bool:
        """Return True if ``lines``, which ``peek`` returned, are all that were read."""
        return len(lines) == len(self._lines) and self._block.tell() == self._size

    def consume(self, lines: Sequence[bytes]) -> None:
        """Advance the position past ``lines``, which are the next ones."""
        last, self._lines = lines[-1], self._lines[len(lines) :]
        offset = self._begin + self._block.tell() - sum(map(len, self._lines))
        line = self.position.line + len(lines)
        self.position = LinePosition(offset, line, len(last), crc32(last))

    async def more(self) -> bool:
        """Read more lines; return False at the end of the file. All lines that were read must have been peeked at.

        Raises ``SourceError``.
        """
        if self.ended:
            return False
        line = self.position.line + len(self._lines)
        await self._blocking.run(partial(self._blocks.prepare, line))
        block, self._blocks.ready = self._blocks.ready or b"", None
        self._begin = self._begin + self._size or self._blocks.mark
        self._block, self._size = BytesIO(block), len(block)
        self.ended = not block
        return not self.ended

    async def close(self) -> None:
        await self._blocking.finish(self._blocks.close)


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class LineParser(Generic[T]):
    """Parser of lines into records. Both functions raise ``ValueError`` for an invalid line."""

    # Lines may end in a line feed.
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
        except (ValueError, RecursionError):
            return self._parse_one_by_one(lines)

    def _parse_one_by_one(self, lines: list[bytes]) -> tuple[list[T], list[BadRecord]]:
        values: list[T] = []
        rejected: list[BadRecord] = []
        skip_blank = self._parser.skip_blank
        first = self._lines.position.line + 1
        for number, line in enumerate(lines, start=first):
            line = line.removesuffix(b"\n")  # which some parsers would count in the reason
            try:
                values.append(self._parser.one(line))
            except (ValueError, RecursionError) as exc:  # nested too deeply
                if skip_blank and not line.strip():
                    continue
                reason = self._reason(exc, line)
                rejected.append(self._bad_records.bad(f"line {number:,}", reason, line))
        return values, rejected

    def _reason(self, exc: Exception, line: bytes) -> str:
        # Parsers report undecodable bytes poorly, so they are checked first.
        try:
            line.decode(self._parser.encoding)
        except UnicodeDecodeError as undecoded:
            return undecodable(undecoded)
        if isinstance(exc, orjson.JSONDecodeError):
            return f"{exc.msg} at column {exc.colno}"
        return str(exc)
