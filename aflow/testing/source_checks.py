"""The contract of sources as one check, for authors of connectors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import repeat
from typing import Any, Final, Generic, TypeVar

from aflow.connect import Chunk, Position, Reader, Source
from aflow.errors import FlowDefinitionError, shown
from aflow.model.codecs import PLAIN, CodecError
from aflow.model.time import MAX_TIMESTAMP, MIN_TIMESTAMP, Timestamp, to_timestamp
from aflow.testing.leftovers import no_leftovers_of_block
from aflow.testing.time_limit import PATIENCE, check_not_async, in_time

T = TypeVar("T")
R = TypeVar("R")

#: Limits of ``read``, from one record to more than most sources have.
_LIMITS: Final = (1, 2, 7, 1024)

#: Consecutive chunks without records after which a source counts as endless.
_MOST_EMPTY: Final = 100

#: Chunks with repeated positions after which a split counts as endless.
_MOST_REPEATS: Final = 50

#: Records of a split beyond twice the expected ones after which it counts as endless.
_MOST_TOO_MANY: Final = 100

#: The maximum number of positions of a split at which it is opened again; of more, some are chosen.
_MOST_POSITIONS: Final = 25

Record = tuple[T, Timestamp | None]


async def check_source(
    make_source: Callable[[], Source[T]],
    *,
    expected: Sequence[T] | None = None,
    patience: timedelta = PATIENCE,
) -> None:
    """Raise ``AssertionError`` if a source breaks the contract of ``aflow.connect``; the message names the breach.

    ``make_source`` is called many times, and each source it makes must return the same records and end. ``expected``
    are their values, split after split in the order of ``splits()``; without it, any values pass, but none at all
    fails. No read may take longer than ``patience`` of loop time. A split that never ends is detected when it returns
    far more records than expected, or when one of a replayable source repeats its positions. Without ``expected``, a
    source that is not replayable and never ends is read until the check is cancelled.

    The check reads every split with several limits; continues a replayable source at its positions, as another process
    would, after they were encoded and decoded as in checkpoints, and again at the positions of continued readers; reads
    all its splits concurrently; and closes readers before, between and after reads and after a cancelled one.
    Of a source with watermarks, it checks that they never go back and that no record with a timestamp is late.
    Afterwards no task that it created, no thread and no open file may be left.
    """
    check_not_async(make_source, "make_source")
    most = None if expected is None else len(expected)
    check = _SourceCheck(make_source, patience, most)
    await check.splits()
    whole = await check.reading()
    check.values(whole, expected)
    if make_source().replayable:
        await check.continuing(whole)
        await check.reopening(whole)
        await check.reading_at_once(whole)
    await check.closing()


@dataclass(frozen=True)
class _Piece(Generic[T]):
    """The records of a chunk, and the position after it as read back from a checkpoint."""

    records: list[Record[T]]
    position: Position
    watermark: Timestamp | None = None


class _Progress:
    """The progress of a reader towards the end of its split. ``most``: the maximum number of records."""

    def __init__(self, most: int | None, *, replayable: bool) -> None:
        self._most = most
        self._replayable = replayable
        self._records = 0
        #: Chunks with a repeated position. A split that ends may have a few; continuing there shows the error.
        self._repeats = 0
        #: The number of records up to each encoded position, of chunks with records.
        self._passed: dict[bytes, int] = {}

    def observe(self, piece: _Piece[Any]) -> str | None:
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


class _SourceCheck(Generic[T]):
    def __init__(
        self, make: Callable[[], Source[T]], patience: timedelta, most: int | None
    ) -> None:
        self._make = make
        self._patience = patience
        #: The number of records of all splits; None if it is not known.
        self._most = most
        self._name = type(make()).__name__
        #: True once a chunk with a watermark was read.
        self._has_watermarks = False

    async def splits(self) -> None:
        source = self._make()
        if not source.bounded:
            raise FlowDefinitionError(
                f"check_source reads to the end, and this {self._name} is unbounded; make a bounded one"
            )
        first = await self._ids(source)
        again = await self._ids(source)
        if len(set(first)) < len(first):
            raise self._broken(f"splits() names a split twice: {first}")
        if first != again:
            raise self._broken(f"splits() returns {first} and then {again}; ids must be stable")

    async def reading(self) -> dict[str, list[Record[T]]]:
        """Return the records of each split, which are the same for all limits."""
        found: dict[int, dict[str, list[Record[T]]]] = {}
        for limit in _LIMITS:
            source = self._make()
            found[limit] = {
                split: _flat(await self._pieces(source, split, None, limit))
                for split in await self._ids(source)
            }
        whole = found[_LIMITS[-1]]
        if self._make().emits_watermarks and any(whole.values()) and not self._has_watermarks:
            raise self._broken(
                "it declares emits_watermarks, and no chunk has a watermark; omit emits_watermarks"
            )
        for limit in _LIMITS[:-1]:
            self._same(found[limit], whole, f"reading at most {limit} at a time")
        return whole

    def values(self, whole: dict[str, list[Record[T]]], expected: Sequence[T] | None) -> None:
        values = [value for records in whole.values() for value, _ in records]
        if expected is None:
            if not values:
                raise self._broken("it returns no record, so nothing was checked")
        elif values != list(expected):
            raise self._broken(
                f"it returns {shown(values)} ({len(values)} records), expected was {shown(list(expected))} "
                f"({len(expected)} records)"
            )

    async def continuing(self, whole: dict[str, list[Record[T]]]) -> None:
        """A reader that is opened at the position of a chunk returns the following records."""
        for limit in (1, 7):
            for split, records in whole.items():
                done = 0
                pieces = await self._pieces(self._make(), split, None, limit)
                chosen = range(0, len(pieces), -(-len(pieces) // _MOST_POSITIONS) or 1)
                for index, piece in enumerate(pieces):
                    done += len(piece.records)
                    if index in chosen or index == len(pieces) - 1:
                        rest = _flat(await self._pieces(self._make(), split, piece.position, 1024))
                        self._same(
                            {split: rest},
                            {split: records[done:]},
                            f"continuing at position {shown(piece.position)}, after record {done},",
                        )

    async def reopening(self, whole: dict[str, list[Record[T]]]) -> None:
        """Consecutive readers of one chunk each continue each other."""
        for split, records in whole.items():
            found: list[Record[T]] = []
            position: Position | None = None
            source = self._make()
            for _ in range(_MOST_POSITIONS):
                async with self._opened(source, split, position) as reader:
                    piece = await self._read(source, split, reader, 2)
                if piece is None:
                    break
                found += piece.records
                position = piece.position
            else:
                found += _flat(await self._pieces(source, split, position, 1024))
            self._same({split: found}, {split: records}, "with a new reader for each chunk")

    async def reading_at_once(self, whole: dict[str, list[Record[T]]]) -> None:
        """Readers of different splits that alternate are independent."""
        source = self._make()
        found: dict[str, list[Record[T]]] = {split: [] for split in whole}
        readers = {split: await self._reader(source, split, None) for split in whole}
        try:
            reading = dict(readers)
            while reading:
                for split, reader in list(reading.items()):
                    piece = await self._read(source, split, reader, 1)
                    if piece is None:
                        del reading[split]
                    else:
                        found[split] += piece.records
        finally:
            for split, reader in readers.items():
                await self._in_time(reader.close(), f"close() of the reader of {split!r}")
        self._same(found, whole, "reading all splits at once")

    async def closing(self) -> None:
        for when, reads in (("before the first read", 0), ("after a read", 1)):
            async with (
                no_leftovers_of_block(f"{self._name}: a reader closed {when}"),
                self._first() as (source, split, reader),
            ):
                for _ in range(reads):
                    await self._read(source, split, reader, 1)
        async with (
            no_leftovers_of_block(f"{self._name}: a reader closed after a read was cancelled"),
            self._first() as (source, split, reader),
        ):
            await self._cancelled_read(source, split, reader)
        async with no_leftovers_of_block(f"{self._name}: a reader closed at the end"):
            source = self._make()
            for split in await self._ids(source):
                await self._pieces(source, split, None, 1024)

    async def _cancelled_read(self, source: Source[T], split: str, reader: Reader[T]) -> None:
        try:
            async with asyncio.timeout(0):  # cancels as soon as the read has to wait
                while await self._read(source, split, reader, 1024) is not None:
                    pass
        except TimeoutError:
            pass  # the cancellation that is checked

    async def _ids(self, source: Source[T]) -> list[str]:
        ids = [split.id for split in await self._in_time(source.splits(), "splits()")]
        for one in ids:
            if type(one) is not str or not one:
                raise self._broken(f"the id of a split is a non-empty str, not {shown(one)}")
        return ids

    async def _reader(self, source: Source[T], split: str, position: Position | None) -> Reader[T]:
        for known in await self._in_time(source.splits(), "splits()"):
            if known.id == split:
                return await self._in_time(source.reader(known, position), f"reader({split!r})")
        raise self._broken(f"another source from make_source() does not have split {split!r}")

    @asynccontextmanager
    async def _opened(
        self, source: Source[T], split: str, position: Position | None
    ) -> AsyncGenerator[Reader[T]]:
        reader = await self._reader(source, split, position)
        try:
            yield reader
        finally:
            await self._in_time(reader.close(), f"close() of the reader of {split!r}")

    @asynccontextmanager
    async def _first(self) -> AsyncGenerator[tuple[Source[T], str, Reader[T]]]:
        source = self._make()
        split = (await self._ids(source))[0]
        async with self._opened(source, split, None) as reader:
            yield source, split, reader

    async def _pieces(
        self, source: Source[T], split: str, position: Position | None, limit: int
    ) -> list[_Piece[T]]:
        """Return all chunks of a split from ``position`` on."""
        pieces: list[_Piece[T]] = []
        progress = _Progress(self._most, replayable=source.replayable)
        async with self._opened(source, split, position) as reader:
            empty = 0
            watermark: Timestamp | None = None
            while (piece := await self._read(source, split, reader, limit)) is not None:
                # The check must stay cancellable, also with a reader that never waits.
                await asyncio.sleep(0)
                if endless := progress.observe(piece):
                    raise self._broken(f"read({limit}) of split {split!r} {endless}")
                watermark = self._advanced(split, watermark, piece)
                pieces.append(piece)
                empty = 0 if piece.records or piece.watermark is not None else empty + 1
                if empty > _MOST_EMPTY:
                    raise self._broken(
                        f"split {split!r} returns chunks without records for ever; read() waits for a record, "
                        f"and returns None at the end"
                    )
        return pieces

    async def _read(
        self, source: Source[T], split: str, reader: Reader[T], limit: int
    ) -> _Piece[T] | None:
        what = f"read({limit}) of split {split!r}"
        chunk = await self._in_time(reader.read(limit), what)
        if chunk is None:
            return None
        if not _is_chunk(chunk):
            raise self._broken(
                f"{what} returned {shown(chunk)}; it returns a Chunk of values and the "
                f"position after them, or None at the end"
            )
        count = len(chunk.values) + len(chunk.rejected)
        if count > limit:
            raise self._broken(f"read({limit}) returned {count} records (rejected ones included)")
        if chunk.timestamps is not None and len(chunk.timestamps) != len(chunk.values):
            raise self._broken(
                f"a chunk of {len(chunk.values)} records has {len(chunk.timestamps)} timestamps; one each, or None"
            )
        if chunk.rejected and source.dead_letters is None:
            raise self._broken("a chunk has rejected records, and the source has no dead_letters")
        if type(chunk.idle) is not bool:
            raise self._broken(f"idle of a chunk is True or False, not {shown(chunk.idle)}")
        times = chunk.timestamps or repeat(None)
        records = list(zip(chunk.values, times, strict=False))
        return _Piece(records, self._stored(chunk), self._watermark(source, chunk))

    def _watermark(self, source: Source[T], chunk: Chunk[T]) -> Timestamp | None:
        """Return the watermark of a chunk in epoch ms."""
        if chunk.watermark is None:
            return None
        if not source.emits_watermarks:
            raise self._broken(
                "a chunk has a watermark, and the source does not declare emits_watermarks = True"
            )
        try:
            watermark = to_timestamp(chunk.watermark, what="the watermark of a chunk")
        except FlowDefinitionError as exc:
            raise self._broken(str(exc)) from exc
        if not MIN_TIMESTAMP <= watermark < MAX_TIMESTAMP:
            raise self._broken(
                f"watermark {watermark} is not within 64 bits, or is the end of time"
            )
        self._has_watermarks = True
        return watermark

    def _advanced(
        self, split: str, watermark: Timestamp | None, piece: _Piece[T]
    ) -> Timestamp | None:
        """Return the watermark after ``piece``, of a split with ``watermark``, which its records must not be behind."""
        if watermark is not None:
            for value, time in piece.records:
                if time is not None and time <= watermark:
                    raise self._broken(
                        f"record {shown(value)} of split {split!r} has timestamp {time} and follows watermark "
                        f"{watermark}; all records after a watermark have later timestamps"
                    )
            if piece.watermark is not None and piece.watermark < watermark:
                raise self._broken(
                    f"watermark {piece.watermark} of split {split!r} follows watermark {watermark}; watermarks never "
                    f"go back"
                )
        return watermark if piece.watermark is None else piece.watermark

    def _stored(self, chunk: Chunk[T]) -> Position:
        """Return the position as read back from a checkpoint."""
        try:
            position = PLAIN.decode(PLAIN.encode(chunk.position))
        except CodecError as exc:
            raise self._broken(
                f"position {shown(chunk.position)} cannot be stored in a checkpoint: {exc}"
            ) from exc
        if position is None:
            raise self._broken("the position of a chunk is None, which means the start of a split")
        return position

    async def _in_time(self, work: Awaitable[R], what: str) -> R:
        return await in_time(work, self._patience, f"{self._name}: {what}")

    def _same(
        self, found: dict[str, list[Record[T]]], whole: dict[str, list[Record[T]]], how: str
    ) -> None:
        for split, records in whole.items():
            got = found.get(split, [])
            if got != records:
                raise self._broken(
                    f"{how} split {split!r} gives {shown(got)} ({len(got)} records with their timestamps) instead of "
                    f"{shown(records)} ({len(records)} records)"
                )

    def _broken(self, how: str) -> AssertionError:
        return AssertionError(f"{self._name} breaks the contract of sources: {how}")


def _flat(pieces: Sequence[_Piece[T]]) -> list[Record[T]]:
    return [record for piece in pieces for record in piece.records]


def _is_chunk(given: object) -> bool:
    return isinstance(given, Chunk)
