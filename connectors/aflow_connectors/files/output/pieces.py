"""Exactly-once output: each checkpoint gets a file of its own, published when the checkpoint is complete.

Theory. A writer writes into a scratch file. ``prepare`` makes it durable, records it in the manifest of the owner, and
renames it to ``….pending``; the committable names piece and owner. ``commit`` records that it begins and renames the
file again. A repeated commit changes nothing, since the pending file is gone then. So a crash at any instant leaves
files that the restored checkpoint names (pending or committed: commit them) and files that it does not name (remove
them). The latter include files that later checkpoints have committed, if the job is restored from an older one: their
records will be written again.

Only files that the manifest of the owner proves to be its own are changed. If a piece of the checkpoint is neither
pending nor recorded as committed, output was lost, which is an error.

All calls block: they are for worker threads.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import IO, Final, cast

from aflow.connect import Committable
from aflow.errors import RestoreError
from aflow_connectors.commit_errors import check_one_owner, foreign_committable
from aflow_connectors.files.compression import compressed
from aflow_connectors.files.output.lock_file import (
    Claim,
    is_claimed,
    make_folder,
    publish,
    sync_folder,
)
from aflow_connectors.files.output.manifest import Fingerprint, FolderManifest, Records, ScratchFile
from aflow_connectors.files.output.names import Parts, new_scratch
from aflow_connectors.files.output.output_file import SinkOutput, discard_scratch
from aflow_connectors.files.output.ownership import OwnedFolder, SinkPath
from aflow_connectors.owners import is_owner, new_owner

#: Maximum length of a file name.
_LONGEST: Final = 256


def _is_path(text: str) -> bool:
    """Return True if ``text`` is a valid file name for the system."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


@dataclass(frozen=True, slots=True)
class PreparedPiece:
    """Output prepared by a writer for a checkpoint; ``piece`` is empty if it wrote no records."""

    checkpoint: int
    piece: str
    folder: str
    """Absolute path of the folder with the manifest, if the sink now writes elsewhere."""
    owner: str
    """Empty in checkpoints of versions without manifests."""
    generation: int = 0
    """Number of earlier restores of the job: later withdrawals may have removed output of this checkpoint."""

    def stored(self) -> Committable:
        return {
            "checkpoint": self.checkpoint,
            "piece": self.piece,
            "folder": self.folder,
            "owner": self.owner,
            "generation": self.generation,
        }

    @classmethod
    def of(cls, committable: Committable, *, sink: str) -> PreparedPiece:
        """Return the decoded committable. Raises ``RestoreError`` unless a file sink prepared it."""
        fields = cast("dict[str, object]", committable)
        match fields:
            case {"checkpoint": int(number), "piece": str(piece), "folder": str(folder)}:
                owner, generation = fields.get("owner", ""), fields.get("generation", 0)
                bare = not piece.startswith(".") and "/" not in piece and len(piece) < _LONGEST
                names = _is_path(piece) and _is_path(folder)
                known = isinstance(owner, str) and (not owner or is_owner(owner))
                if known and isinstance(generation, int) and generation >= 0 and bare and names:
                    return cls(number, piece, folder, cast("str", owner), generation)
            case _:
                pass
        raise foreign_committable(sink, committable)


class PieceOutput(SinkOutput):
    """Writes pieces; its lock excludes other writers while it is open, even without a file."""

    in_pieces = True

    def __init__(self, parts: Parts, *, sink: str, subtask: int, owner: str) -> None:
        super().__init__(parts.part(subtask), sink=sink)
        self._parts = parts
        self._subtask = subtask
        self._owner = owner
        self._pieces = Pieces(parts, owner, sink=sink)
        self._scratch = new_scratch(self.path)
        self._lock: Claim | None = None
        #: Number of restores of the job when this writer was opened.
        self._generation = 0
        self._raw: ScratchFile | None = None
        self._file: IO[bytes] | None = None
        #: Pieces that wait for their commit.
        self._pending: set[str] = set()

    @property
    def file(self) -> IO[bytes]:
        """Return the file to write into, created if there is none. Raises ``SinkError`` if the writer is closed."""
        if self._file is None:
            if self._lock is None:
                raise self.error(f"{self.path} is closed, nothing can be added to it")
            with self.errors():
                self._raw = ScratchFile(self._scratch)
                self._file = compressed(self._raw, Path(self._parts.ending).suffix)
        return self._file

    def open(self) -> None:
        with self.errors():
            make_folder(self._parts.folder)
            self._lock = self.claimed(self._parts.lock(self._subtask), scratch=self._scratch)
            self._generation = self._pieces.generation()

    def prepare(self, checkpoint: int) -> Committable:
        """Make the written data durable, under a name that sources ignore. Raises ``SinkError``."""
        folder = str(self._parts.folder.absolute())
        if self._raw is None:
            return PreparedPiece(checkpoint, "", folder, self._owner, self._generation).stored()
        piece = self._parts.piece(self._subtask, checkpoint)
        self._pieces.refuse_second(piece)
        with self.errors():
            if self._file is not None and self._file is not self._raw:
                self._file.close()
            self._pieces.wait(self._scratch, piece, self._raw.end())
            sync_folder(self._parts.folder)
        self._raw = self._file = None
        self._pending.add(piece)
        return PreparedPiece(checkpoint, piece, folder, self._owner, self._generation).stored()

    def commit(self, committable: Committable) -> None:
        prepared = PreparedPiece.of(committable, sink=self.sink)
        with self.errors():
            self._pieces.commit(prepared)
        self._pending.discard(prepared.piece)

    def finish(self) -> None:
        """Raise ``SinkError`` if records are not covered by a checkpoint; nothing else remains to be done."""
        if self._raw is not None or self._pending:
            raise self.error(
                f"the input of {self.path} has ended, but no checkpoint covers the last records"
            )

    def discard(self) -> None:
        """Remove data that no checkpoint covers. Prepared pieces are kept: their checkpoint may be complete."""
        if self._raw is not None:
            discard_scratch(self._raw, self._file)
            self._raw = self._file = None
        if self._lock is not None:
            self._lock.release()
            self._lock = None


