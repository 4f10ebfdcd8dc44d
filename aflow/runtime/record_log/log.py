"""A log in a folder: it is opened by one process at a time, appended to, read, and released from its beginning.

All methods block. Those of ``RecordLog`` are called by one thread at a time; another one may use a ``LogReader``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from aflow.errors import SourceError, SourceInUse
from aflow.model.time import Timestamp
from aflow.runtime import log_events
from aflow.runtime.checkpoints.directory.files import (
    Files,
    HeldLock,
    Occupied,
    WritableFile,
    reason,
    store,
)
from aflow.runtime.checkpoints.directory.names import TEMPORARY, temporary
from aflow.runtime.record_log.segments import (
    SEGMENT_SUFFIX,
    Damaged,
    LogBlock,
    LogRecord,
    blocks_in,
    encode_block,
    file_header,
    first_position,
    is_torn,
    read_block,
    read_file_header,
    read_header,
    segment_name,
)

_LOCK: Final = "lock"
_ENDED: Final = "ended"

#: The number of characters of the identity of a log, in ASCII.
IDENTITY: Final = 16

#: Bytes that a reader reads at a time; more for a larger block.
_CHUNK: Final = 1 << 20

#: Bytes from which on the last segment is worth to be replaced.
_LARGE: Final = 1 << 20

#: Bytes of a segment in which its header must be.
_HEADER_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Segment:
    """A segment that is not empty, or the last one."""

    first: int
    path: Path
    size: int
    """Bytes with valid blocks, and of a segment before the last one, also bytes with withdrawn blocks."""


@dataclass(frozen=True, slots=True)
class SeenId:
    """The id of a record that was written at ``written_at``."""

    id: str
    position: int
    written_at: Timestamp


class NotLogged(Exception):
    """Records could not be written. ``is_certain`` if the log does not have them; otherwise it may have them."""

    def __init__(self, message: str, *, is_certain: bool) -> None:
        super().__init__(message)
        self.is_certain = is_certain


class RecordLog:
    """The log in ``folder``. ``open`` comes first, ``close`` releases its lock.

    ``description`` is stored in each segment. ``identity``, text of ``IDENTITY`` characters, is that of a new log; an
    existing one keeps its own. ``owner`` is the content of the lock file, for the messages of others.
    """

    def __init__(
        self,
        folder: Path,
        files: Files,
        *,
        description: bytes,
        identity: str,
        owner: bytes,
        segment_bytes: int,
    ) -> None:
        self.folder: Final = folder
        self.files: Final = files
        self._description_now = description
        #: Distinguishes this log from others that were in the same folder: positions of those mean other records.
        self.identity = identity
        self._owner = owner
        self._segment_bytes = segment_bytes
        #: The last segment is replaced by an empty one when all of its records are released and it is this large.
        self._large = min(segment_bytes, _LARGE)
        #: By first position of a segment: the time of its last record with an id.
        self._last_id: dict[int, Timestamp] = {}
        self._lock: HeldLock | None = None
        #: Ascending. Replaced as a whole, since readers use it in other threads.
        self.segments: tuple[Segment, ...] = ()
        #: The position after the last record that is written and synced.
        self.end = 0
        #: The file of the last segment, if this process has begun it and no write failed.
        self._file: WritableFile | None = None
        #: True once the input has ended: no process adds records.
        self.ended = False
        #: The descriptions of all segments.
        self.descriptions: frozenset[bytes] = frozenset()

    @property
    def header_size(self) -> int:
        """Bytes of a segment before its first block."""
        return len(self._header())

    def _header(self) -> bytes:
        return file_header(self.identity.encode() + self._description_now)

    @property
    def start(self) -> int:
        """The position of the first record that is still in the log; ``end`` if there is none."""
        return self.segments[0].first if self.segments else self.end

    @property
    def size(self) -> int:
        """The size of all segments, in bytes."""
        return sum(segment.size for segment in self.segments)

    # ------------------------------------------------------------------------------------------------ opening

    def open(self) -> None:
        """Lock the folder and find the end of the log. Raises ``SourceError``."""
        try:
            self.files.make_folder(self.folder)
            self._lock = self.files.lock(self.folder / _LOCK, self._owner)
        except Occupied as exc:
            raise SourceInUse(
                f"the log in {self.folder} is in use by {str(exc) or 'another process'}; give each process a folder "
                f"of its own, such as DurablePushSource(f'log/{{worker}}'), or stop the other one first"
            ) from exc
        except OSError as exc:
            raise SourceError(f"the log in {self.folder} cannot be opened: {reason(exc)}") from exc
        try:
            self._find_end()
        except BaseException as exc:
            self._release_lock()
            if isinstance(exc, OSError):
                raise SourceError(
                    f"the log in {self.folder} cannot be read: {reason(exc)}"
                ) from exc
            raise

    def _find_end(self) -> None:
        names = self.files.names(self.folder)
        for name in names:
            if name.endswith(TEMPORARY):
                self.files.remove(self.folder / name)
        self.ended = _ENDED in names
        firsts = {
            first
            for name in names
            if name.endswith(SEGMENT_SUFFIX) and (first := first_position(name)) is not None
        }
        paths = [(first, self.folder / segment_name(first)) for first in sorted(firsts)]
        segments = [Segment(first, path, self.files.size(path)) for first, path in paths]
        headers: set[bytes] = set()
        for segment in segments[:-1]:
            headers.add(self._header_of(segment))
        if segments:
            segments[-1], self.end = self._valid_part(segments[-1], headers)
            if not segments[-1].size:
                segments.pop()
        self.segments = tuple(segments)
        self._identify(headers)
        self.descriptions = frozenset(header[IDENTITY:] for header in headers)

    def _identify(self, headers: Iterable[bytes]) -> None:
        """Take over the identity of the existing log. Raises ``SourceError`` if there are several."""
        found = sorted({header[:IDENTITY].decode(errors="replace") for header in headers})
        if len(found) > 1:
            raise SourceError(
                f"the folder {self.folder} has segments of several logs ({', '.join(found)}); keep those of one"
            )
        self.identity = found[0] if found else self.identity

    def _header_of(self, segment: Segment) -> bytes:
        data = self.files.read_part(segment.path, 0, min(segment.size, _HEADER_BYTES))
        try:
            return read_file_header(data, segment.path)[0]
        except Damaged as exc:
            raise _damage(segment.path, 0, exc) from exc

    def _valid_part(self, segment: Segment, headers: set[bytes]) -> tuple[Segment, int]:
        """Return the last segment without a torn end, and the position after its last record."""
        data = self.files.read(segment.path, segment.size)
        offset, end = 0, segment.first
        try:
            header, offset = read_file_header(data, segment.path)
            headers.add(header)
            for block, after in blocks_in(data, offset, end, None):
                offset, end = after, block.end
        except Damaged as exc:
            if not is_torn(data, offset):
                raise _damage(segment.path, offset, exc) from exc
            log_events.LOG_TAIL_CUT.log(
                "the log in %s: %d bytes at the end of %s, from byte %d on, were cut: %s; nothing of them was "
                "acknowledged, unless the file was damaged after it was written",
                self.folder,
                len(data) - offset,
                segment.path.name,
                offset,
                exc,
                folder=str(self.folder),
                file=segment.path.name,
                bytes=len(data) - offset,
                offset=offset,
                error=str(exc),
            )
        return replace(segment, size=offset), end

    def ids(self, since: Timestamp) -> list[SeenId]:
        """Return the ids of records written at ``since`` or later, oldest first. Reads the whole log.

        Raises ``SourceError``.
        """
        found: list[SeenId] = []
        for segment, until in self._bounded():
            offset = 0
            try:
                data = self.files.read_part(segment.path, 0, segment.size)
                _, offset = read_file_header(data, segment.path)
                for block, after in blocks_in(data, offset, segment.first, until):
                    offset = after
                    if block.written_at >= since and (ids := _ids_of(block)):
                        found += ids
                        self._last_id[segment.first] = block.written_at
            except Damaged as exc:
                raise _damage(segment.path, offset, exc) from exc
            except OSError as exc:
                raise SourceError(
                    f"the log in {self.folder} cannot be read: {reason(exc)}"
                ) from exc
        return found

    def _bounded(self) -> list[tuple[Segment, int]]:
        """Return each segment, with the position after its last valid record."""
        ends = (*(segment.first for segment in self.segments[1:]), self.end)
        return list(zip(self.segments, ends, strict=False))

    # ------------------------------------------------------------------------------------------------ writing

    def append(self, records: Sequence[LogRecord], now: Timestamp) -> None:
        """Write ``records`` as one block, and sync it. Raises ``NotLogged``; a later call may succeed."""
        block = encode_block(self.end, now, records)
        try:
            if self._file is None or self.segments[-1].size >= self._segment_bytes:
                self._begin_segment(block)
            else:
                self._file.write(block)
                self._file.sync()
                self._grow(block)
        except OSError as exc:
            raise NotLogged(reason(exc), is_certain=self._withdraw()) from exc
        if any(name is not None for _, _, name in records):
            self._last_id[self.segments[-1].first] = now
        self.end += len(records)

    def _begin_segment(self, block: bytes) -> None:
        """Begin a segment at the end of the log. Raises ``OSError``; then ``_withdraw`` must follow.

        An existing one of the same name has no records, but the identity and the end of the log. It is replaced in one
        step: there may be no room for another one, and the process may be killed. A later process removes the remains.
        """
        self._close_file()
        path = self.folder / segment_name(self.end)
        self._file = self.files.create(temporary(path))
        header = self._header()
        self._file.write(header + block)
        self._file.sync()
        self.files.rename(temporary(path), path)
        others = (one for one in self.segments if one.first != self.end)
        self.segments = (*others, Segment(self.end, path, len(header)))
        self.files.sync_folder(self.folder)
        self._grow(block)

    def _grow(self, block: bytes) -> None:
        """Count a block that was added to the last segment."""
        last = self.segments[-1]
        self.segments = (*self.segments[:-1], replace(last, size=last.size + len(block)))

    def _withdraw(self) -> bool:
        """Abandon the file after an error; return True if the log certainly has nothing of the failed write."""
        self._close_file()
        with suppress(OSError):
            self.files.remove(temporary(self.folder / segment_name(self.end)))
        if self.segments:
            last = self.segments[-1]
            try:
                self.files.truncate(last.path, last.size)
            except OSError:
                return False
        return True

    def end_input(self) -> None:
        """Store that no more records will be added. Raises ``NotLogged``."""
        try:
            store(self.files, self.folder / _ENDED, [str(self.end).encode()])
        except OSError as exc:
            raise NotLogged(reason(exc), is_certain=False) from exc
        self.ended = True

    def release(self, position: int, since: Timestamp) -> None:
        """Remove the oldest segments of which all records are before ``position`` and no id was written at ``since``
        or later; never the last segment. Raises ``OSError``; what is left then is removed by a later call.
        """
        if position >= self.end and self.start < self.end and self.segments[-1].size >= self._large:
            # The last segment can be removed too if another one has the position after it.
            try:
                self._begin_segment(b"")
            except OSError:
                self._withdraw()
                raise
        for segment, end in self._bounded()[:-1]:
            if end > position or self._last_id.get(segment.first, since - 1) >= since:
                break
            self.files.remove(segment.path)
            self.segments = self.segments[1:]
            # After a loss of power, this segment must not be there again without the next one.
            self.files.sync_folder(self.folder)
            self._last_id.pop(segment.first, None)

    # ------------------------------------------------------------------------------------------------ closing

    def close(self) -> None:
        """End the last segment with a closing block, if this process has begun it, and release the lock."""
        try:
            if self._file is not None:
                self._file.write(encode_block(self.end, 0, ()))
                self._file.sync()
        except (
            OSError
        ) as exc:  # the records are safe; the log counts as one whose process was killed
            log_events.LOG_NOT_CLOSED.log(
                "the log in %s could not be closed: %s",
                self.folder,
                reason(exc),
                folder=str(self.folder),
                error=reason(exc),
            )
        finally:
            self._close_file()
            self._release_lock()

    def abandon(self) -> None:
        """Let other processes open the log; it looks like that of a process that was killed."""
        self._close_file()
        self._release_lock()

    def _release_lock(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()

    def _close_file(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):
                file.close()


class LogReader:
    """Reads the records of a log from ``position`` on, block by block; its methods block."""

    def __init__(self, log: RecordLog, position: int) -> None:
        self._log = log
        #: The position of the next block's first record, or one within that block at the beginning.
        self.position = position
        self._segment: Segment | None = None
        #: Bytes of the segment, from ``_base`` on, and the offset in them of the next block.
        self._data = b""
        self._base = 0
        self._offset = 0

    def read(self) -> Sequence[LogRecord]:
        """Return the records of the next block from ``position`` on, at least one. Raises ``SourceError``.

        To be called only while ``position`` is before the end of the log.
        """
        try:
            while True:
                segment = self._find_segment()
                block = self._next_block(segment)
                if block.end > self.position:
                    records = block.records[self.position - block.first :]
                    self.position = block.end
                    return records
        except OSError as exc:
            raise SourceError(
                f"the log in {self._log.folder} cannot be read: {reason(exc)}"
            ) from exc

    def _find_segment(self) -> Segment:
        """Return the segment of ``position``, and begin to read it if it is another than before."""
        segments = self._log.segments
        found = next((one for one in reversed(segments) if one.first <= self.position), None)
        if found is None:
            raise SourceError(
                f"the log in {self._log.folder} has no record {self.position} any more: it begins at "
                f"{self._log.start}; records that completed checkpoints cover are removed"
            )
        if self._segment is None or self._segment.first != found.first:
            self._data, self._base = self._read_file(found, 0, _CHUNK), 0
            try:
                _, self._offset = read_file_header(self._data, found.path)
            except Damaged as exc:
                raise _damage(found.path, 0, exc) from exc
        self._segment = found
        return found

    def _read_file(self, segment: Segment, offset: int, size: int) -> bytes:
        """Return up to ``size`` bytes of the valid part of a segment."""
        return self._log.files.read_part(segment.path, offset, min(size, segment.size - offset))

    def _next_block(self, segment: Segment) -> LogBlock:
        """Return the next block; if it is not in memory as a whole, read on, at first without knowing its size."""
        failed = Damaged("it is cut off")
        for step in range(3):
            if step:
                self._load(segment)
            try:
                block, self._offset = read_block(self._data, self._offset)
            except Damaged as exc:
                failed = exc
                continue
            if block.first <= self.position:
                return block
            failed = Damaged(f"it begins at record {block.first} instead of {self.position}")
            break
        raise _damage(segment.path, self._base + self._offset, failed)

    def _load(self, segment: Segment) -> None:
        """Read on from the next block, with all of it if its size is known."""
        self._base += self._offset
        size = _CHUNK
        with suppress(Damaged):
            size = max(size, read_header(self._data, self._offset).size + 64)
        self._data, self._offset = self._read_file(segment, self._base, size), 0


def _ids_of(block: LogBlock) -> list[SeenId]:
    return [
        SeenId(record[2], position, block.written_at)
        for position, record in enumerate(block.records, block.first)
        if record[2] is not None
    ]


def _damage(path: Path, offset: int, error: Damaged) -> SourceError:
    return SourceError(
        f"the log is damaged: {path}, the block at byte {offset}: {error}. Records that were acknowledged are lost; "
        f"restore the file from a copy, or remove the folder and begin with an empty log"
    )
