"""Exactly once: each checkpoint gets a file of its own, which takes its name when the checkpoint is complete.

Theory. What a writer writes stands in ``….writing``. ``prepare`` makes it durable and calls it ``….pending``; its name
is the committable. ``commit`` renames it once more, and to do that twice changes nothing: the pending file is gone
then. So at any instant a crash leaves files that the checkpoint to continue from names (pending or committed: commit
them) and files that it does not name (remove them). That is all there is to recovering.

Among the files that it does not name are those that later checkpoints have committed, if the job goes on from an older
one: the records in them are going to be written again.

All calls block: they are for worker threads.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from aflow.connect import Committable
from aflow.errors import RestoreError, shown
from aflow_connectors.files.compression import compressed
from aflow_connectors.files.disk import make_folder, remove_unclaimed, sync_folder
from aflow_connectors.files.output import Output, Place, let_go
from aflow_connectors.files.parts import Parts, pending


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a writer has prepared for a checkpoint; ``piece`` is empty if it has written nothing."""

    checkpoint: int
    piece: str
    folder: str
    """Absolute, so that what is pending is found also by a job that writes elsewhere now."""

    def stored(self) -> Committable:
        return {"checkpoint": self.checkpoint, "piece": self.piece, "folder": self.folder}

    @classmethod
    def of(cls, committable: Committable, *, sink: str) -> Prepared:
        """Raises ``RestoreError`` for what no file sink has prepared."""
        try:
            fields = cast(dict[str, object], committable)
            checkpoint, piece, folder = fields["checkpoint"], fields["piece"], fields["folder"]
            if isinstance(checkpoint, int) and isinstance(piece, str) and isinstance(folder, str):
                return cls(checkpoint, piece, folder)
        except (KeyError, TypeError):
            pass
        raise RestoreError(
            f"sink {sink!r} cannot commit {shown(committable)}: the checkpoint was taken with another kind of sink "
            f"under this name"
        )


class PieceOutput(Output):
    """Writes pieces; a lock keeps other writers away as long as it is open, also while there is no file."""

    in_pieces = True

    def __init__(self, parts: Parts, *, sink: str, subtask: int) -> None:
        super().__init__(parts.part(subtask), sink=sink)
        self._parts = parts
        self._subtask = subtask
        self._lock: IO[bytes] | None = None
        self._raw: IO[bytes] | None = None
        self._file: IO[bytes] | None = None
        #: Pieces that wait for their commit.
        self._pending: set[str] = set()

    @property
    def file(self) -> IO[bytes]:
        """What to write into, begun if there is none. Raises ``SinkError`` when the writer is closed."""
        if self._file is None:
            if self._lock is None:
                raise self.error(f"{self.path} is closed, nothing can be added to it")
            with self.errors():
                self._raw = self._parts.writing(self._subtask).open("wb")
                self._file = compressed(self._raw, Path(self._parts.ending).suffix)
        return self._file

    def open(self) -> None:
        with self.errors():
            make_folder(self._parts.folder)
            self._lock = self.claimed(self._parts.lock(self._subtask))

    def prepare(self, checkpoint: int) -> Committable:
        """Make durable what was written, under a name that no source reads. Raises ``SinkError``."""
        folder = self._parts.folder
        if self._raw is None:
            return Prepared(checkpoint, "", str(folder.absolute())).stored()
        piece = self._parts.piece(self._subtask, checkpoint)
        waiting = pending(folder, piece)
        for path in (folder / piece, waiting):
            self._refuse_second(path, checkpoint)
        with self.errors():
            if self._file is not None and self._file is not self._raw:
                self._file.close()
            self._raw.flush()
            os.fsync(self._raw.fileno())
            self._raw.close()
            os.rename(self._parts.writing(self._subtask), waiting)
            sync_folder(folder)
        self._raw = self._file = None
        self._pending.add(piece)
        return Prepared(checkpoint, piece, str(folder.absolute())).stored()

    def commit(self, committable: Committable) -> None:
        prepared = Prepared.of(committable, sink=self.sink)
        with self.errors():
            show(self._parts, prepared, self)
        self._pending.discard(prepared.piece)

    def finish(self) -> None:
        """Nothing is left to do. Raises ``SinkError`` if a checkpoint was due before."""
        if self._raw is not None or self._pending:
            raise self.error(
                f"the input of {self.path} has ended, but no checkpoint covers the last records"
            )

    def discard(self) -> None:
        """Remove what no checkpoint covers. What is prepared stays: its checkpoint may be complete."""
        if self._raw is not None:
            let_go(self._raw, self._file, self._parts.writing(self._subtask))
            self._raw = self._file = None
        if self._lock is not None:
            let_go(self._lock, None, self._parts.lock(self._subtask))
            self._lock = None

    def _refuse_second(self, path: Path, checkpoint: int) -> None:
        if path.exists():
            raise self.error(
                f"{path} is there already, of another checkpoint {checkpoint}; was the storage of checkpoints "
                f"replaced? Go on from a checkpoint of this output, or write elsewhere"
            )


class Recovery(Place):
    """Brings the files of a sink to where a checkpoint had them, before any of its writers is opened."""

    def __init__(self, path: Path, parts: Parts, *, sink: str, overwrite: bool) -> None:
        super().__init__(path, sink=sink)
        self._parts = parts
        self._overwrite = overwrite

    def recover(self, committables: Sequence[Committable]) -> None:
        """Raises ``SinkError``, also if a writer is at work here, and ``RestoreError``."""
        prepared = [Prepared.of(one, sink=self.sink) for one in committables]
        with self.errors():
            self._refuse_while_others_write()
            for one in sorted(prepared, key=lambda one: one.checkpoint):
                show(self._parts, one, self)
            for path in self._parts.uncommitted():
                path.unlink()
            if prepared:
                self._remove_behind(max(one.checkpoint for one in prepared))
            else:
                self._begin_anew()
            if self._parts.folder.is_dir():
                sync_folder(self._parts.folder)

    def _refuse_while_others_write(self) -> None:
        for lock in self._parts.locks():
            if not remove_unclaimed(lock):
                raise self.taken(lock)

    def _remove_behind(self, checkpoint: int) -> None:
        for path, number in self._parts.pieces():
            if number > checkpoint:
                path.unlink()

    def _begin_anew(self) -> None:
        """There is nothing to go on from: what is there is of another run."""
        there = [path for path, _ in self._parts.pieces()] + self._parts.parts()
        if self.path.is_file():
            there.append(self.path)
        if there and not self._overwrite:
            raise self.already_there(there[0])
        for path in there:
            path.unlink()


def show(parts: Parts, prepared: Prepared, place: Place) -> None:
    """Give a piece its name. One that is not there any more was committed before (and readers may have removed it)."""
    if not prepared.piece:
        return
    for folder in dict.fromkeys((parts.folder.absolute(), Path(prepared.folder))):
        waiting, shown_as = pending(folder, prepared.piece), folder / prepared.piece
        if waiting.exists():
            if shown_as.exists():
                raise place.error(
                    f"{shown_as} is there already, and it is not what the sink prepared for checkpoint "
                    f"{prepared.checkpoint} ({waiting}): remove one of the two"
                )
            os.rename(waiting, shown_as)
            sync_folder(folder)
