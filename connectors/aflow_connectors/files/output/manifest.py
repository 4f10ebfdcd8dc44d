"""The manifest: a record of the files that a sink has written, so that it never removes or renames others.

Theory. A name proves nothing: a rotated log file may have the name of a piece. So each lineage of runs has an *owner*,
a random id, which its checkpoints carry from run to run. For each owner there is one manifest in the folder, an
append-only file of JSON lines. A file is recorded there, with its length and checksum, *before* it gets the name under
which it waits for its commit. A file provably belongs to an owner if a manifest of that owner names it and its content
is the recorded one.

A crash between the record and the rename leaves a record of a file that does not exist, which is harmless. A crash
during an append leaves a last line that is invalid JSON and is skipped: its file has no name yet.

Three kinds of lines follow the first one::

    {"aflow": "manifest", "owner": "5f0c…", "sink": "totals"}
    {"file": "part-00000-000012.jsonl", "size": 811, "crc": 29…, "mtime": 17…, "inode": 88…}
    {"committed": 12, "writer": 0}          a commit of this checkpoint has begun
    {"withdrawn": [13, 15]}                 the job was restored, and withdraws the output of these checkpoints

All calls block: they are for worker threads.
"""

from __future__ import annotations

import errno
import io
import json
import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast
from zlib import crc32

#: Bytes read at a time.
_BLOCK: Final = 1 << 20

#: Flags for appending to a manifest: without following a link, and without waiting for the reader of a FIFO.
_APPEND: Final = (
    os.O_WRONLY
    | os.O_APPEND
    | os.O_CREAT
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)
)

#: Mode for scratch files: never open an existing one.
_NEW: Final = "xb"


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Content of a file as it was written. Equal ``mtime`` and ``inode`` make reading it unnecessary."""

    size: int
    crc: int
    mtime: int
    inode: int

    @classmethod
    def of(cls, path: Path) -> Fingerprint:
        """Return the fingerprint of ``path``, which is read. Raises ``OSError``."""
        found = path.stat()
        return cls(found.st_size, _checksum(path), found.st_mtime_ns, found.st_ino)

    def matches(self, path: Path) -> bool:
        """Return True if ``path`` is a regular file with exactly this content. Raises ``OSError``."""
        try:
            found = path.lstat()
        except FileNotFoundError:
            return False
        if not stat.S_ISREG(found.st_mode) or found.st_size != self.size:
            return False
        if (found.st_mtime_ns, found.st_ino) == (self.mtime, self.inode):
            return True
        return _checksum(path) == self.crc


class ScratchFile(io.BufferedWriter):
    """A new file with a running checksum. Raises ``FileExistsError``."""

    def __init__(self, path: Path) -> None:
        super().__init__(io.FileIO(path, _NEW))
        self.path = path
        self._crc = 0

    def write(self, data: Any, /) -> int:
        self._crc = crc32(data, self._crc)
        return super().write(data)

    def end(self) -> Fingerprint:
        """Make the file durable, close it and return its fingerprint. Raises ``OSError``."""
        self.flush()
        os.fsync(self.fileno())
        found = os.fstat(self.fileno())
        self.close()
        return Fingerprint(found.st_size, self._crc, found.st_mtime_ns, found.st_ino)


@dataclass(slots=True)
class Records:
    """Content of a manifest."""

    files: dict[str, Fingerprint] = field(default_factory=dict[str, Fingerprint])
    committed: dict[int, int] = field(default_factory=dict[int, int])
    """By writer, the newest checkpoint whose commit has begun."""
    withdrawn: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    """Checkpoints, both ends inclusive, whose output was withdrawn."""


class FolderManifest:
    """The manifest of ``owner`` at ``path``, created by its first record."""

    def __init__(self, path: Path, owner: str, *, sink: str) -> None:
        self.path = path
        self.owner = owner
        self._sink = sink
        #: True once this object has written the first line, which names the owner.
        self._headed = False

    def read(self) -> Records | None:
        """Return the records; None if there is no manifest of this owner. Raises ``OSError``."""
        try:
            if not stat.S_ISREG(self.path.lstat().st_mode):
                return None
            lines = self.path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return None
        records, proven = Records(), False
        for line in lines:
            entry = _decoded(line)
            proven = proven or (
                entry.get("aflow") == "manifest" and entry.get("owner") == self.owner
            )
            _add(records, entry)
        return records if proven else None

    def add(self, name: str, fingerprint: Fingerprint) -> None:
        """Record, durably, that the owner wrote the file ``name``."""
        self._append(_file_entry(name, fingerprint))

    def committing(self, writer: int, checkpoint: int) -> None:
        """Record, durably, that a commit of ``writer`` begins."""
        self._append({"committed": checkpoint, "writer": writer})

    def withdrawing(self, first: int, last: int) -> None:
        """Record, durably, that the output of checkpoints ``first`` to ``last`` is being removed."""
        self._append({"withdrawn": [first, last]})

    def replace(self, records: Records) -> None:
        """Rewrite the manifest with ``records`` alone, atomically."""
        entries = [self._head()]
        entries += [_file_entry(name, one) for name, one in records.files.items()]
        entries += [{"committed": n, "writer": one} for one, n in records.committed.items()]
        entries += [{"withdrawn": list(one)} for one in records.withdrawn]
        temporary = self.path.with_name(f"{self.path.name}.new")
        temporary.unlink(missing_ok=True)
        with temporary.open("xb") as file:
            file.write(_lines(entries))
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, self.path)

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)

    def _append(self, entry: Mapping[str, object]) -> None:
        # Each writer repeats the first line: a full disk may have truncated the existing one.
        entries = [entry] if self._headed else [self._head(), entry]
        # One write per append, since writers of one sink share the file. It begins with a line end, since the last
        # append may have been truncated.
        data = b"\n" + _lines(entries)
        descriptor = os.open(self.path, _APPEND, 0o666)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise OSError(errno.EINVAL, "is not the file that the sink wrote", str(self.path))
            if os.write(descriptor, data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        self._headed = True

    def _head(self) -> dict[str, object]:
        return {"aflow": "manifest", "owner": self.owner, "sink": self._sink}


def _lines(entries: Iterable[Mapping[str, object]]) -> bytes:
    return b"".join(json.dumps(entry).encode() + b"\n" for entry in entries)


def _file_entry(name: str, one: Fingerprint) -> dict[str, object]:
    return {"file": name, "size": one.size, "crc": one.crc, "mtime": one.mtime, "inode": one.inode}


def _decoded(line: bytes) -> dict[str, object]:
    """Return the content of a line; an empty dict for a truncated one."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, object]", entry) if isinstance(entry, dict) else {}


def _add(records: Records, entry: Mapping[str, object]) -> None:
    match entry:
        case {
            "file": str(name),
            "size": int(size),
            "crc": int(crc),
            "mtime": int(mtime),
            "inode": int(inode),
        }:
            records.files[name] = Fingerprint(size, crc, mtime, inode)
        case {"committed": int(checkpoint), "writer": int(writer)}:
            records.committed[writer] = max(checkpoint, records.committed.get(writer, 0))
        case {"withdrawn": [int(first), int(last)]}:
            records.withdrawn.append((first, last))
        case _:
            pass


def _checksum(path: Path) -> int:
    checksum = 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            checksum = crc32(block, checksum)
    return checksum
