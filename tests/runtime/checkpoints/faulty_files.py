"""File systems that fail, and processes that die, at any single operation."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

from aflow.runtime.checkpoints.directory.files import DISK, HeldLock, WritableFile

P = ParamSpec("P")
T = TypeVar("T")


class Killed(BaseException):
    """The process has ended: its later operations have no effect."""


@dataclass
class FaultyFiles:
    """The real file system, with operation number ``fails_at`` (from 1) going wrong, and all after it if ``for_good``.

    ``calls`` lists what was done. A process that is ``killed`` does nothing any more, and gives its locks back.
    Nothing is brought to disk: no test here cuts the power, and waiting for the disk takes nearly all the time.
    """

    fails_at: int | None = None
    error: int = errno.EIO
    for_good: bool = False
    killed: bool = False
    calls: list[str] = field(default_factory=list[str])
    locks: list[HeldLock] = field(default_factory=list[HeldLock])
    opened: list[WritableFile] = field(default_factory=list[WritableFile])
    #: Called at that operation, which then succeeds.
    instead: Callable[[], None] | None = None

    def do(self, call: str, done: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        self.count(call)
        return done(*args, **kwargs)

    def count(self, call: str) -> None:
        self.calls.append(call)
        number = len(self.calls)
        if self.fails_at is None or number < self.fails_at:
            return
        if self.instead is not None:
            if number == self.fails_at:
                self.instead()
            return
        if self.killed:
            raise Killed(f"at {call}")
        if self.for_good or number == self.fails_at:
            raise OSError(self.error, os.strerror(self.error))

    def fell(self) -> bool:
        """True if an operation has failed."""
        return self.fails_at is not None and len(self.calls) >= self.fails_at

    def die(self) -> None:
        """Do what the system does for a process that has ended."""
        while self.locks:
            self.locks.pop().release()
        while self.opened:
            self.opened.pop().close()

    async def load(self, path: Path) -> bytes:
        self.count(f"load {path.name}")
        return await DISK.load(path)

    def read(self, path: Path, size: int) -> bytes:
        return self.do(f"read {path.name}", DISK.read, path, size)

    def read_part(self, path: Path, offset: int, size: int) -> bytes:
        return self.do(f"read {path.name}", DISK.read_part, path, offset, size)

    def names(self, folder: Path) -> list[str]:
        return self.do(f"names {folder.name}", DISK.names, folder)

    def size(self, path: Path) -> int:
        return self.do(f"size {path.name}", DISK.size, path)

    def exists(self, path: Path) -> bool:
        return self.do(f"exists {path.name}", DISK.exists, path)

    def make_folder(self, path: Path) -> None:
        self.do(f"make_folder {path.name}", DISK.make_folder, path)

    def create(self, path: Path) -> WritableFile:
        file = self.do(f"create {path.name}", DISK.create, path)
        self.opened.append(file)
        return _FaultyFile(self, path, file)

    def rename(self, source: Path, target: Path) -> None:
        self.do(f"rename {target.name}", DISK.rename, source, target)

    def truncate(self, path: Path, size: int) -> None:
        self.do(f"truncate {path.name}", DISK.truncate, path, size)

    def remove(self, path: Path) -> None:
        self.do(f"remove {path.name}", DISK.remove, path)

    def remove_folder(self, path: Path) -> None:
        self.do(f"remove_folder {path.name}", DISK.remove_folder, path)

    def sync_folder(self, path: Path) -> None:
        self.count(f"sync_folder {path.name}")

    def lock(self, path: Path, owner: bytes) -> HeldLock:
        lock = self.do(f"lock {path.name}", DISK.lock, path, owner)
        self.locks.append(lock)
        return _FaultyLock(self, lock)


@dataclass
class _FaultyFile:
    files: FaultyFiles
    path: Path
    file: WritableFile

    def write(self, data: bytes) -> None:
        try:
            self.files.count(f"write {self.path.name}")
        except BaseException:
            self.file.write(data[: len(data) // 2])
            raise
        self.file.write(data)

    def sync(self) -> None:
        self.files.count(f"sync {self.path.name}")
        cast("Any", self.file).file.flush()  # for readers of the file

    def close(self) -> None:
        # Closed in any case: the system closes the files of a process that has ended.
        self.file.close()
        self.files.count(f"close {self.path.name}")


@dataclass
class _FaultyLock:
    files: FaultyFiles
    lock: HeldLock

    def release(self) -> None:
        if self.lock in self.files.locks:
            self.files.locks.remove(self.lock)
            self.lock.release()