class Pieces(SinkPath):
    """Pieces of one owner in one folder."""

    def __init__(self, parts: Parts, owner: str, *, sink: str) -> None:
        super().__init__(parts.folder, sink=sink)
        self.parts = parts
        self.owner = owner
        self.manifest = FolderManifest(parts.manifest(owner), owner, sink=sink)

    def generation(self) -> int:
        """Return how often output of this owner was withdrawn here. Raises ``OSError``."""
        records = self.manifest.read()
        return 0 if records is None else len(records.withdrawn)

    def refuse_second(self, piece: str) -> None:
        """Raise ``SinkError`` if a piece of this name exists: it would be replaced."""
        for path in (self.parts.folder / piece, self.parts.pending(piece, self.owner)):
            if path.exists():
                raise self.error(
                    f"{path} already exists, and this sink has not written it for the present checkpoint; was the "
                    f"storage of checkpoints replaced? Resume from a checkpoint of this output, or write elsewhere"
                )

    def wait(self, file: Path, piece: str, fingerprint: Fingerprint) -> None:
        """Rename ``file``, which is durable, to the pending ``piece``. The new name is not durable yet."""
        self.manifest.add(piece, fingerprint)
        os.rename(file, self.parts.pending(piece, self.owner))

    def commit(self, prepared: PreparedPiece) -> None:
        """Publish a piece, unless that was done. Raises ``SinkError``, and ``RestoreError`` for a lost piece."""
        numbers = self._numbers(prepared)
        if numbers is None:
            return
        waiting = self.parts.pending(prepared.piece, self.owner)
        if not waiting.exists():
            self._refuse_lost(prepared, self.manifest.read())
            return
        self.manifest.committing(*numbers)
        shown_as = self.parts.folder / prepared.piece
        try:
            publish(waiting, shown_as)
        except FileExistsError:
            raise self.error(
                f"{shown_as} already exists, and it is not what the sink prepared for checkpoint "
                f"{prepared.checkpoint} ({waiting}): move it elsewhere, and start the job again"
            ) from None
        sync_folder(self.parts.folder)

    def commit_restored(self, prepared: PreparedPiece) -> None:
        """Publish a piece of an earlier run as ``commit`` does. Raises ``RestoreError`` if it was changed since."""
        if self._numbers(prepared) is not None:
            waiting = self.parts.pending(prepared.piece, self.owner)
            records = self.manifest.read() or Records()
            known = records.files.get(prepared.piece)
            if os.path.lexists(waiting) and (known is None or not known.matches(waiting)):
                raise RestoreError(
                    f"sink {self.sink!r} cannot commit checkpoint {prepared.checkpoint}: {waiting} is not the file "
                    f"that the job wrote, as its manifest describes it. Bring the folder back as it was, with its "
                    f"hidden files, or start fresh (restore='fresh') with an empty folder"
                )
        self.commit(prepared)

    def commit_elsewhere(self, prepared: PreparedPiece) -> None:
        """Publish a piece in a folder that its sink has left, unless a job still writes there, which does it itself."""
        if not any(is_claimed(held) for held in self.parts.locks()):
            self.commit_restored(prepared)

    def file_of(self, prepared: PreparedPiece) -> Path | None:
        """Return the file of a piece, pending or published; None if it is missing, or not of this owner."""
        records = self.manifest.read()
        if self._numbers(prepared) is None or records is None:
            return None
        found = records.files.get(prepared.piece)
        if found is None:
            return None
        waiting = self.parts.pending(prepared.piece, self.owner)
        if waiting.exists():
            return waiting
        path = self.parts.folder / prepared.piece
        return path if found.matches(path) else None

    def _numbers(self, prepared: PreparedPiece) -> tuple[int, int] | None:
        """Return writer and checkpoint of a piece; None if nothing was written."""
        if not prepared.piece:
            return None
        numbers = self.parts.numbers(prepared.piece)
        if prepared.owner != self.owner or numbers is None:
            raise self.error(
                f"checkpoint {prepared.checkpoint} names {prepared.piece!r} of owner {prepared.owner!r}, which is no "
                f"piece of this sink (owner {self.owner!r})"
            )
        return numbers

    def _refuse_lost(self, prepared: PreparedPiece, records: Records | None) -> None:
        writer, checkpoint = self.parts.numbers(prepared.piece) or (0, 0)
        if records is not None and records.committed.get(writer, 0) >= checkpoint:
            return
        raise RestoreError(
            f"sink {self.sink!r} cannot commit checkpoint {prepared.checkpoint}: {prepared.piece} is not in "
            f"{self.path} any more, and no manifest there says that it was committed. Bring the folder back with its "
            f"hidden files, or start fresh (restore='fresh') with an empty folder"
        )


