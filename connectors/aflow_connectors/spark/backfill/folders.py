"""Folders of a backfill: paths that driver and executors share, the claimed staging folder, and removal of stale ones.

Theory. A killed driver removes nothing, so the next backfill does. It removes a folder only if all of this is true:

- The folder contains a claim: a file with aflow's mark, the name of this machine and the name of the folder, which a
  folder of another program cannot have by chance.
- It belongs to this user, and is no symbolic link.
- The claim can be locked. A live driver holds the lock (``flock``), which the system releases only when the process
  ends.

Without file locks nothing can be proven, and nothing is removed.
"""

from __future__ import annotations

import os
import shutil
import socket
import stat
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from aflow.model.file_locks import lock_exclusively

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


CLAIM: Final = ".aflow-staging"

_MARK: Final = "staging folder of an aflow backfill"
#: Suffix of a folder that is being removed.
_GONE: Final = "-gone"
#: Upper bound of the size of a claim.
_BYTES: Final = 4096


class StagingFolder:
    """A folder claimed by this process; blocks."""

    def __init__(self, folder: Path, *, private: bool) -> None:
        """Create and claim ``folder``, for this user alone if it is ``private``. Raises ``OSError``."""
        folder.mkdir(parents=True)
        if private:
            folder.chmod(0o700)
        self._folder = folder
        #: None once it is released.
        self._claim: int | None = _claimed(folder)

    def remove(self) -> None:
        """Remove the folder as far as possible, even while executors still write into it."""
        _remove(self._folder)
        self.release()

    def release(self) -> None:
        """Release the lock, as the system does when the process ends."""
        if self._claim is not None:
            os.close(self._claim)
            self._claim = None


def remove_stale(parent: Path, pattern: str) -> list[Path]:
    """Remove the folders in ``parent`` of killed drivers; return the removed folders.

    ``pattern`` matches the names of staging folders there. The folder of a live driver is kept, and so is a folder that
    is not provably the staging folder of a backfill.
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
    # A claim is neither a link nor a pipe, which would block.
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
        # Without locks nothing can be proven later, and the folder of a killed driver is kept.
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
    """Remove ``folder``, and its claim last: if this is interrupted, the next backfill continues."""
    gone = folder.with_name(f"{folder.name.removesuffix(_GONE)}{_GONE}")
    if gone != folder:
        # Renamed first: files that executors add would prevent the removal.
        with suppress(OSError):
            folder.rename(gone)
    with suppress(OSError):
        for entry in gone.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry, ignore_errors=True)
            elif entry.name != CLAIM:
                entry.unlink(missing_ok=True)
    shutil.rmtree(gone, ignore_errors=True)


def uri_of(folder: Path) -> str:
    """Return ``folder`` as a URI, independent of Spark's default file system. Spark unquotes nothing, so nothing is
    quoted.
    """
    return f"file://{folder.absolute()}"


def path_of(uri: str) -> Path | None:
    """Return the local path of ``uri``, parsed as Spark does; None for another file system."""
    scheme, _, rest = uri.partition(":") if urlsplit(uri).scheme else ("", "", uri)
    if scheme.lower() == "file":
        is_here = rest.startswith("/") and (not rest.startswith("//") or rest.startswith("///"))
        return Path("/" + rest.lstrip("/")) if is_here else None
    return None if scheme else Path.cwd() / rest


def local_path(uri: str, session: SparkSession) -> Path | None:
    """Return the local path as ``path_of`` does; None too if the file system of a plain path is unknown."""
    return path_of(uri) if urlsplit(uri).scheme or is_local(session) else None


def remove_folder(folder: Path, *, last: str = "") -> None:
    """Remove ``folder`` if possible, even while executors still write into it, and its file ``last`` last; blocks."""
    # Renamed first: files that executors add would prevent the removal.
    gone = folder.with_name(f"{folder.name}-gone")
    with suppress(OSError):
        folder.rename(gone)
    if last:
        clear_folder(gone, except_for=last)
    shutil.rmtree(gone, ignore_errors=True)


def clear_folder(folder: Path, *, except_for: str) -> None:
    """Remove what is in ``folder``, if possible, except for one file; blocks."""
    with suppress(OSError):
        for one in folder.iterdir():
            if one.name == except_for:
                continue
            if one.is_dir():
                shutil.rmtree(one, ignore_errors=True)
            else:
                with suppress(OSError):
                    one.unlink()


def is_local(session: SparkSession) -> bool:
    """Return True if executors run on this machine, in one process with Spark's driver."""
    return (session.conf.get("spark.master", "") or "").startswith("local")
