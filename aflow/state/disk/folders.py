"""Temporary folders that tell whether anybody still works in them, so that what a killed program left can be removed.

Theory. Whoever works in a folder holds a lock on the file ``in use`` in it, which goes with the process, however that
ends. A folder whose lock can be had belongs to nobody any more. Between making a folder and locking it, somebody else
may take it for left over; then another one is made. A system without locks keeps what a killed program left.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aflow.model.file_locks import LocksMissing, lock_exclusively

PREFIX: Final = "aflow-state-"

_LOCK: Final = "in use"


@dataclass(frozen=True, slots=True)
class ClaimedFolder:
    """An empty folder of which the file ``lock`` (a descriptor) is held."""

    path: Path
    lock: int

    def remove(self) -> None:
        """Remove the folder with all that is in it."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self.lock)


def claimed_folder(parent: Path | None) -> ClaimedFolder:
    """A new folder in ``parent`` (None: where temporary files are). Raises ``OSError``."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        lock = _locked(path, os.O_CREAT)
        if lock is not None:
            return ClaimedFolder(path, lock)


def remove_left_over(parent: Path | None) -> None:
    """Remove the folders in ``parent`` in which a program that was killed has worked."""
    for path in Path(parent or tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with suppress(
            OSError
        ):  # gone meanwhile, of another user, or of an older version without lock
            lock = _locked(path, 0)
            if lock is not None:
                ClaimedFolder(path, lock).remove()


def _locked(folder: Path, flags: int) -> int | None:
    """The lock of ``folder``; None if somebody else has it, or had it and removed the folder. Raises ``OSError``."""
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
        pass
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
