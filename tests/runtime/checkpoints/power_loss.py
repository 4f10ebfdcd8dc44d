"""A file system in memory that loses, at a loss of power, any part of the content that was not synced."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from aflow.runtime.checkpoints.directory.files import HeldLock, WritableFile, WrongSize
from tests.runtime.checkpoints.faulty_files import Killed


@dataclass(eq=False)
class _Content:
    now: bytes = b""
    #: Content that is on disk for certain.
    safe: bytes = b""


@dataclass
class PowerFiles:
    """Files, of which those on disk are ``safe``. The power goes at operation number ``fails_at`` (from 1).

    Each name and each content that was not brought to disk may survive or not, for itself: worse than any journal.
    """

    fails_at: int | None = None
    now: dict[Path, _Content] = field(default_factory=dict[Path, _Content])
    safe: dict[Path, _Content] = field(default_factory=dict[Path, _Content])
    calls: int = 0

    def after_power_cut(self, random: Random) -> PowerFiles:
        """Return the content of the disk afterwards."""
        found: dict[Path, _Content] = {}
        for path in sorted({*self.now, *self.safe}):
            content = random.choice([self.now.get(path), self.safe.get(path)])
            if content is not None:
                kept = content.safe
                if content.now != content.safe:
                    # An appended part may be cut off, or be zeros that the file system has reserved.
                    appended = content.now.startswith(content.safe)
                    safe = len(content.safe) if appended else 0
                    end = random.randint(safe, len(content.now))
                    kept = content.now[:end]
                    if appended and random.random() < 0.3:
                        kept += bytes(random.randint(0, len(content.now) - end))
                found[path] = _Content(kept, kept)
        return PowerFiles(now=dict(found), safe=dict(found))

    def _count(self) -> None:
        self.calls += 1
        if self.fails_at is not None and self.calls >= self.fails_at:
            raise Killed

    def _content(self, path: Path) -> _Content:
        self._count()
        if path not in self.now:
            raise FileNotFoundError(2, "No such file or directory", str(path))
        return self.now[path]

    async def load(self, path: Path) -> bytes:
        return self._content(path).now

    def read(self, path: Path, size: int) -> bytes:
        content = self._content(path).now
        if len(content) != size:
            raise WrongSize(len(content))
        return content

    def read_part(self, path: Path, offset: int, size: int) -> bytes:
        return self._content(path).now[offset : offset + size]

    def names(self, folder: Path) -> list[str]:
        self._count()
        return [path.name for path in self.now if path.parent == folder]

    def size(self, path: Path) -> int:
        return len(self._content(path).now)

    def exists(self, path: Path) -> bool:
        self._count()
        return path in self.now

    def make_folder(self, path: Path) -> None:
        self._count()

    def create(self, path: Path) -> WritableFile:
        self._count()
        content = self.now[path] = _Content()
        return _PowerFile(self, content)

    def rename(self, source: Path, target: Path) -> None:
        content = self._content(source)
        del self.now[source]
        self.now[target] = content

    def truncate(self, path: Path, size: int) -> None:
        content = self._content(path)
        content.now = content.now[:size]
        content.safe = content.now

    def remove(self, path: Path) -> None:
        self._content(path)
        del self.now[path]

    def remove_folder(self, path: Path) -> None:
        raise NotImplementedError

    def sync_folder(self, path: Path) -> None:
        self._count()
        for safe in [one for one in self.safe if one.parent == path]:
            del self.safe[safe]
        self.safe.update({one: content for one, content in self.now.items() if one.parent == path})

    def lock(self, path: Path, owner: bytes) -> HeldLock:
        self._count()
        return _PowerLock()

    def count(self) -> None:
        self._count()


@dataclass
class _PowerFile:
    files: PowerFiles
    content: _Content

    def write(self, data: bytes) -> None:
        self.files.count()
        self.content.now += data

    def sync(self) -> None:
        self.files.count()
        self.content.safe = self.content.now

    def close(self) -> None:
        self.files.count()


class _PowerLock:
    def release(self) -> None:
        return None
