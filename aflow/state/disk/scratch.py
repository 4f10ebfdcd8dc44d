"""Scratch folders for the database of a backend on disk, removed when the backend is closed.

Theory. A folder tells if it is in use, so that the folders of killed programs can be removed. The program that uses it
holds a lock on the file ``in use`` in it, and the operating system releases the lock when the process ends. A folder
whose lock is free is not in use. Between its creation and its lock another program may remove it; then the next one is
made. A system without locks keeps the folders of killed programs.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import weakref
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aflow.errors import OperatorError
from aflow.model.file_locks import LocksMissing, lock_exclusively
from aflow.state.disk.store import Engine, Store

PREFIX: Final = "aflow-state-"

_LOCK: Final = "in use"


class Scratch:
    """A database in a temporary folder below ``folder`` (None: the folder of temporary files).

    It is made when it is first needed. Folders of killed programs are removed then.
    """

    def __init__(self, engine: Engine, folder: Path | None, operator: str) -> None:
        self._engine = engine
        self._folder = folder
        self._operator = operator
        self._store: Store | None = None
        self._end: weakref.finalize[[Store, ClaimedFolder], Scratch] | None = None

    @property
    def exists(self) -> bool:
        """True after the first use of the database."""
        return self._store is not None

    @property
    def store(self) -> Store:
        """The database, made at the first use. Raises ``OperatorError`` if the folder cannot be made."""
        if self._store is None:
            folder = self._made()
            try:
                self._store = self._engine(folder.path)
            except BaseException:
                folder.remove()
                raise
            # Also at the end of the program, if `clear` was not called.
            self._end = weakref.finalize(self, _end, self._store, folder)
        return self._store

    def clear(self) -> None:
        """Close the database and remove its folder; the next use makes a new one."""
        self._store = None
        if self._end is not None:
            self._end()

    def _made(self) -> ClaimedFolder:
        try:
            if self._folder is not None:
                self._folder.mkdir(parents=True, exist_ok=True)
            remove_left_over(self._folder)
            return claimed_folder(self._folder)
        except OSError as exc:
            raise OperatorError(
                f"step {self._operator!r} cannot keep its state on disk: no folder can be made in "
                f"{self._folder or tempfile.gettempdir()}: {exc}",
                operator=self._operator,
            ) from exc


def _end(store: Store, folder: ClaimedFolder) -> None:
    try:
        store.close()
    finally:
        folder.remove()


@dataclass(frozen=True, slots=True)
class ClaimedFolder:
    """A folder whose lock, the file descriptor ``lock``, is held."""

    path: Path
    lock: int

    def remove(self) -> None:
        """Remove the folder with its content."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self.lock)


def claimed_folder(parent: Path | None) -> ClaimedFolder:
    """Make a folder in ``parent`` (None: the folder of temporary files) and lock it. Raises ``OSError``."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        lock = _locked(path, os.O_CREAT)
        if lock is not None:
            return ClaimedFolder(path, lock)


def remove_left_over(parent: Path | None) -> None:
    """Remove the folders of killed programs in ``parent``."""
    for path in Path(parent or tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(
            OSError
        ):  # removed meanwhile, of another user, or of an older version without lock
            lock = _locked(path, 0)
            if lock is not None:
                ClaimedFolder(path, lock).remove()


def _locked(folder: Path, flags: int) -> int | None:
    """Return the lock of ``folder``; None if another program holds it or removed the folder. Raises ``OSError``."""
    name = folder / _LOCK
    try:
        lock = os.open(name, os.O_RDWR | flags, 0o600)
    except FileNotFoundError:
        return None
    try:
        lock_exclusively(lock)
        if os.path.samestat(os.fstat(lock), os.stat(name)):
            return lock
    except (BlockingIOError, FileNotFoundError):
        pass  # another program holds the lock, or has removed the folder
    except LocksMissing:
        if flags & os.O_CREAT:
            return lock
        os.close(lock)
        raise
    except BaseException:
        os.close(lock)
        raise
    os.close(lock)
    return None
