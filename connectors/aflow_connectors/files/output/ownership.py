"""Ownership of the files in the folder of a sink, proven by manifests (``aflow_connectors.files.output.manifest``).

All calls block: they are for worker threads.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from aflow.connect import SinkError
from aflow_connectors.files.output.lock_file import (
    AlreadyLocked,
    Claim,
    ForeignFile,
    claim,
    is_claimed,
    sync_folder,
)
from aflow_connectors.files.output.manifest import FolderManifest, Records
from aflow_connectors.files.output.names import Parts


class SinkPath:
    """A path that a sink writes to, with its errors."""

    def __init__(self, path: Path, *, sink: str, shown: str = "") -> None:
        """``shown`` is the name in messages, if it is not ``path``."""
        self.path = path
        self.sink = sink
        self.shown = shown or str(path)

    def error(self, reason: str) -> SinkError:
        """Return ``reason`` as the failure of this sink."""
        return SinkError(f"sink {self.sink!r}: {reason}")

    def unwritable(self, what: str, reason: object) -> SinkError:
        """Return the error that ``what`` (a record, a column) cannot be written into this file."""
        return self.error(f"{self.shown}: cannot write {what}: {reason}")

    def taken(self, held: Path) -> SinkError:
        """Return the error that another writer holds ``held``."""
        return self.error(
            f"{self.path} is in progress by another writer (of this or another job, it holds {held}): give each sink "
            f"a path of its own"
        )

    def already_there(self, path: Path) -> SinkError:
        """Return the error that ``path`` is output of an earlier run."""
        return self.error(
            f"{path} already exists: remove it, write elsewhere, or pass overwrite=True"
        )

    def unproven(self, path: Path) -> SinkError:
        """Return the error that ``path`` conflicts, and ``overwrite`` does not cover it."""
        return self.error(
            f"{path} already exists: it has the name of a file of this sink, but no manifest in its folder proves "
            f"that aflow wrote it as it is, so overwrite=True does not remove it: move or remove it yourself, or write "
            f"elsewhere"
        )

    def claimed(self, path: Path, *, scratch: Path | None = None) -> Claim:
        """Lock ``path``. Raises ``SinkError`` if another writer holds it, or for a foreign file."""
        try:
            return claim(path, scratch=scratch)
        except AlreadyLocked:
            raise self.taken(path) from None
        except ForeignFile:
            raise self.error(
                f"{path} exists, and is no lock file of this version of aflow: if another program uses it, write "
                f"elsewhere; if an earlier version of aflow left it when it was killed, remove it"
            ) from None

    @contextmanager
    def errors(self) -> Generator[None]:
        """Convert an ``OSError`` into a ``SinkError`` with the path."""
        try:
            yield
        except OSError as exc:
            raise self.error(f"cannot write {self.shown}: {exc.strerror or exc}") from exc


@dataclass(slots=True)
class Found:
    """Output in a folder, of all owners except one."""

    shown: list[Path] = field(default_factory=list[Path])
    """Files for readers that aflow wrote, unchanged."""
    pending: list[Path] = field(default_factory=list[Path])
    """Pieces that wait for a commit, perhaps of a checkpoint that will be restored."""
    unproven: list[Path] = field(default_factory=list[Path])
    """Files with the names of parts or pieces without proof that aflow wrote them."""


class OwnedFolder(SinkPath):
    """Files of a sink in its folder."""

    def __init__(self, path: Path, parts: Parts, *, sink: str) -> None:
        super().__init__(path, sink=sink)
        self.parts = parts

    def manifest(self, owner: str) -> FolderManifest:
        return FolderManifest(self.parts.manifest(owner), owner, sink=self.sink)

    def refuse_while_others_write(self) -> None:
        """Raise ``SinkError`` if a writer is alive here. Remove the scratch files and locks of killed writers."""
        for held in self.parts.locks():
            if is_claimed(held):
                raise self.taken(held)

    def output_of_others(self, owner: str | None = None) -> Found:
        """Find the output that is not of ``owner``. Reads files that may have changed since they were written."""
        found, proven = Found(), set[Path]()
        for one, records in self._records():
            for name, fingerprint in records.files.items():
                path, waiting = self.parts.folder / name, self.parts.pending(name, one)
                if fingerprint.matches(path):
                    proven.add(path)
                    if one != owner:
                        found.shown.append(path)
                if one != owner and waiting.exists():
                    found.pending.append(waiting)
        found.unproven = [path for path in self.parts.output_files() if path not in proven]
        return found

    def remove(self, paths: Iterable[Path], *, keep: str | None = None) -> None:
        """Remove ``paths``, and manifests (except that of ``keep``) without remaining files."""
        for path in paths:
            path.unlink(missing_ok=True)
        for one, records in self._records():
            names = records.files
            if one != keep and not any(self._is_there(name, one) for name in names):
                self.manifest(one).remove()

    def removable_output(
        self, *, overwrite: bool, counts: Callable[[str], bool] = lambda name: True
    ) -> list[Path]:
        """Return the output of earlier runs that may be removed. Raises ``SinkError`` for output that must be kept.

        ``counts`` returns True for names that conflict.
        """
        found = self.output_of_others()
        shown = sorted(path for path in found.shown if counts(path.name))
        unproven = [path for path in found.unproven if counts(path.name)]
        if shown and not overwrite:
            raise self.already_there(shown[0])
        if unproven:
            raise self.unproven(unproven[0])
        return shown + found.pending if overwrite else []

    def sync(self) -> None:
        if self.parts.folder.is_dir():
            sync_folder(self.parts.folder)

    def _records(self) -> list[tuple[str, Records]]:
        found = ((owner, self.manifest(owner).read()) for owner in self.parts.owners())
        return [(owner, records) for owner, records in found if records is not None]

    def _is_there(self, name: str, owner: str) -> bool:
        return (self.parts.folder / name).exists() or self.parts.pending(name, owner).exists()
