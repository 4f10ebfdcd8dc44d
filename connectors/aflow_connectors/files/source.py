"""Base of the file sources: a path, its files as splits, and the handling of bad records."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import ClassVar, Final, TypeVar, cast

from anyio import to_thread

from aflow.connect import BadRecord, Position, Reader, Source, SourceError, Split, Tag
from aflow_connectors.arguments import checked_dead_letters, checked_interval, checked_path
from aflow_connectors.files.arguments import checked_concurrency
from aflow_connectors.files.input_file import InputFile
from aflow_connectors.files.paths import expand, is_file

T_co = TypeVar("T_co", covariant=True)

#: Default maximum bytes of a line (or CSV record); a file with a longer one is refused.
MAX_LINE_BYTES: Final = 16 << 20


class FileSource(Source[T_co]):
    """Files below a path, each a split of its own, read in the order of their names.

    A subtask reads ``concurrency`` of them at a time, or all with None: then event time follows the slowest of them.
    """

    #: Suffixes of the files that are read in a folder.
    suffixes: ClassVar[Sequence[str]]

    def __init__(
        self,
        path: str | Path,
        *,
        dead_letters: Tag[BadRecord] | None,
        discover_every: timedelta | None,
        concurrency: int | None,
    ) -> None:
        owner = type(self).__name__
        checked_dead_letters(owner, dead_letters)
        checked_interval(owner, discover_every)
        self.path = checked_path(owner, path)
        self.dead_letters = dead_letters
        self.discover_every = discover_every
        self.bounded = discover_every is None
        self.concurrency = checked_concurrency(owner, concurrency)
        if is_file(self.path):
            self.max_parallelism = 1

    async def splits(self) -> Sequence[Split]:
        """Return a split for each file. Raises ``SourceError`` if there is none, or if a folder is unreadable."""
        return await to_thread.run_sync(self._splits)

    async def reader(self, split: Split, position: Position | None) -> Reader[T_co]:
        return self.file_reader(Path(split.id), position)

    @abstractmethod
    def file_reader(self, path: InputFile, position: Position | None) -> Reader[T_co]:
        """Return a reader of one file, which is opened by its first read. Raises ``SourceError`` for a bad position."""

    def _splits(self) -> list[Split]:
        growing = self.discover_every is not None
        if growing and is_file(self.path):
            raise SourceError(
                f"discover_every is given, but {self.path} is a single file (or not there), where no further "
                "file can appear: give a folder that exists or a pattern"
            )
        files = expand(self.path, self.suffixes, may_be_none=growing)
        return [Split(str(file)) for file in files]


def numbers_of(position: Position, count: int, path: InputFile, kind: str) -> Sequence[int]:
    """Return the ``count`` numbers of a stored position in ``kind``; none at the start. Raises ``SourceError``."""
    if position is None:
        return ()
    if isinstance(position, (tuple, list)):
        parts = cast(Sequence[object], position)
        numbers = [part for part in parts if isinstance(part, int)]
        if len(numbers) == len(parts) == count:
            return numbers
    raise SourceError(f"{path}: {position!r} is not a position in {kind}")


def undecodable(exc: UnicodeDecodeError) -> str:
    """Return why bytes cannot be decoded, with the column (in bytes, from 1)."""
    return (
        f"byte 0x{exc.object[exc.start]:02x} at column {exc.start + 1} is not {exc.encoding}; "
        "encoding= sets the encoding of the file"
    )
