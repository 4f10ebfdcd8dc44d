"""What keeps two writers apart, and what survives a loss of power.

All calls block: they are for worker threads.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import IO, Final

try:
    import fcntl
except ImportError:  # pragma: no cover - not on Linux
    fcntl = None  # type: ignore[assignment]

#: What systems answer where a file is locked by somebody else.
_TAKEN: Final = frozenset({errno.EWOULDBLOCK, errno.EACCES})


class Taken(Exception):
    """Another writer holds the file."""


def claim(path: Path) -> IO[bytes]:
    """``path``, empty and locked (``flock``) as long as it is open; made if it is not there.

    The lock goes with the process, so what a killed one left is free. Where the system or the file system knows no
    locks, another writer is not noticed. Raises ``Taken`` and ``OSError``.
    """
    while True:
        # Not "wb": that would empty a file that is another writer's.
        raw = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "wb")
        try:
            _lock(raw.fileno())
            if _is_named(raw.fileno(), path):
                # A device, or a file of ours alone: cutting it off is for what a killed process left.
                if os.fstat(raw.fileno()).st_size:
                    raw.truncate(0)
                return raw
        except BaseException:
            raw.close()
            raise
        raw.close()


def remove_unclaimed(path: Path) -> bool:
    """Remove what a killed process has left of its claim; False if a writer that is alive holds ``path``."""
    try:
        raw = path.open("rb")
    except FileNotFoundError:
        return True
    with raw:
        try:
            _lock(raw.fileno())
        except Taken:
            return False
        # Under the lock: who claims it in this moment finds it taken, or without its name.
        if _is_named(raw.fileno(), path):
            path.unlink()
        return True


def make_folder(folder: Path) -> None:
    """Make ``folder`` and those that it is in, durably."""
    if folder.is_dir():
        return
    if folder.parent != folder:
        make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in ``folder`` durable: a new one may be lost otherwise when the machine loses power."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> None:
    if fcntl is None:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as exc:
        if exc.errno in _TAKEN:
            raise Taken from None


def _is_named(descriptor: int, path: Path) -> bool:
    """False if the open file has lost this name meanwhile: the writer that had it has finished, or has removed it."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
