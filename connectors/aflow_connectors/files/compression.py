"""Decompression of gzip and zstd files, and compressed output.

All calls block: they are for worker threads.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from typing import IO, Final, Protocol, cast

from aflow_connectors.files.input_file import InputFile
from aflow_connectors.files.optional import zstandard

#: First bytes of compressed files. Neither can begin a text in UTF-8.
_MAGIC: Final = {"gzip": b"\x1f\x8b", "zstd": b"\x28\xb5\x2f\xfd"}
_SUFFIX: Final = {".gz": "gzip", ".zst": "zstd"}

#: Compressed bytes read at a time. Small, since a piece can expand a lot (zstd packs 128 KiB of one byte into 4).
_PIECE: Final = 16 * 1024


class DamagedFile(Exception):
    """The content of a file contradicts its name or its first bytes."""


class _Frame(Protocol):
    """One gzip member or zstd frame."""

    @property
    def eof(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, /) -> bytes: ...


class Plain:
    """Content of an uncompressed file."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw = raw

    def read(self, size: int) -> bytes:
        """Return ``size`` bytes, fewer only at the end. Raises ``OSError``."""
        return self._raw.read(size)

    def skip(self, size: int) -> bool:
        """Skip ``size`` bytes; return False if there are fewer."""
        here = self._raw.tell()
        end = self._raw.seek(0, 2)
        self._raw.seek(min(here + size, end))
        return here + size <= end

    def close(self) -> None:
        self._raw.close()


class Decompressed:
    """Content of a compressed file, of all its members (or frames) one after the other.

    Unlike the reader of ``zstandard`` it detects truncated files, and unlike that of ``gzip`` it returns all bytes
    before the damage first.
    """

    def __init__(
        self, raw: IO[bytes], codec: str, new_frame: Callable[[], _Frame], error: type[Exception]
    ) -> None:
        self._raw = raw
        self._codec = codec
        self._new_frame = new_frame
        self._error = error
        #: None between two frames.
        self._frame: _Frame | None = None
        #: Input after the end of the last frame.
        self._ahead = b""
        self._out = bytearray()
        self._damage: DamagedFile | None = None

    def read(self, size: int) -> bytes:
        """Return ``size`` bytes, fewer only at the end or before the damage. Raises ``OSError`` and ``DamagedFile``."""
        while len(self._out) < size and self._damage is None and self._decompress_piece():
            pass
        if self._damage is not None and not self._out:
            raise self._damage
        taken = bytes(self._out[:size])
        del self._out[:size]
        return taken

    def skip(self, size: int) -> bool:
        """Skip ``size`` bytes by reading them; return False if there are fewer."""
        while size > 0:
            block = self.read(min(size, 1 << 20))
            if not block:
                return False
            size -= len(block)
        return True

    def close(self) -> None:
        self._raw.close()

    def _decompress_piece(self) -> bool:
        """Decompress a piece of input; return False at the end of the file."""
        piece = self._ahead or self._raw.read(_PIECE)
        self._ahead = b""
        if self._frame is None:
            piece = self._without_padding(piece)
            if not piece:
                return False
            self._frame = self._new_frame()
        elif not piece:
            self._damage = DamagedFile(
                f"the {self._codec} data ends too early: the file is truncated"
            )
            return True
        try:
            self._out += self._frame.decompress(piece)
        except self._error as exc:
            self._damage = DamagedFile(f"the {self._codec} data is damaged: {exc}")
            return True
        if self._frame.eof:
            self._ahead = self._frame.unused_data
            self._frame = None
        return True

    def _without_padding(self, piece: bytes) -> bytes:
        """Remove zeros after a gzip member, which fill blocks of a tape."""
        if self._codec == "gzip":
            while piece and not (piece := piece.lstrip(b"\0")):
                piece = self._raw.read(_PIECE)
        return piece


ByteStream = Plain | Decompressed


def open_bytes(path: InputFile) -> ByteStream:
    """Open ``path`` and detect its compression by its first bytes.

    Raises ``OSError``, ``DamagedFile`` if the name implies another compression, and ``ConnectorError`` if the package
    is missing.
    """
    raw = path.open("rb")
    try:
        begins = raw.peek(4)[:4]
        codec = next((name for name, magic in _MAGIC.items() if begins.startswith(magic)), None)
        promised = _SUFFIX.get(path.suffix)
        if promised is not None and codec != promised:
            raise DamagedFile(
                f"it is named {path.suffix} but "
                + (f"does not begin as {promised} does: {begins!r}" if begins else "is empty")
            )
        return _stream(raw, codec)
    except BaseException:
        raw.close()
        raise


def _stream(raw: IO[bytes], codec: str | None) -> ByteStream:
    if codec == "gzip":
        return Decompressed(raw, codec, lambda: zlib.decompressobj(wbits=31), zlib.error)
    if codec == "zstd":
        zstd = zstandard("reading .zst files")
        decompressor = zstd.ZstdDecompressor()
        return Decompressed(raw, codec, decompressor.decompressobj, zstd.ZstdError)
    return Plain(raw)


def compressed(raw: IO[bytes], suffix: str) -> IO[bytes]:
    """Return a file that writes into ``raw``, compressed as ``suffix`` implies; ``raw`` itself for other suffixes.

    Closing it leaves ``raw`` open.
    """
    if suffix == ".gz":
        # No name and time in the header, so that equal records give equal files.
        return cast(
            IO[bytes], gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=6, mtime=0)
        )
    if suffix == ".zst":
        compressor = zstandard("writing .zst files").ZstdCompressor()
        return cast(IO[bytes], compressor.stream_writer(raw, closefd=False))
    return raw
