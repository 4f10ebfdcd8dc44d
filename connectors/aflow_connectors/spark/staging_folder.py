"""The staging folder of a backfill, which its driver claims, and the removal of those that killed drivers left.

Theory. A driver that is killed removes nothing, so the next backfill does. A folder is removed only if all of this is
true:

- It contains a claim: a file with the mark of aflow, the name of this machine and the name of the folder, which a
  folder of another program cannot have by chance.
- It belongs to this user, and is no symbolic link.
- The claim can be locked. A driver that is alive holds the lock (``flock``), which the system takes from it only when
  its process ends.

Where the system knows no locks, nothing can be proven, and nothing is removed.
"""

from __future__ import annotations

import os
import shutil
import socket
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

from aflow.model.file_locks import lock_exclusively

CLAIM: Final = ".aflow-staging"

_MARK: Final = "staging folder of an aflow backfill"
#: The suffix of a folder that is being removed.
_GONE: Final = "-gone"
#: Longer than a claim can be.
_BYTES: Final = 4096


class StagingFolder:
    """A folder that this process has claimed; blocks."""

    def __init__(self, folder: Path, *, private: bool) -> None:
        """Make and claim ``folder``, for this user alone if it is ``private``. Raises ``OSError``."""
        folder.mkdir(parents=True)
        if private:
            folder.chmod(0o700)
        self._folder = folder
        #: None once it is released.
        self._claim: int | None = _claimed(folder)

    def remove(self) -> None:
        """Remove the folder, as far as that can be done, though executors may still write there."""
        _remove(self._folder)
        self.release()

    def release(self) -> None:
        """Release the lock, as the system does when the process ends."""
        if self._claim is not None:
            os.close(self._claim)
            self._claim = None


def remove_stale(parent: Path, pattern: str) -> list[Path]:
    """Remove the folders in ``parent`` that drivers left which were killed; return what was removed.

    ``pattern`` says which names staging folders have there. A folder whose driver is alive stays, as does one of which
    it cannot be proven that it is the staging folder of a backfill.
    """
    removed: list[Path] = []
    with suppress(OSError):
        for folder in sorted({*parent.glob(pattern), *parent.glob(f"{pattern}{_GONE}")}):
            with suppress(OSError):
                if _remove_if_stale(folder):
                    removed.append(folder)
    return removed


def _remove_if_stale(folder: Path) -> bool:
    if not hasattr(os, "getuid"):  # a system without owners and locks
        return False
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        return False
    # Neither a link nor a pipe, which would block, is a claim.
    descriptor = os.open(folder / CLAIM, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return False
        if os.read(descriptor, _BYTES).decode() != _text_of(folder.name.removesuffix(_GONE)):
            return False
        lock_exclusively(descriptor)
        _remove(folder)
        return not folder.exists()
    except (BlockingIOError, UnicodeDecodeError):  # blocked by a driver that is alive
        return False
    finally:
        os.close(descriptor)


def _claimed(folder: Path) -> int:
    """Write the claim of ``folder`` under its lock; return its descriptor, which holds the lock. Raises ``OSError``."""
    descriptor = os.open(folder / CLAIM, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        # Without locks nothing can be proven later, and the folder of a killed driver stays.
        with suppress(OSError):
            lock_exclusively(descriptor)
        os.write(descriptor, _text_of(folder.name).encode())
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _text_of(name: str) -> str:
    return f"{_MARK}\n{socket.gethostname()}\n{name}\n"


def _remove(folder: Path) -> None:
    """Remove ``folder``, and its claim last: if this is interrupted, the next backfill goes on."""
    gone = folder.with_name(f"{folder.name.removesuffix(_GONE)}{_GONE}")
    if gone != folder:
        # First away from those who still write there: what they add would keep it from being removed.
        with suppress(OSError):
            folder.rename(gone)
    with suppress(OSError):
        for entry in gone.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            elif entry.name != CLAIM:
                entry.unlink(missing_ok=True)
    shutil.rmtree(gone, ignore_errors=True)
