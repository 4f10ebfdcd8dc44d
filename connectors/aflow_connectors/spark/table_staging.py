"""Staged pieces of a table sink on disk: Parquet files that wait until they are in the table.

All calls block: they are for worker threads.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final
from zlib import crc32

from aflow.connect import Committable
from aflow.errors import RestoreError
from aflow_connectors.files.disk import sync_folder
from aflow_connectors.files.output import Place
from aflow_connectors.files.parts import Parts, pending
from aflow_connectors.files.pieces import Prepared, Recovery, show

#: A run without checkpoints writes all it has as of this one.
NO_CHECKPOINT: Final = 0

_STEM: Final = "part"


class Staging(Place):
    """The folder in which one sink stages for one table; each has its own, so that several can share what is above."""

    def __init__(self, above: Path, table: str, *, sink: str) -> None:
        # Spark passes over names that begin with a dot or an underscore.
        name = f"{table}-{sink}"
        folder = f"for-{re.sub(r'[^A-Za-z0-9.-]', '_', name)}-{crc32(name.encode()):08x}"
        super().__init__(above / folder, sink=sink)
        self.parts = Parts(self.path, _STEM, ".parquet")

    def value(self, piece: str) -> str:
        """The partition of the table for a staged piece: ``totals-00000-000012``."""
        return self.sink + Path(piece).stem.removeprefix(_STEM)

    def show(self, pieces: Sequence[Prepared]) -> list[Path]:
        """Give ``pieces`` the names that Spark reads; as ``files``. Raises ``SinkError``."""
        with self.errors():
            for one in pieces:
                show(self.parts, one, self)
        return self.files(pieces)

    def files(self, pieces: Sequence[Prepared]) -> list[Path]:
        """The files of ``pieces`` that are there to be written into the table."""
        paths = (folder / one.piece for one in pieces if one.piece for folder in self._folders(one))
        return [path for path in paths if path.exists()]

    def remove(self, files: Sequence[Path]) -> None:
        """Remove ``files``, which are in the table now. Raises ``SinkError``."""
        with self.errors():
            for file in files:
                file.unlink()
            for folder in {file.parent for file in files}:
                sync_folder(folder)

    def clear(self, subtask: int) -> None:
        """Remove what a run without checkpoints has left that crashed at its end. Raises ``SinkError``."""
        piece = self.parts.piece(subtask, NO_CHECKPOINT)
        with self.errors():
            for path in (self.path / piece, pending(self.path, piece)):
                path.unlink(missing_ok=True)

    def recover(self, committables: Sequence[Committable], *, overwrite: bool) -> None:
        """Bring the files to where a checkpoint had them. Raises ``SinkError``, also while others write here."""
        recovery = Recovery(self.path, self.parts, sink=self.sink, overwrite=overwrite)
        recovery.recover(committables)

    def refuse_lost(self, pieces: Sequence[Prepared], table: str, written: Collection[str]) -> None:
        """Raise ``RestoreError`` for a piece that is neither staged nor among those ``written`` into the table."""
        for one in pieces:
            if not one.piece or self.value(one.piece) in written or self._is_staged(one):
                continue
            raise RestoreError(
                f"sink {self.sink!r} cannot commit checkpoint {one.checkpoint}: {one.piece} is not staged in "
                f"{' or '.join(map(str, self._folders(one)))}, and its rows are not in table {table}; was the staging "
                f"folder removed, or the table made anew? Go on from a checkpoint of this table"
            )

    def _is_staged(self, piece: Prepared) -> bool:
        return any(
            path.exists()
            for folder in self._folders(piece)
            for path in (folder / piece.piece, pending(folder, piece.piece))
        )

    def _folders(self, piece: Prepared) -> list[Path]:
        """Where its file may be: the job may have had another staging folder."""
        return list(dict.fromkeys((self.path.absolute(), Path(piece.folder))))