class FolderRecovery(OwnedFolder):
    """Restores the files of a sink to their state at a checkpoint, before any of its writers is opened."""

    def __init__(self, path: Path, parts: Parts, *, sink: str, overwrite: bool) -> None:
        super().__init__(path, parts, sink=sink)
        self._overwrite = overwrite

    def recover(self, committables: Sequence[Committable]) -> str:
        """Return the owner of the output that follows.

        Raises ``SinkError`` for output of others, and if a writer is active here, and ``RestoreError``.
        """
        prepared = sorted(
            (PreparedPiece.of(one, sink=self.sink) for one in committables),
            key=lambda one: one.checkpoint,
        )
        with self.errors():
            self.refuse_while_others_write()
            owner = self._recovered(prepared)
            self.sync()
        return owner

    def _recovered(self, prepared: Sequence[PreparedPiece]) -> str:
        owners = {one.owner for one in prepared}
        check_one_owner(self.sink, owners)
        if not prepared:
            self._start_fresh()
            return new_owner()
        (owner,) = owners
        if not owner:
            return self._adopt(prepared)
        records = self.manifest(owner).read()
        if records is None:
            self._start_in_new_folder(prepared, owner)
        else:
            self._resume(prepared, owner, records, last=prepared[-1].checkpoint)
        return owner

    def _start_fresh(self) -> None:
        """Start without a checkpoint: existing output is of another run."""
        former = self.removable_output(overwrite=self._overwrite)
        if self.path.is_file():
            if not self._overwrite:
                raise self.already_there(self.path)
            former.append(self.path)
        self.remove(former)

    def _resume(
        self, prepared: Sequence[PreparedPiece], owner: str, records: Records, *, last: int
    ) -> None:
        """Restore the folder of checkpoint ``last``, wherever it is now."""
        self._refuse_output_of_others(owner)
        former = [self._pieces_elsewhere(one, owner, records) for one in prepared]
        # The newest piece says which withdrawals the checkpoint has seen: a writer that was bypassed has older ones.
        # Withdrawals are counted by folder, so a piece of another folder does not say which of these it has seen.
        since = max(
            0 if there else one.generation for one, there in zip(prepared, former, strict=True)
        )
        for first, end in records.withdrawn[since:]:
            if first <= last:
                raise RestoreError(
                    f"sink {self.sink!r} cannot resume from checkpoint {last}: the job was restored from an "
                    f"earlier one after it, and the output of checkpoints {first} to {end} was removed from "
                    f"{self.path}; resume from an earlier checkpoint, or from one that was taken since then"
                )
        pieces = Pieces(self.parts, owner, sink=self.sink)
        for one, there in zip(prepared, former, strict=True):
            if there is None:
                pieces.commit_restored(one)
            else:
                there.commit_elsewhere(one)
        self._withdraw(owner, {one.piece for one in prepared}, last)

    def _withdraw(self, owner: str, named: set[str], last: int) -> None:
        """Remove the output of ``owner`` that is not of the checkpoint: it will be written again."""
        manifest = self.manifest(owner)
        records = manifest.read() or Records()
        removed: list[Path] = []
        numbers: list[int] = []
        for name, fingerprint in records.files.items():
            path, waiting = self.parts.folder / name, self.parts.pending(name, owner)
            _, checkpoint = self.parts.numbers(name) or (0, 0)
            if name not in named and waiting.exists():
                removed.append(waiting)
                numbers += [checkpoint] if checkpoint > last else []
            if checkpoint > last and path.exists():
                if not fingerprint.matches(path):
                    raise self.error(
                        f"the job is restored from checkpoint {last}, and {path}, which it wrote for checkpoint "
                        f"{checkpoint}, was changed since: move it elsewhere, its records are going to be written again"
                    )
                removed.append(path)
                numbers.append(checkpoint)
        if numbers:
            span = min(numbers), max(numbers)
            manifest.withdrawing(*span)
            records.withdrawn.append(span)
        for path in removed:
            path.unlink(missing_ok=True)
        # Pieces that readers have removed need no proof any more.
        records.files = {
            name: one for name, one in records.files.items() if (self.parts.folder / name).exists()
        }
        manifest.replace(records)

    def _start_in_new_folder(self, prepared: Sequence[PreparedPiece], owner: str) -> None:
        """Commit the pieces of a checkpoint of another folder, or of other names, where they are."""
        self._refuse_output_of_others(owner)
        self._refuse_unproven()
        for one in prepared:
            if not one.piece:
                continue
            there = self._pieces_elsewhere(one, owner, Records())
            if there is None:
                raise RestoreError(
                    f"sink {self.sink!r} cannot commit checkpoint {one.checkpoint}: its output {one.piece} is not in "
                    f"{self.path}, and there is no manifest of it in {one.folder} either. Bring that folder back with "
                    f"its hidden files, there or as {self.parts.folder}; or start fresh (restore='fresh')"
                )
            there.commit_elsewhere(one)

    def _pieces_elsewhere(self, one: PreparedPiece, owner: str, records: Records) -> Pieces | None:
        """Return the pieces in the folder of ``one``; None if this folder has it, or that one has no manifest of it."""
        if not one.piece or one.piece in records.files:
            return None
        parts = Parts.of_piece(Path(one.folder), one.piece)
        if parts is None or parts == replace(self.parts, folder=self.parts.folder.absolute()):
            return None
        there = Pieces(parts, owner, sink=self.sink)
        return None if there.manifest.read() is None else there

    def _adopt(self, prepared: Sequence[PreparedPiece]) -> str:
        """Resume from a checkpoint of a version without manifests.

        The owner is derived from the checkpoint, so that a second recovery after a crash finds the files of the first
        one. Files of such a version are not removed: their owner cannot be proven.
        """
        last, folder = prepared[-1].checkpoint, self.parts.folder
        identity = repr([(one.checkpoint, one.piece, one.folder) for one in prepared])
        owner = sha256(identity.encode()).hexdigest()[:16]
        pieces = Pieces(self.parts, owner, sink=self.sink)
        known = pieces.manifest.read() or Records()
        for path in self.parts.output_files():
            _, checkpoint = self.parts.numbers(path.name) or (0, 0)
            if checkpoint > last and path.name not in known.files:
                raise self.error(
                    f"the job resumes from checkpoint {last}, of a version of aflow that kept no manifest, and {path} "
                    f"may be output of a later one: if so remove it, its records are going to be written again; "
                    f"otherwise move it elsewhere"
                )
        for one in prepared:
            waiting = folder / f".{one.piece}.pending"
            if one.piece and self._is_own(one, waiting):
                pieces.refuse_second(one.piece)
                pieces.wait(waiting, one.piece, Fingerprint.of(waiting))
        records = pieces.manifest.read()
        if records is None:
            self._refuse_output_of_others(owner)
        else:
            named = [replace(one, owner=owner) for one in prepared if one.piece in records.files]
            self._resume(named, owner, records, last=last)
        return owner

    def _is_own(self, one: PreparedPiece, waiting: Path) -> bool:
        """Return True if a piece without owner waits in the sink's own folder, False if it was committed.

        Raises ``RestoreError`` if it may wait in another one, where nothing proves that it may be changed.
        """
        if self.parts.numbers(one.piece) is not None and waiting.is_file():
            return True
        if (
            not (self.parts.folder / one.piece).exists()
            and (Path(one.folder) / waiting.name).exists()
        ):
            raise RestoreError(
                f"sink {self.sink!r} cannot commit {one.piece}: a version of aflow that kept no manifest prepared it "
                f"in {one.folder}, and the sink writes to {self.path} now. Start the job once with the former path"
            )
        return False

    def _refuse_output_of_others(self, owner: str) -> None:
        found = self.output_of_others(owner).shown
        if found:
            raise self.error(
                f"{found[0]} is output of another run than that of the checkpoint, and to mix them would make both "
                f"useless: write elsewhere, or move that output away"
            )

    def _refuse_unproven(self) -> None:
        found = self.parts.output_files() + ([self.path] if self.path.is_file() else [])
        if found:
            raise self.error(
                f"the sink did not write to {self.path} before, and {found[0]} already exists, which has the name "
                f"of a file of this sink: write elsewhere, or move it away"
            )
