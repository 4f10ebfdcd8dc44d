"""Output that a driver prepares in the folder of a ``SparkSink``, as the writers of a live job do. All methods block.

Executors write files into a hidden folder. They become pieces of a savepoint, or of an epoch of a stream, under names
that readers ignore, and are made visible once that exists.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from aflow_connectors.files.output.lock_file import Claim, is_lock
from aflow_connectors.files.output.manifest import Fingerprint
from aflow_connectors.files.output.ownership import OwnedFolder
from aflow_connectors.files.output.pieces import FolderRecovery, Pieces, PreparedPiece
from aflow_connectors.spark.backfill.folders import remove_folder
from aflow_connectors.spark.tables.folder_sink import SparkSink, folder_parts

#: The lock file in a hidden folder.
CLAIM: Final = ".claim"


def is_left(folder: Path) -> bool:
    """Return True if a driver has made this hidden folder. If that was killed, the folder may be removed.

    The lock file proves it: only aflow writes one. A driver that was killed early has left an empty file or none.
    """
    if is_lock(folder / CLAIM):
        return True
    with suppress(OSError):
        return all(one.name == CLAIM and not one.lstat().st_size for one in folder.iterdir())
    return False


class PreparedFolder(OwnedFolder):
    """The folder of a ``SparkSink``, and the hidden one in it."""

    def __init__(self, target: SparkSink[Any], sink: str, *, hidden: str) -> None:
        """``hidden`` begins the name of the folder into which files are written."""
        super().__init__(target.path, folder_parts(target.path), sink=sink)
        self._overwrite = target.overwrite
        #: Folder into which files are written.
        self._hidden = target.path.absolute() / f"{hidden}{uuid4().hex}"
        #: Lock of that folder, which shows that its driver is alive; None while it is not held.
        self._claim: Claim | None = None
        #: Lock against the writers of jobs; None while it is not held.
        self._lock: Claim | None = None
        #: Output of this owner; None before the owner is known.
        self._pieces: Pieces | None = None
        self._prepared: list[PreparedPiece] = []
        #: Number of times that output of this owner was withdrawn.
        self._generation = 0

    def _recovery(self) -> FolderRecovery:
        return FolderRecovery(self.path, self.parts, sink=self.sink, overwrite=self._overwrite)

    def _written(self, files: Sequence[str]) -> list[Path]:
        """Return the paths of files that executors have written. Raises ``SinkError`` for one that is not here."""
        paths = [self._hidden / name for name in sorted(files)]
        for path in paths:
            if not path.exists():
                raise self.error(
                    f"an executor has written {path}, which this machine does not see: the folder of a SparkSink must "
                    f"be one that the driver and all executors see alike"
                )
        return paths

    def _wait(self, file: Path, number: int, checkpoint: int) -> PreparedPiece:
        """Make a file durable under a name that readers ignore."""
        piece = self.parts.piece(number, checkpoint)
        with file.open("rb") as raw:
            os.fsync(raw.fileno())
        self._known_pieces().wait(file, piece, Fingerprint.of(file))
        return self._prepared_piece(checkpoint, piece)

    def _prepared_piece(self, checkpoint: int, piece: str = "") -> PreparedPiece:
        """Return a description of ``piece``; without one, of a checkpoint without output, which names the owner."""
        folder, owner = str(self.path.absolute()), self._known_pieces().owner
        return PreparedPiece(checkpoint, piece, folder, owner, self._generation)

    def _known_pieces(self) -> Pieces:
        assert self._pieces is not None
        return self._pieces

    def _commit_prepared(self) -> None:
        """Make prepared output visible."""
        with self.errors():
            for one in self._prepared:
                self._known_pieces().commit(one)
        self._prepared.clear()

    def _release(self) -> None:
        """Release the locks, and remove the hidden folder."""
        if self._claim is not None:
            # The lock file proves that the folder is aflow's, if this is interrupted.
            remove_folder(self._hidden, last=CLAIM)
            self._claim.release()
            self._claim = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None
