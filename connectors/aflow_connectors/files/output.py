"""A file that comes into being under another name, so that nobody ever reads half of it.

All methods block: they are for worker threads.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from aflow.connect import SinkError, WriterContext
from aflow_connectors.files.compression import compressed

try:
    import fcntl
except ImportError:  # pragma: no cover - not on Linux
    fcntl = None  # type: ignore[assignment]

#: What systems answer where a file is locked by somebody else.
_TAKEN: Final = frozenset({errno.EWOULDBLOCK, errno.EACCES})


@dataclass(frozen=True, slots=True)
class Target:
    """The file of one writer, and the files of writers that an earlier run may have had and this one has not."""

    path: Path
    #: Name of the parts with ``{}`` for the number; empty where there is one file only.
    part_name: str = ""
    parallelism: int = 1

    @classmethod
    def of(cls, path: Path, context: WriterContext, *, suffix: str) -> Target:
        """Where a writer writes.

        A ``path`` with a suffix is a file: ``out.jsonl``, or one for each writer if there are several:
        ``out-00000.jsonl`` … A path without one is a folder of files ``part-00000.jsonl`` … with the ``suffix`` of
        the format.
        """
        if not path.suffix:
            folder, name = path, f"part-{{:05}}{suffix}"
        elif context.parallelism == 1:
            return cls(path)
        else:
            folder, name = path.parent, _numbered(path.name)
        part = folder / name.format(context.subtask)
        return cls(part, name, context.parallelism)

    def leftovers(self) -> list[Path]:
        """Parts of more writers than there are now: to who reads all parts they would look like parts of this run."""
        found: list[Path] = []
        if self.part_name:
            number = self.parallelism
            while (path := self.path.with_name(self.part_name.format(number))).exists():
                found.append(path)
                number += 1
        return found


def _numbered(name: str) -> str:
    """``out.jsonl.gz`` becomes ``out-{:05}.jsonl.gz``."""
    path = Path(name.replace("{", "{{").replace("}", "}}"))
    last = path.suffix
    if last in (".gz", ".zst"):
        last = path.with_suffix("").suffix + last
    return f"{path.name.removesuffix(last)}-{{:05}}{last}"


class OutputFile:
    """Written as ``.name.inprogress``; ``finish`` gives it its name, and ``discard`` removes it instead.

    Both do nothing after the other. The name in progress begins with a dot, so no source takes it for input. The file
    is locked (``flock``) as long as it is in progress: another writer to the same path is refused, and what a killed
    process left, whose lock is gone with it, is overwritten. Where the system or the file system knows no locks,
    two writers to one path are not noticed.
    """

    def __init__(self, target: Target, *, sink: str, overwrite: bool) -> None:
        self._target = target
        self._sink = sink
        self._overwrite = overwrite
        self.path = target.path
        self._temporary = target.path.with_name(f".{target.path.name}.inprogress")
        self._raw: IO[bytes] | None = None
        self._file: IO[bytes] | None = None

    @property
    def file(self) -> IO[bytes]:
        """What to write into. Raises ``SinkError`` when it is finished."""
        if self._file is None:
            raise self.error(f"{self.path} is finished, nothing can be added to it")
        return self._file

    def error(self, reason: str) -> SinkError:
        """``reason`` as the failure of this sink."""
        return SinkError(f"sink {self._sink!r}: {reason}")

    def unwritable(self, what: str, reason: object) -> SinkError:
        """``what`` (a record, a column) cannot be written into this file."""
        return self.error(f"{self.path}: cannot write {what}: {reason}")

    def open(self) -> None:
        """Begin. Raises ``SinkError`` if the file is there already, unless it may be overwritten."""
        self._refuse_to_overwrite()
        with self._errors():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._raw = self._claimed()
            self._file = compressed(self._raw, self.path.suffix)

    def write(self, data: bytes) -> None:
        """Append ``data``. Raises ``SinkError``."""
        with self._errors():
            self.file.write(data)

    def finish(self) -> None:
        """Make the file visible under its name, durably. Raises ``SinkError``."""
        if self._raw is None:
            return
        self._refuse_to_overwrite()
        with self._errors():
            if self._file is not None and self._file is not self._raw:
                self._file.close()
            self._raw.flush()
            os.fsync(self._raw.fileno())
            for leftover in self._target.leftovers():
                leftover.unlink()
            # Closed only then: with the file the lock goes, and another writer could begin under the name in progress.
            os.replace(self._temporary, self.path)
            self._raw.close()
            _sync_folder(self.path.parent)
        self._raw = self._file = None

    def discard(self) -> None:
        """Remove what was written, unless it is finished."""
        if self._raw is None:
            return
        # What cannot be written any more (a full disk) is going to be removed anyway.
        with suppress(OSError):
            if self._file is not None and self._file is not self._raw:
                self._file.close()
        with suppress(OSError):
            self._temporary.unlink()
        with suppress(OSError):
            self._raw.close()
        self._raw = self._file = None

    def _claimed(self) -> IO[bytes]:
        """The file in progress, empty and locked. Raises ``SinkError`` if another writer has it."""
        while True:
            # Not "wb": that would empty a file that is another writer's.
            raw = os.fdopen(os.open(self._temporary, os.O_RDWR | os.O_CREAT, 0o666), "wb")
            try:
                self._lock(raw.fileno())
                if _is_named(raw.fileno(), self._temporary):
                    # A device, or a file of ours alone: cutting it off is for what a killed process left.
                    if os.fstat(raw.fileno()).st_size:
                        raw.truncate(0)
                    return raw
            except BaseException:
                raw.close()
                raise
            raw.close()

    def _lock(self, descriptor: int) -> None:
        if fcntl is None:
            return
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as exc:
            if exc.errno in _TAKEN:
                raise self.error(
                    f"{self.path} is in progress by another writer (of this or another job, it holds "
                    f"{self._temporary}): give each sink a path of its own"
                ) from None

    @contextmanager
    def _errors(self) -> Generator[None]:
        """Turns what the system refuses into a ``SinkError`` with the path."""
        try:
            yield
        except OSError as exc:
            raise self.error(f"cannot write {self.path}: {exc.strerror or exc}") from exc

    def _refuse_to_overwrite(self) -> None:
        if self._overwrite:
            return
        there = [self.path] if self.path.exists() else self._target.leftovers()
        if there:
            raise self.error(
                f"{there[0]} is there already: remove it, write elsewhere, or pass overwrite=True"
            )


def _is_named(descriptor: int, path: Path) -> bool:
    """False if the open file has lost this name meanwhile: the writer that had it has finished, or has removed it."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False


def _sync_folder(folder: Path) -> None:
    """Without this the new name may be lost when the machine loses power."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
