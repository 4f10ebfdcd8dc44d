"""Staged pieces of a table sink: Parquet files on disk until they are in the table.

All calls block: they are for worker threads.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final
from zlib import crc32

from aflow.errors import RestoreError
from aflow_connectors.files.output.lock_file import sync_folder
from aflow_connectors.files.output.names import Parts
from aflow_connectors.files.output.ownership import OwnedFolder
from aflow_connectors.files.output.pieces import FolderRecovery, Pieces, PreparedPiece
from aflow_connectors.spark.tables.spark_table import HISTORY_SUFFIX

#: Checkpoint number for the output of a run without checkpoints.
NO_CHECKPOINT: Final = 0

_STEM: Final = "part"

#: Names of pieces of history, which were never staged.
_HISTORY_PIECE: Final = re.compile(rf"{_STEM}-{HISTORY_SUFFIX}\.parquet")


def history_piece(suffix: str) -> str:
    """Return the name of the piece of history with ``suffix``, as if it had been staged."""
    return f"{_STEM}-{suffix}.parquet"


def is_history_piece(piece: str) -> bool:
    """Return True for the name of a piece of history."""
    return _HISTORY_PIECE.fullmatch(piece) is not None


class StagedPieces(OwnedFolder):
    """Folder in which one sink stages for one table; each has its own, so that sinks can share ``above``."""

    def __init__(self, above: Path, table: str, *, sink: str) -> None:
        # Spark ignores names that begin with a dot or an underscore.
        name = f"{table}-{sink}"
        folder = f"for-{re.sub(r'[^A-Za-z0-9.-]', '_', name)}-{crc32(name.encode()):08x}"
        path = above / folder
        super().__init__(path, Parts(path, _STEM, ".parquet"), sink=sink)

    def value(self, piece: str) -> str:
        """Return the partition value for a staged piece: ``totals-00000-000012``."""
        return self.sink + Path(piece).stem.removeprefix(_STEM)

    def publish(self, pieces: Sequence[PreparedPiece]) -> list[Path]:
        """Rename ``pieces`` of this folder to the names that Spark reads; return the files. Raises ``SinkError``."""
        with self.errors():
            for one in pieces:
                self._pieces(self.path, one.owner).commit(one)
        paths = (self.path / one.piece for one in pieces if one.piece)
        return [path for path in paths if path.exists()]

    def files(self, pieces: Sequence[PreparedPiece]) -> list[Path]:
        """Return the existing files of ``pieces``, to be loaded into the table."""
        paths = (
            self._pieces(folder, one.owner).file_of(one)
            for one in pieces
            if one.piece and one.owner
            for folder in self._folders(one)
        )
        return [path for path in paths if path is not None]

    def remove_loaded(self, files: Sequence[Path]) -> None:
        """Remove ``files``, which are in the table now. Raises ``SinkError``."""
        with self.errors():
            for file in files:
                file.unlink()
            for folder in {file.parent for file in files}:
                sync_folder(folder)

    def clear(self, subtask: int) -> None:
        """Remove the output of a run without checkpoints that crashed at its end. Raises ``SinkError``."""
        piece = self.parts.piece(subtask, NO_CHECKPOINT)
        with self.errors():
            found = self.output_of_others()
            names = {piece, *(self.parts.pending(piece, one).name for one in self.parts.owners())}
            self.remove(path for path in found.shown + found.pending if path.name in names)

    def recover(self, pieces: Sequence[PreparedPiece], *, overwrite: bool) -> str:
        """Restore the files to their state at a checkpoint, and return their owner.

        Raises ``SinkError``, also while others write here.
        """
        recovery = FolderRecovery(self.path, self.parts, sink=self.sink, overwrite=overwrite)
        return recovery.recover([one.stored() for one in pieces])

    def refuse_lost(
        self, pieces: Sequence[PreparedPiece], table: str, written: Collection[str]
    ) -> None:
        """Raise ``RestoreError`` for a piece that is neither staged nor among those ``written`` into the table."""
        for one in pieces:
            if not one.piece or self.value(one.piece) in written:
                continue
            if is_history_piece(one.piece):  # never staged
                raise RestoreError(
                    f"sink {self.sink!r} cannot commit savepoint {one.checkpoint}: the rows that a backfill wrote for "
                    f"it ({self.value(one.piece)}) are not in table {table}; did another backfill or job continue "
                    f"from the savepoint before it and replace them, or was the table recreated? Start from the newest "
                    f"savepoint, or run the backfill again"
                )
            if self._is_staged(one):
                continue
            if not one.owner:
                raise RestoreError(
                    f"sink {self.sink!r} cannot commit checkpoint {one.checkpoint}: the rows of {one.piece} are not in "
                    f"table {table}, and a version of aflow that kept no manifest staged them, so nothing proves "
                    f"whose file that is. Start the job once with that version, and stop it"
                )
            raise RestoreError(
                f"sink {self.sink!r} cannot commit checkpoint {one.checkpoint}: {one.piece} is not staged in "
                f"{' or '.join(map(str, self._folders(one)))}, and its rows are not in table {table}; was the staging "
                f"folder removed, or the table recreated? Resume from a checkpoint of this table"
            )

    def _is_staged(self, piece: PreparedPiece) -> bool:
        return any(
            self._pieces(folder, piece.owner).file_of(piece) is not None
            for folder in self._folders(piece)
        )

    def _pieces(self, folder: Path, owner: str) -> Pieces:
        return Pieces(Parts(folder, _STEM, ".parquet"), owner, sink=self.sink)

    def _folders(self, piece: PreparedPiece) -> list[Path]:
        """Return the folders that may hold its file: the job may have had another staging folder."""
        return list(dict.fromkeys((self.path.absolute(), Path(piece.folder))))
