"""Lock files that exclude a second writer, and durable changes of folders.

All calls block: they are for worker threads.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from contextlib import suppress
from io import FileIO
from pathlib import Path
from typing import IO, Final, Literal, cast

from aflow.model.file_locks import lock_exclusively

#: Errors for a file that is locked elsewhere.
_LOCK_ERRORS: Final = frozenset({errno.EWOULDBLOCK, errno.EACCES})

#: Errors of file systems without hard links.
_NO_LINKS: Final = frozenset(
    {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK}
)

#: Names of scratch files: the owner id makes them unique.
SCRATCH: Final = re.compile(r"\.[^/\0]+\.[0-9a-f]{16}\.writing")

_LONGEST_NOTE: Final = 4096


class AlreadyLocked(Exception):
    """Raised if another writer holds the lock."""


class ForeignFile(Exception):
    """Raised if the file exists and aflow did not write it."""


class Claim:
    """A lock file, held (``flock``) until ``release``. It names the scratch file of its writer.

    Its content proves that aflow created it, and which scratch file a killed writer has left. A file of this name with
    other content is not changed. An empty one is that of a writer that was killed before it wrote the content.
    """

    def __init__(self, path: Path, file: IO[bytes]) -> None:
        self.path = path
        self._file = file

    def release(self) -> None:
        """Remove the lock file, and release the lock."""
        with suppress(OSError):
            self.path.unlink()
        with suppress(OSError):
            self._file.close()


def claim(path: Path, *, scratch: Path | None = None) -> Claim:
    """Lock ``path``, created if it does not exist, and record in it that its writer writes into ``scratch``.

    Removes the scratch file that a killed writer recorded there. The lock ends with the process. If the system or the
    file system has no locks, another writer is not detected. Raises ``AlreadyLocked``, ``ForeignFile`` and ``OSError``.
    """
    note = json.dumps({"aflow": "lock", "scratch": None if scratch is None else scratch.name})
    while True:
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        try:
            file = _opened(path, "r+b")
        except FileNotFoundError:
            if path.is_symlink():  # to nothing
                raise
            continue  # another one has removed it meanwhile
        try:
            _lock(file.fileno())
            if _is_named(file.fileno(), path):
                _clear_scratch(path, file)
                _write_note(path, file, note.encode())
                return Claim(path, file)
        except BaseException:
            file.close()
            raise
        file.close()


def is_lock(path: Path) -> bool:
    """Return True for a lock file that ``claim`` wrote."""
    try:
        with _opened(path, "rb") as file:
            return _note(path, file) is not None
    except (ForeignFile, OSError):
        return False


def is_claimed(path: Path, *, remove: bool = True) -> bool:
    """Return True if a live writer holds ``path``.

    If ``remove``, remove the remains of a killed writer: its lock and its scratch file.
    """
    try:
        file = _opened(path, "rb")
    except (FileNotFoundError, ForeignFile):
        return False
    with file:
        try:
            _lock(file.fileno())
        except AlreadyLocked:
            return True
        # Under the lock: a writer that claims it now finds it locked, or without its name.
        if remove and _is_named(file.fileno(), path):
            with suppress(ForeignFile):
                _clear_scratch(path, file)
                path.unlink()
        return False


def publish(source: Path, target: Path) -> None:
    """Rename ``source`` to ``target``, and never replace a file. Raises ``FileExistsError`` and ``OSError``.

    Can be repeated after a crash at any point.
    """
    try:
        os.link(source, target)
    except FileExistsError:
        if not source.samefile(target):
            raise
    except OSError as exc:
        if exc.errno not in _NO_LINKS:
            raise
        if target.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target)) from exc
        os.rename(source, target)
        return
    os.unlink(source)


def _opened(path: Path, mode: Literal["rb", "r+b"]) -> FileIO:
    """Open a lock file. Raises ``ForeignFile`` for anything but a regular file (not opened) and ``OSError``."""
    # Opening or reading a FIFO would wait for its other end.
    if not stat.S_ISREG(path.stat().st_mode):
        raise ForeignFile(path)
    return path.open(mode, buffering=0)


def _write_note(path: Path, file: FileIO, note: bytes) -> None:
    """Replace the content of a lock file that aflow made. Raises ``OSError``, and removes the file then."""
    file.seek(0)
    file.truncate()
    try:
        if file.write(note) < len(note):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        os.fsync(file.fileno())
    except OSError:
        path.unlink()  # half a note proves nothing: the next writer would refuse it
        raise


def _clear_scratch(path: Path, file: IO[bytes]) -> None:
    """Remove the scratch file that the lock file names. Raises ``ForeignFile`` as ``_note`` does."""
    note = _note(path, file)
    scratch = None if note is None else note.get("scratch")
    if isinstance(scratch, str) and SCRATCH.fullmatch(scratch):
        (path.parent / scratch).unlink(missing_ok=True)


def _note(path: Path, file: IO[bytes]) -> dict[str, object] | None:
    """Return the content of a lock file; None for an empty file. Raises ``ForeignFile`` for any other content."""
    file.seek(0)
    text = file.read(_LONGEST_NOTE)
    if not text:
        return None
    try:
        note = json.loads(text)
    except (ValueError, RecursionError):
        raise ForeignFile(path) from None
    match note:
        case {"aflow": "lock", **rest}:
            return cast("dict[str, object]", rest)
        case _:
            raise ForeignFile(path)


def make_folder(folder: Path) -> None:
    """Create ``folder`` and its parents, durably."""
    if folder.is_dir():
        return
    if folder.parent != folder:
        make_folder(folder.parent)
    folder.mkdir(exist_ok=True)
    sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in ``folder`` durable: a new one could be lost in a power failure."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> None:
    """Lock the file. Raises ``AlreadyLocked``. No-op if the system or the file system has no locks."""
    try:
        lock_exclusively(descriptor)
    except OSError as exc:
        if exc.errno in _LOCK_ERRORS:
            raise AlreadyLocked from None


def _is_named(descriptor: int, path: Path) -> bool:
    """Return False if the open file has lost this name: its former writer has finished, or has removed it."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
