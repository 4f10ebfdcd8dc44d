"""A source that follows a script of records, watermarks, pauses, crashes and ends."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, Generic, TypeAlias, TypeVar, cast

from aflow.connect import Chunk, Position, Reader, Source, Split
from aflow.errors import FlowDefinitionError, RestoreError, shown
from aflow.model.elements import Idle, Watermark
from aflow.model.time import positive_millis, to_timestamp
from aflow.testing.records import At

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Pause:
    """Emit no record for ``duration``, on the clock of the event loop: virtual time in tests that use it."""

    duration: timedelta

    def __post_init__(self) -> None:
        positive_millis(self.duration, what="Pause")


@dataclass(frozen=True, slots=True)
class Crash:
    """Raise ``error`` once: a job that is restarted with the same source reads on."""

    error: Exception = field(default_factory=lambda: ConnectionError("a crash of the script"))


@dataclass(frozen=True, slots=True)
class End:
    """End the split. A reader that is opened at the position before it continues after it, as the next run."""


Line: TypeAlias = T | At[T] | Watermark | Idle | Pause | Crash | End

#: The lines that are no records.
_MARKS: Final = (Watermark, Idle, Pause, Crash, End)


class ScriptedSource(Source[T_co], Generic[T_co]):
    """A source that follows a script of values, ``At(value, timestamp)``, ``Pause``, ``Crash`` and ``End``.

    ``Watermark(timestamp)`` is a watermark of its split, for ``event_time(source_watermarks=True)``. After ``Idle()``
    the split is idle until its next record or watermark.

    ``ScriptedSource[int](1, 2, Pause(timedelta(minutes=5)), 3)`` has one split; ``ScriptedSource.of_splits`` makes
    several, which are read concurrently. A split ends after its last line. The position is the number of lines read, so
    a reader that is opened at it continues exactly there. Consecutive records are one chunk. Raises
    ``FlowDefinitionError`` if some records of a split have a timestamp and others have none.
    """

    concurrency = None

    def __init__(self, *lines: Line[T_co]) -> None:
        self._scripts = {"script": _Script(lines)}
        self.emits_watermarks = any(isinstance(line, Watermark) for line in lines)

    @staticmethod
    def of_splits(scripts: Mapping[str, Sequence[Line[T]]]) -> ScriptedSource[T]:
        """Return a source with a split for each name, and its script."""
        if not scripts:
            raise FlowDefinitionError("ScriptedSource.of_splits needs at least one split")
        source = ScriptedSource[T]()
        source._scripts = {name: _Script(lines) for name, lines in scripts.items()}
        source.emits_watermarks = any(
            isinstance(line, Watermark) for lines in scripts.values() for line in lines
        )
        return source

    async def splits(self) -> Sequence[Split]:
        return [Split(name) for name in self._scripts]

    async def reader(self, split: Split, position: Position | None) -> Reader[T_co]:
        """Open a reader. Raises ``RestoreError`` for a position that is not in the script."""
        script = self._scripts[split.id]
        if position is None:
            return _ScriptReader(script, 0)
        if type(position) is not int or not 0 <= position <= len(script.lines):
            raise RestoreError(
                f"split {split.id!r} of a ScriptedSource has {len(script.lines)} lines, so it cannot continue at "
                f"{shown(position)}"
            )
        return _ScriptReader(script, position, resumed=True)


class _Script(Generic[T]):
    def __init__(self, lines: Sequence[Line[T]]) -> None:
        self.lines = tuple(_line(line) for line in lines)
        #: Indices of the crashes that were raised.
        self.crashed: set[int] = set()
        records = [line for line in self.lines if isinstance(line, At)]
        plain = [record for record in records if record.timestamp is None]
        if 0 < len(plain) < len(records):
            raise FlowDefinitionError(
                f"either all records of a split have a timestamp or none, and {shown(plain[0].value)} has none; "
                f"write At(value, timestamp) for each"
            )
        #: True if records have timestamps.
        self.dated = not plain


def _line(line: Line[T]) -> At[T] | Watermark | Idle | Pause | Crash | End:
    if isinstance(line, _MARKS):
        return line
    # isinstance does not narrow the type argument of At; the type of the script does.
    return cast("At[T]", line) if isinstance(line, At) else At(line)


class _ScriptReader(Reader[T]):
    def __init__(self, script: _Script[T], start: int, *, resumed: bool = False) -> None:
        self._script = script
        #: The next line to read.
        self._next = start
        #: The index of the ``End`` at which the former run ended.
        self._end_before = start if resumed else None

    async def read(self, limit: int) -> Chunk[T] | None:
        lines = self._script.lines
        while self._next < len(lines):
            line = lines[self._next]
            if isinstance(line, Pause):
                await asyncio.sleep(line.duration.total_seconds())
            elif isinstance(line, Crash):
                self._crash(line)
            elif isinstance(line, End):
                if self._next != self._end_before:
                    return None
            else:
                return self._chunk(limit)
            self._next += 1
        return None

    def _crash(self, crash: Crash) -> None:
        if self._next not in self._script.crashed:
            self._script.crashed.add(self._next)
            raise crash.error

    def _chunk(self, limit: int) -> Chunk[T]:
        """Return the next records, up to ``limit`` or the next line that is no record, and what follows of a watermark
        and idleness."""
        lines = self._script.lines
        records = _records(lines[self._next : self._next + limit])
        self._next += len(records)
        watermark = None
        if self._next < len(lines) and isinstance(mark := lines[self._next], Watermark):
            watermark = mark.timestamp
            self._next += 1
        idle = self._next < len(lines) and isinstance(lines[self._next], Idle)
        self._next += idle
        times = [to_timestamp(one.timestamp) for one in records if one.timestamp is not None]
        values = [one.value for one in records]
        return Chunk(
            values,
            self._next,
            times if self._script.dated else None,
            watermark=watermark,
            idle=idle,
        )


def _records(lines: Sequence[At[T] | Watermark | Idle | Pause | Crash | End]) -> list[At[T]]:
    """Return the records at the start of ``lines``."""
    records: list[At[T]] = []
    for line in lines:
        if not isinstance(line, At):
            break
        records.append(line)
    return records
