"""The file system as checkpoints use it: a seam, so that tests can make any single operation fail."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, Protocol
from zlib import crc32

import aiofiles

from aflow.errors import CheckpointError
from aflow.model.file_locks import lock_exclusively
from aflow.runtime.checkpoints.directory_names import TEMPORARY
from aflow.runtime.checkpoints.directory_threads import in_a_task
from aflow.state.manifest_checksums import in_hexadecimal


class Occupied(Exception):
    """Somebody else holds the lock; the message is what they wrote into it."""


class WritableFile(Protocol):
    """A file that is being written."""

    def write(self, data: bytes) -> None: ...

    def sync(self) -> None:
        """Come back once everything written so far would survive a loss of power."""
        ...

    def close(self) -> None: ...


class HeldLock(Protocol):
    def release(self) -> None: ...


class Files(Protocol):
    """Raises ``OSError``. All but ``load`` block, and are called in worker threads."""

    async def load(self, path: Path) -> bytes:
        """The content of a small file."""
        ...

    def read(self, path: Path) -> bytes: ...

    def names(self, folder: Path) -> list[str]:
        """What is in ``folder``, in no particular order."""
        ...

    def size(self, path: Path) -> int:
        """In bytes."""
        ...

    def exists(self, path: Path) -> bool: ...

    def make_folder(self, path: Path) -> None:
        """With those above it, for good; harmless if it is there."""
        ...

    def create(self, path: Path) -> WritableFile:
        """Open an empty file; what was there is lost."""
        ...

    def rename(self, source: Path, target: Path) -> None:
        """In one step, replacing a file at ``target``."""
        ...

    def remove(self, path: Path) -> None: ...

    def remove_folder(self, path: Path) -> None:
        """With all that is in it."""
        ...

    def sync_folder(self, path: Path) -> None:
        """Come back once the names in ``path`` would survive a loss of power."""
        ...

    def lock(self, path: Path, owner: bytes) -> HeldLock:
        """Hold a lock until it is released or the process ends, however it ends. Raises ``Occupied``."""
        ...


class DiskFiles:
    """The file system itself."""

    async def load(self, path: Path) -> bytes:
        async def read() -> bytes:
            async with aiofiles.open(path, "rb") as file:
                return await file.read()

        # Cancelled while it is being opened, a file would belong to nobody.
        return await in_a_task(read, shielded=True)

    def read(self, path: Path) -> bytes:
        return path.read_bytes()

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
        return _DiskFile(path.open("wb"))

    def rename(self, source: Path, target: Path) -> None:
        source.rename(target)

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
        # The file stays when the lock is released: whoever has it open already would lock a file that has no name.
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
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


@dataclass(frozen=True, slots=True)
class Written:
    """What a manifest says of a file."""

    size: int
    checksum: str


def store(files: Files, path: Path, pieces: Iterable[bytes]) -> Written:
    """Write a file that is there as a whole and for good, or, if that fails, not at all.

    Raises ``OSError``, and what ``pieces`` raises.
    """
    temporary = path.with_name(path.name + TEMPORARY)
    named = temporary
    try:
        written = _write(files, temporary, pieces)
        files.rename(temporary, path)
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
        # Closing writes what is still in a buffer: it fails for the reason that is known already.
        with suppress(OSError):
            file.close()
        raise
    file.close()
    return Written(size, in_hexadecimal(crc))


def stored(files: Files, path: Path, pieces: Iterable[bytes]) -> Written:
    """``store``, with ``CheckpointError`` naming the file in place of ``OSError``."""
    try:
        return store(files, path, pieces)
    except OSError as exc:
        raise CheckpointError(f"cannot write {path}: {reason(exc)}") from exc


def reason(error: OSError) -> str:
    """What the system says is wrong, with what to do about it where that is plain."""
    said = error.strerror or str(error) or type(error).__name__
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return f"{said}; make room, or have fewer checkpoints kept"
    if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
        return f"{said}; the folder must be writable for this process"
    if error.errno in {errno.ENOTDIR, errno.EEXIST}:
        return f"{said}; give the path of a folder, or of one to be made"
    return said
