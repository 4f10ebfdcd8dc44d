"""A file that comes into being under another name, so that nobody ever reads half of it.

All methods block: they are for worker threads.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, ClassVar

from aflow.connect import Committable, SinkError
from aflow.errors import InternalError
from aflow_connectors.files.compression import compressed
from aflow_connectors.files.disk import Taken, claim, sync_folder
from aflow_connectors.files.parts import Target, in_progress


class Place:
    """A path that a sink writes to, as its errors name it."""

    def __init__(self, path: Path, *, sink: str) -> None:
        self.path = path
        self.sink = sink

    def error(self, reason: str) -> SinkError:
        """``reason`` as the failure of this sink."""
        return SinkError(f"sink {self.sink!r}: {reason}")

    def unwritable(self, what: str, reason: object) -> SinkError:
        """``what`` (a record, a column) cannot be written into this file."""
        return self.error(f"{self.path}: cannot write {what}: {reason}")

    def taken(self, held: Path) -> SinkError:
        """Another writer holds ``held``."""
        return self.error(
            f"{self.path} is in progress by another writer (of this or another job, it holds {held}): give each sink "
            f"a path of its own"
        )

    def already_there(self, path: Path) -> SinkError:
        """``path`` is output of an earlier run."""
        return self.error(
            f"{path} is there already: remove it, write elsewhere, or pass overwrite=True"
        )

    @contextmanager
    def errors(self) -> Generator[None]:
        """Turns what the system refuses into a ``SinkError`` with the path."""
        try:
            yield
        except OSError as exc:
            raise self.error(f"cannot write {self.path}: {exc.strerror or exc}") from exc


class Output(Place, ABC):
    """Where one writer's bytes go."""

    #: True if each checkpoint gets a file of its own, and none where nothing was written.
    in_pieces: ClassVar[bool]

    @property
    @abstractmethod
    def file(self) -> IO[bytes]:
        """What to write into. Raises ``SinkError`` when there is none."""

    @abstractmethod
    def open(self) -> None:
        """Begin. Raises ``SinkError``."""

    @abstractmethod
    def prepare(self, checkpoint: int) -> Committable:
        """Make durable what was written. Raises ``SinkError``."""

    @abstractmethod
    def commit(self, committable: Committable) -> None:
        """Show what was prepared, durably. Raises ``SinkError``."""

    @abstractmethod
    def finish(self) -> None:
        """The end of the input: everything is visible. Raises ``SinkError``."""

    @abstractmethod
    def discard(self) -> None:
        """Remove what was written and is neither finished nor prepared; let go of the rest."""

    def write(self, data: bytes) -> None:
        """Append ``data``. Raises ``SinkError``."""
        with self.errors():
            self.file.write(data)

    def claimed(self, path: Path) -> IO[bytes]:
        """``path``, empty and locked. Raises ``SinkError`` if another writer has it."""
        try:
            return claim(path)
        except Taken:
            raise self.taken(path) from None


class OutputFile(Output):
    """Written as ``.name.inprogress``; ``finish`` gives it its name, and ``discard`` removes it instead.

    Both do nothing after the other. The name in progress begins with a dot, so no source takes it for input. The file
    is locked as long as it is in progress: another writer to the same path is refused, and what a killed process left
    is overwritten.
    """

    in_pieces = False

    def __init__(self, target: Target, *, sink: str, overwrite: bool) -> None:
        super().__init__(target.path, sink=sink)
        self._target = target
        self._overwrite = overwrite
        self._temporary = in_progress(target.path)
        self._raw: IO[bytes] | None = None
        self._file: IO[bytes] | None = None

    @property
    def file(self) -> IO[bytes]:
        """What to write into. Raises ``SinkError`` when it is finished."""
        if self._file is None:
            raise self.error(f"{self.path} is finished, nothing can be added to it")
        return self._file

    def open(self) -> None:
        """Begin. Raises ``SinkError`` if the file is there already, unless it may be overwritten."""
        self._refuse_to_overwrite()
        with self.errors():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._raw = self.claimed(self._temporary)
            self._file = compressed(self._raw, self.path.suffix)

    def prepare(self, checkpoint: int) -> Committable:
        raise self._without_checkpoints()

    def commit(self, committable: Committable) -> None:
        raise self._without_checkpoints()

    def finish(self) -> None:
        """Make the file visible under its name, durably. Raises ``SinkError``."""
        if self._raw is None:
            return
        self._refuse_to_overwrite()
        with self.errors():
            if self._file is not None and self._file is not self._raw:
                self._file.close()
            self._raw.flush()
            os.fsync(self._raw.fileno())
            for leftover in self._target.leftovers():
                leftover.unlink()
            # Closed only then: with the file the lock goes, and another writer could begin under the name in progress.
            os.replace(self._temporary, self.path)
            self._raw.close()
            sync_folder(self.path.parent)
        self._raw = self._file = None

    def discard(self) -> None:
        """Remove what was written, unless it is finished."""
        if self._raw is None:
            return
        let_go(self._raw, self._file, self._temporary)
        self._raw = self._file = None

    def _refuse_to_overwrite(self) -> None:
        if self._overwrite:
            return
        there = [self.path] if self.path.exists() else self._target.leftovers()
        if there:
            raise self.already_there(there[0])

    def _without_checkpoints(self) -> InternalError:
        return InternalError(
            f"sink {self.sink!r}: a checkpoint came to the writer of {self.path}, which was opened for a job without "
            f"(WriterContext.checkpoints is False)"
        )


def let_go(raw: IO[bytes], file: IO[bytes] | None, path: Path) -> None:
    """Close ``raw``, and the ``file`` that compresses into it, and remove it."""
    # What cannot be written any more (a full disk) is going to be removed anyway.
    with suppress(OSError):
        if file is not None and file is not raw:
            file.close()
    with suppress(OSError):
        path.unlink()
    with suppress(OSError):
        raw.close()
