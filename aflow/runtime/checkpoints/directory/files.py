"""The file system as checkpoints use it: an interface, so that tests can make any single operation fail."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import BinaryIO, Final, Protocol
from zlib import crc32

import aiofiles

from aflow.errors import CheckpointError
from aflow.model.file_locks import lock_exclusively
from aflow.runtime.checkpoints.directory.names import temporary
from aflow.runtime.checkpoints.directory.threads import in_a_task
from aflow.state.manifest import in_hexadecimal


class Occupied(Exception):
    """The lock is held by another process; the message is the content of the file."""


class WritableFile(Protocol):
    """A file that is being written."""

    def write(self, data: bytes) -> None: ...

    def sync(self) -> None:
        """Return once everything written so far would survive a loss of power."""
        ...

    def close(self) -> None: ...


class HeldLock(Protocol):
    def release(self) -> None: ...


class WrongSize(OSError):
    """A file has ``size`` bytes instead of the expected number."""

    def __init__(self, size: int) -> None:
        super().__init__(errno.EFBIG, f"it has {size:,} bytes")
        self.size: Final = size


SMALL: Final = 64 << 20
"""The size of the largest manifest, in bytes: far above that of the largest jobs, and far below the memory."""


class Files(Protocol):
    """Raises ``OSError``. All but ``load`` block, and are called in worker threads."""

    async def load(self, path: Path) -> bytes:
        """Return the content of a manifest, or of another small file: of at most ``SMALL`` bytes."""
        ...

    def read(self, path: Path, size: int) -> bytes:
        """Return the content of a file of ``size`` bytes. Raises ``WrongSize`` for any other size, without reading
        it."""
        ...

    def read_part(self, path: Path, offset: int, size: int) -> bytes:
        """Return up to ``size`` bytes from byte ``offset`` on; fewer at the end of the file."""
        ...

    def names(self, folder: Path) -> list[str]:
        """Return the names in ``folder``, in any order."""
        ...

    def size(self, path: Path) -> int:
        """Return the size in bytes."""
        ...

    def exists(self, path: Path) -> bool: ...

    def make_folder(self, path: Path) -> None:
        """Create the folder and its parents, durably; harmless if it exists."""
        ...

    def create(self, path: Path) -> WritableFile:
        """Open an empty file; former content is lost."""
        ...

    def rename(self, source: Path, target: Path) -> None:
        """Rename in one step, replacing a file at ``target``."""
        ...

    def truncate(self, path: Path, size: int) -> None:
        """Cut a file to its first ``size`` bytes, durably."""
        ...

    def remove(self, path: Path) -> None: ...

    def remove_folder(self, path: Path) -> None:
        """Remove the folder and everything in it."""
        ...

    def sync_folder(self, path: Path) -> None:
        """Return once the names in ``path`` would survive a loss of power."""
        ...

    def lock(self, path: Path, owner: bytes) -> HeldLock:
        """Hold a lock until it is released or the process ends in any way. Raises ``Occupied``."""
        ...


class DiskFiles:
    """The file system itself."""

    async def load(self, path: Path) -> bytes:
        async def read() -> bytes:
            async with aiofiles.open(path, "rb", opener=regular_file) as file:
                check_small(file.fileno())
                return await file.read(SMALL)

        # If it were cancelled while it is being opened, the file would have no owner.
        return await in_a_task(read, shielded=True)

    def read(self, path: Path, size: int) -> bytes:
        with open(path, "rb", opener=regular_file) as file:
            found = os.fstat(file.fileno()).st_size
            if found != size:
                raise WrongSize(found)
            return file.read(size)

    def read_part(self, path: Path, offset: int, size: int) -> bytes:
        with open(path, "rb", opener=regular_file) as file:
            file.seek(offset)
            return file.read(size)

    def names(self, folder: Path) -> list[str]:
        return os.listdir(folder)

    def size(self, path: Path) -> int:
        return path.stat().st_size

    def exists(self, path: Path) -> bool:
        return os.path.lexists(path)

    def make_folder(self, path: Path) -> None:
        missing = [one for one in (path, *path.parents) if not one.exists()]
        path.mkdir(parents=True, exist_ok=True)
        for made in missing:
            self.sync_folder(made.parent)

    def create(self, path: Path) -> WritableFile:
        return _DiskFile(open(path, "wb", opener=regular_file))

    def rename(self, source: Path, target: Path) -> None:
        source.rename(target)

    def truncate(self, path: Path, size: int) -> None:
        with open(path, "r+b", opener=regular_file) as file:
            file.truncate(size)
            os.fsync(file.fileno())

    def remove(self, path: Path) -> None:
        path.unlink()

    def remove_folder(self, path: Path) -> None:
        shutil.rmtree(path)

    def sync_folder(self, path: Path) -> None:
        folder = os.open(path, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def lock(self, path: Path, owner: bytes) -> HeldLock:
        # The file is kept when the lock is released: a process that has it open would lock a file without a name.
        file = regular_file(path, os.O_RDWR | os.O_CREAT)
        try:
            lock_exclusively(file)
            os.ftruncate(file, 0)
            os.pwrite(file, owner, 0)
        except BlockingIOError as exc:
            holder = os.pread(file, 1000, 0)
            os.close(file)
            raise Occupied(holder.decode(errors="replace").strip()) from exc
        except BaseException:
            os.close(file)
            raise
        return _DiskLock(file)


@dataclass(frozen=True, slots=True)
class _DiskFile:
    file: BinaryIO

    def write(self, data: bytes) -> None:
        self.file.write(data)

    def sync(self) -> None:
        self.file.flush()
        os.fsync(self.file.fileno())

    def close(self) -> None:
        self.file.close()


@dataclass(frozen=True, slots=True)
class _DiskLock:
    file: int

    def release(self) -> None:
        os.close(self.file)


DISK: Final = DiskFiles()


def regular_file(path: str | PathLike[str], flags: int) -> int:
    """Open a file like ``os.open``, unless it is a symbolic link or not a regular file.

    A link may lead out of the folder, to a file that must not be read, or truncated. A named pipe would wait for the
    other end, and a device has no end. Raises ``OSError`` with a message that names the kind.
    """
    try:
        file = os.open(path, flags | _ONLY_REGULAR, 0o666)
    except OSError as exc:
        if os.path.islink(path):
            raise OSError(
                errno.ELOOP, "it is a symbolic link; put the file itself into the folder"
            ) from exc
        if stat.S_ISFIFO(_mode(path)):
            raise _no_file(_mode(path)) from exc
        raise
    mode = os.fstat(file).st_mode
    if stat.S_ISREG(mode):
        return file
    os.close(file)
    raise _no_file(mode)


#: Systems without symbolic links or named pipes have no flag for them either.
_ONLY_REGULAR: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)


def _mode(path: str | PathLike[str]) -> int:
    try:
        return os.lstat(path).st_mode
    except OSError:
        return 0


def _no_file(mode: int) -> OSError:
    kinds = {stat.S_IFIFO: "a named pipe", stat.S_IFDIR: "a folder", stat.S_IFSOCK: "a socket"}
    kind = kinds.get(stat.S_IFMT(mode), "a device")
    return OSError(errno.EINVAL, f"it is {kind} and no regular file; nothing was read from it")


def check_small(file: int) -> None:
    """Raise ``OSError`` for an open file that is too large to be a manifest."""
    size = os.fstat(file).st_size
    if size > SMALL:
        raise OSError(
            errno.EFBIG, f"it has {size:,} bytes, and no manifest has more than {SMALL:,}"
        )


def load_now(path: Path) -> bytes:
    """Return the content of a manifest or another small file; blocks."""
    with open(path, "rb", opener=regular_file) as file:
        check_small(file.fileno())
        return file.read(SMALL)


@dataclass(frozen=True, slots=True)
class Written:
    """A stored file, as a manifest describes it."""

    size: int
    checksum: str


def store(files: Files, path: Path, pieces: Iterable[bytes]) -> Written:
    """Write a file completely and durably, or, if that fails, not at all.

    Raises ``OSError``, and the errors of ``pieces``.
    """
    named = unfinished = temporary(path)
    try:
        written = _write(files, unfinished, pieces)
        files.rename(unfinished, path)
        named = path
        files.sync_folder(path.parent)
    except BaseException:
        with suppress(OSError):
            files.remove(named)
        raise
    return written


def _write(files: Files, path: Path, pieces: Iterable[bytes]) -> Written:
    size = crc = 0
    file = files.create(path)
    try:
        for piece in pieces:
            file.write(piece)
            size += len(piece)
            crc = crc32(piece, crc)
        file.sync()
    except BaseException:
        # Closing writes the rest of a buffer: it fails for the reason that is known already.
        with suppress(OSError):
            file.close()
        raise
    file.close()
    return Written(size, in_hexadecimal(crc))


def stored(files: Files, path: Path, pieces: Iterable[bytes]) -> Written:
    """Call ``store``, with ``CheckpointError`` naming the file instead of ``OSError``."""
    try:
        return store(files, path, pieces)
    except OSError as exc:
        raise CheckpointError(f"cannot write {path}: {reason(exc)}") from exc


def reason(error: OSError) -> str:
    """Return the message of the system, with a remedy if there is an obvious one."""
    said = error.strerror or str(error) or type(error).__name__
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return f"{said}; free some space, or keep fewer checkpoints"
    if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
        return f"{said}; the folder must be writable for this process"
    if error.errno in {errno.ENOTDIR, errno.EEXIST}:
        return f"{said}; give the path of a folder, or of one that can be created"
    return said
