"""A file that is written under a temporary name, so that readers never see a partial one.

All methods block: they are for worker threads.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, ClassVar

from aflow.connect import Committable
from aflow.errors import InternalError
from aflow_connectors.files.compression import compressed
from aflow_connectors.files.output.lock_file import Claim, publish, sync_folder
from aflow_connectors.files.output.manifest import ScratchFile
from aflow_connectors.files.output.names import PartTarget, lock, new_scratch
from aflow_connectors.files.output.ownership import OwnedFolder, SinkPath


class SinkOutput(SinkPath, ABC):
    """Output of one writer."""

    #: True if each checkpoint gets a file of its own, and none without records.
    in_pieces: ClassVar[bool]

    @property
    @abstractmethod
    def file(self) -> IO[bytes]:
        """Return the file to write into. Raises ``SinkError`` if there is none."""

    @abstractmethod
    def open(self) -> None:
        """Open the output. Raises ``SinkError``."""

    @abstractmethod
    def prepare(self, checkpoint: int) -> Committable:
        """Make the written data durable and return its committable. Raises ``SinkError``."""

    @abstractmethod
    def commit(self, committable: Committable) -> None:
        """Publish prepared data, durably. Raises ``SinkError``."""

    @abstractmethod
    def finish(self) -> None:
        """Publish all data at the end of the input. Raises ``SinkError``."""

    @abstractmethod
    def discard(self) -> None:
        """Remove data that is neither finished nor prepared, and release the rest."""

    def write(self, data: bytes) -> None:
        """Append ``data``. Raises ``SinkError``."""
        with self.errors():
            self.file.write(data)

    def without_checkpoints(self) -> InternalError:
        """Return the error that a checkpoint has reached a writer of a job without any."""
        return InternalError(
            f"sink {self.sink!r}: the writer of {self.shown} received a checkpoint, but was opened for a job without "
            f"checkpoints (WriterContext.checkpoints is False)"
        )


class FileOutput(SinkOutput):
    """Output into a scratch file; ``finish`` renames it, ``discard`` removes it.

    Each is a no-op after the other. The name of the scratch file begins with a dot, so no source reads it. A lock,
    ``.name.inprogress``, excludes other writers to the same path, and names the scratch file: the next writer removes
    that of a killed process.
    """

    in_pieces = False

    def __init__(self, target: PartTarget, *, sink: str, overwrite: bool, owner: str) -> None:
        super().__init__(target.path, sink=sink)
        self._target = target
        self._overwrite = overwrite
        self._owner = owner
        #: The other files of the folder; None if the path names one file.
        self._folder = (
            None if target.parts is None else OwnedFolder(target.path, target.parts, sink=sink)
        )
        self._claim: Claim | None = None
        self._raw: ScratchFile | None = None
        self._file: IO[bytes] | None = None

    @property
    def file(self) -> IO[bytes]:
        """Return the file to write into. Raises ``SinkError`` after ``finish``."""
        if self._file is None:
            raise self.error(f"{self.path} is finished, nothing can be added to it")
        return self._file

    def open(self) -> None:
        """Open the output. Raises ``SinkError`` if the file exists, unless it may be overwritten."""
        self._removable_output()
        scratch = new_scratch(self.path)
        with self.errors():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._claim = self.claimed(lock(self.path), scratch=scratch)
            self._raw = ScratchFile(scratch)
            self._file = compressed(self._raw, self.path.suffix)

    def prepare(self, checkpoint: int) -> Committable:
        raise self.without_checkpoints()

    def commit(self, committable: Committable) -> None:
        raise self.without_checkpoints()

    def finish(self) -> None:
        """Publish the file under its name, durably. Raises ``SinkError``."""
        if self._raw is None:
            return
        raw, former = self._raw, self._removable_output()
        with self.errors():
            if self._file is not None and self._file is not raw:
                self._file.close()
            self._show(raw, former)
            sync_folder(self.path.parent)
        self._raw = self._file = None
        self._release()

    def discard(self) -> None:
        """Remove the file unless it is finished."""
        if self._raw is not None:
            discard_scratch(self._raw, self._file)
            self._raw = self._file = None
        self._release()

    def _show(self, raw: ScratchFile, former: Sequence[Path]) -> None:
        written = raw.end()
        if self._folder is None and self._overwrite:
            os.replace(raw.path, self.path)
            return
        if self._folder is not None:
            self._folder.remove(former, keep=self._owner)
            self._folder.manifest(self._owner).add(self.path.name, written)
        try:
            publish(raw.path, self.path)
        except FileExistsError:
            raise self.already_there(self.path) from None

    def _removable_output(self) -> Sequence[Path]:
        """Return the output of earlier runs to remove. Raises ``SinkError`` for output that must be kept."""
        with self.errors():
            if self._folder is not None:
                return self._folder.removable_output(
                    overwrite=self._overwrite, counts=self._target.is_conflicting
                )
            if self.path.exists() and not self._overwrite:
                raise self.already_there(self.path)
            return ()

    def _release(self) -> None:
        if self._claim is not None:
            self._claim.release()
            self._claim = None


def discard_scratch(raw: ScratchFile, file: IO[bytes] | None) -> None:
    """Close ``raw``, and the compressed ``file`` that writes into it, and remove it."""
    # Data that cannot be written any more (a full disk) will be removed anyway.
    with suppress(OSError):
        if file is not None and file is not raw:
            file.close()
    with suppress(OSError):
        raw.path.unlink()
    with suppress(OSError):
        raw.close()
