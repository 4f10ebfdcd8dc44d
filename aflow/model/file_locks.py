"""Exclusive locks on files. They need the module `fcntl`, which Windows does not have."""

from __future__ import annotations

import errno

try:
    import fcntl
except ImportError:
    fcntl = None  # type: ignore[assignment]


class LocksMissing(OSError):
    """The system has no locks on files."""


def lock_exclusively(descriptor: int) -> None:
    """Lock an open file until it is closed, or the process ends.

    Raises ``BlockingIOError`` if another process or another open file holds the lock, ``LocksMissing`` if the system
    has none, and ``OSError`` if the file system refuses.
    """
    if fcntl is None:
        raise LocksMissing(
            errno.ENOTSUP,
            "this system has no fcntl, and so no file locks; use Linux, macOS or WSL",
        )
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
