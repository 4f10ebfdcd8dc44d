"""Calls of a source as a job makes them, for checks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import repeat
from typing import Any, Final, TypeAlias, TypeVar

from aflow.connect import BadRecord, Chunk, Position, Reader, Source
from aflow.errors import FlowDefinitionError, shown
from aflow.model.codecs import PLAIN, CodecError
from aflow.model.time import MAX_TIMESTAMP, MIN_TIMESTAMP, Timestamp, to_timestamp
from aflow.testing.secret_checks import Secrets
from aflow.testing.time_limit import in_time

R = TypeVar("R")

#: Consecutive chunks without records after which a source counts as endless.
_MOST_EMPTY: Final = 100

#: Chunks with repeated positions after which a split counts as endless.
_MOST_REPEATS: Final = 50

#: Records of a split beyond twice the expected ones after which it counts as endless.
_MOST_TOO_MANY: Final = 100

#: The maximum bytes of a bad record.
_MOST_RAW: Final = 4096

Record: TypeAlias = tuple[Any, Timestamp | None]


@dataclass(frozen=True)
class ReadPiece:
    """The records of a chunk, and the position after it as read back from a checkpoint."""

    records: list[Record]
    position: Position
    watermark: Timestamp | None = None
    rejected: tuple[bytes, ...] = ()


def flat(pieces: Sequence[ReadPiece]) -> list[Record]:
    """Return the records of ``pieces``."""
    return [record for piece in pieces for record in piece.records]


class _ReaderProgress:
    """The progress of a reader towards the end of its split. ``most``: the maximum number of records."""

    def __init__(self, most: int | None, *, replayable: bool) -> None:
        self._most = most
        self._replayable = replayable
        self._records = 0
        #: Chunks with a repeated position. A split that ends may have a few; continuing there shows the error.
        self._repeats = 0
        #: The number of records up to each encoded position, of chunks with records.
        self._passed: dict[bytes, int] = {}

    def observe(self, piece: ReadPiece) -> str | None:
        """Count a chunk. Return the reason if the reader seems to be endless, else None."""
        self._records += len(piece.records)
        if self._replayable and piece.records:
            before = self._passed.setdefault(PLAIN.encode(piece.position), self._records)
            self._repeats += before != self._records
            if self._repeats > _MOST_REPEATS:
                return (
                    f"repeats positions, {shown(piece.position)} after record {before} and after "
                    f"record {self._records}; a position must be after all records of its chunk. Is the cursor "
                    f"inclusive, so that it returns the last record again?"
                )
        if self._most is not None and self._records > 2 * self._most + _MOST_TOO_MANY:
            return (
                f"returned {self._records} records and has not ended; {self._most} were expected of all splits. "
                f"read() returns None at the end of a split"
            )
        return None


class SourceProbe:
    """Make sources and call them with a time limit. Raises ``AssertionError`` for results that break the contract."""

    def __init__(
        self,
        make: Callable[[], Source[Any]],
        patience: timedelta,
        most: int | None,
        secrets: Secrets,
    ) -> None:
        self.make = make
        self._patience = patience
        #: The number of records of all splits; None if it is not known.
        self._most = most
        self._secrets = secrets
        first = make()
        self.name = type(first).__name__
        self.hide("repr() of the source", first)
        #: True once a chunk with a watermark was read.
        self.has_watermarks = False

    async def ids(self, source: Source[Any]) -> list[str]:
        """Return the ids of all splits."""
        ids = [split.id for split in await self.in_time(source.splits(), "splits()")]
        for one in ids:
            if type(one) is not str or not one:
                raise self.broken(f"the id of a split is a non-empty str, not {shown(one)}")
            self.hide("the id of a split", one)
        return ids

    @asynccontextmanager
    async def opened(
        self, source: Source[Any], split: str, position: Position | None
    ) -> AsyncGenerator[Reader[Any]]:
        reader = await self.reader(source, split, position)
        try:
            yield reader
        finally:
            await self.close(reader, split)

    @asynccontextmanager
    async def first(self) -> AsyncGenerator[tuple[Source[Any], str, Reader[Any]]]:
        """Open the first split of a new source."""
        source = self.make()
        split = (await self.ids(source))[0]
        async with self.opened(source, split, None) as reader:
            yield source, split, reader

    async def reader(
        self, source: Source[Any], split: str, position: Position | None
    ) -> Reader[Any]:
        for known in await self.in_time(source.splits(), "splits()"):
            if known.id == split:
                return await self.in_time(source.reader(known, position), f"reader({split!r})")
        raise self.broken(f"another source from make_source() does not have split {split!r}")

    async def close(self, reader: Reader[Any], split: str) -> None:
        await self.in_time(reader.close(), f"close() of the reader of {split!r}")

    async def pieces(
        self, source: Source[Any], split: str, position: Position | None, limit: int
    ) -> list[ReadPiece]:
        """Return all chunks of a split from ``position`` on."""
        async with self.opened(source, split, position) as reader:
            return await self.rest(source, split, reader, limit)

    async def rest(
        self, source: Source[Any], split: str, reader: Reader[Any], limit: int
    ) -> list[ReadPiece]:
        """Return the further chunks of a reader."""
        pieces: list[ReadPiece] = []
        progress = _ReaderProgress(self._most, replayable=source.replayable)
        empty = 0
        watermark: Timestamp | None = None
        while (piece := await self.read(source, split, reader, limit)) is not None:
            # The check must stay cancellable, also with a reader that never waits.
            await asyncio.sleep(0)
            if endless := progress.observe(piece):
                raise self.broken(f"read({limit}) of split {split!r} {endless}")
            watermark = self.advanced(split, watermark, piece)
            pieces.append(piece)
            is_empty = not piece.records and piece.watermark is None and not piece.rejected
            empty = empty + 1 if is_empty else 0
            if empty > _MOST_EMPTY:
                raise self.broken(
                    f"split {split!r} returns chunks without records for ever; read() waits for a record, "
                    f"and returns None at the end"
                )
        return pieces

    async def read(
        self, source: Source[Any], split: str, reader: Reader[Any], limit: int
    ) -> ReadPiece | None:
        """Return the next chunk, checked; None at the end."""
        what = f"read({limit}) of split {split!r}"
        chunk = await self.in_time(reader.read(limit), what)
        if chunk is None:
            return None
        if not _is_chunk(chunk):
            raise self.broken(
                f"{what} returned {shown(chunk)}; it returns a Chunk of values and the "
                f"position after them, or None at the end"
            )
        count = len(chunk.values) + len(chunk.rejected)
        if count > limit:
            raise self.broken(f"read({limit}) returned {count} records (rejected ones included)")
        if chunk.timestamps is not None and len(chunk.timestamps) != len(chunk.values):
            raise self.broken(
                f"a chunk of {len(chunk.values)} records has {len(chunk.timestamps)} timestamps; one each, or None"
            )
        if chunk.rejected and source.dead_letters is None:
            raise self.broken("a chunk has rejected records, and the source has no dead_letters")
        if type(chunk.idle) is not bool:
            raise self.broken(f"idle of a chunk is True or False, not {shown(chunk.idle)}")
        times = chunk.timestamps or repeat(None)
        records = list(zip(chunk.values, times, strict=False))
        rejected = tuple(self._raw(one) for one in chunk.rejected)
        return ReadPiece(records, self._stored(chunk), self._watermark(source, chunk), rejected)

    def advanced(
        self, split: str, watermark: Timestamp | None, piece: ReadPiece
    ) -> Timestamp | None:
        """Return the watermark after ``piece``, of a split with ``watermark``, which its records must not be behind."""
        if watermark is not None:
            for value, time in piece.records:
                if time is not None and time <= watermark:
                    raise self.broken(
                        f"record {shown(value)} of split {split!r} has timestamp {time} and follows watermark "
                        f"{watermark}; all records after a watermark have later timestamps"
                    )
            if piece.watermark is not None and piece.watermark < watermark:
                raise self.broken(
                    f"watermark {piece.watermark} of split {split!r} follows watermark {watermark}; watermarks never "
                    f"go back"
                )
        return watermark if piece.watermark is None else piece.watermark

    async def in_time(self, work: Awaitable[R], what: str) -> R:
        return await in_time(work, self._patience, f"{self.name}: {what}")

    def same(
        self, found: dict[str, list[Record]], whole: dict[str, list[Record]], how: str
    ) -> None:
        """Raise unless each split has the same records in ``found`` as in ``whole``."""
        for split, records in whole.items():
            got = found.get(split, [])
            if got != records:
                raise self.broken(
                    f"{how} split {split!r} gives {shown(got)} ({len(got)} records with their timestamps) instead of "
                    f"{shown(records)} ({len(records)} records)"
                )

    def hide(self, where: str, value: object) -> None:
        """Raise if ``value`` shows a secret."""
        self._secrets.check(self.name, where, value)

    def broken(self, how: str) -> AssertionError:
        return AssertionError(f"{self.name} breaks the contract of sources: {how}")

    def _raw(self, bad: object) -> bytes:
        """Return the data of a rejected record, which must be complete and explained."""
        if not isinstance(bad, BadRecord):
            raise self.broken(f"rejected records are BadRecord, not {shown(bad)}")
        for name in ("place", "reason"):
            text: object = getattr(bad, name)
            if type(text) is not str or not text:
                raise self.broken(f"{name} of a BadRecord says it in words, and not {shown(text)}")
            self.hide(f"{name} of a BadRecord", text)
        if type(bad.raw) is not bytes or len(bad.raw) > _MOST_RAW:
            raise self.broken(
                f"raw of a BadRecord is the data as bytes, at most {_MOST_RAW}, and not {shown(bad.raw)}"
            )
        return bad.raw

    def _watermark(self, source: Source[Any], chunk: Chunk[Any]) -> Timestamp | None:
        """Return the watermark of a chunk in epoch ms."""
        if chunk.watermark is None:
            return None
        if not source.emits_watermarks:
            raise self.broken(
                "a chunk has a watermark, and the source does not declare emits_watermarks = True"
            )
        try:
            watermark = to_timestamp(chunk.watermark, what="the watermark of a chunk")
        except FlowDefinitionError as exc:
            raise self.broken(str(exc)) from exc
        if not MIN_TIMESTAMP <= watermark < MAX_TIMESTAMP:
            raise self.broken(f"watermark {watermark} is not within 64 bits, or is the end of time")
        self.has_watermarks = True
        return watermark

    def _stored(self, chunk: Chunk[Any]) -> Position:
        """Return the position as read back from a checkpoint."""
        try:
            position = PLAIN.decode(PLAIN.encode(chunk.position))
        except CodecError as exc:
            raise self.broken(
                f"position {shown(chunk.position)} cannot be stored in a checkpoint: {exc}"
            ) from exc
        if position is None:
            raise self.broken("the position of a chunk is None, which means the start of a split")
        self.hide("a position, which checkpoints store,", position)
        return position


def _is_chunk(given: object) -> bool:
    return isinstance(given, Chunk)
