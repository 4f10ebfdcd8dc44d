"""The contract of sources whose system keeps records until they are acknowledged.

A restart reads from the position of the last checkpoint that is complete. So nothing may be acknowledged before that:
not by ``read``, not by ``close``, and by a notice only what is before its position.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from aflow.connect import Position, Reader, Source
from aflow.errors import shown
from aflow.testing.source_probe import ReadPiece, Record, SourceProbe, flat

#: Methods of a reader that acknowledge, in the order of their calls.
_NOTICES: Final = ("on_checkpoint_completed", "on_results_committed", "on_checkpoints_removed")

#: Attempts to see that records were acknowledged, and the seconds between them: a system may be told later.
_ATTEMPTS: Final = 50
_PAUSE: Final = 0.02


class SourceNoticeCheck:
    """Checks of the acknowledgements of a source. ``acknowledged`` returns their number; None: it is not known."""

    def __init__(
        self, probe: SourceProbe, acknowledged: Callable[[Any], int | Awaitable[int]] | None
    ) -> None:
        self._probe = probe
        self._acknowledged = acknowledged

    async def run(self, whole: dict[str, list[Record]]) -> None:
        """Run all checks. ``whole`` are the records of each split."""
        source = self._probe.make()
        is_kept = source.replayable or source.needs_checkpoints
        if is_kept or self._acknowledged is not None:
            await self._without_checkpoint(whole, is_kept=is_kept)
        if is_kept:
            await self._with_checkpoints(whole)

    async def _without_checkpoint(self, whole: dict[str, list[Record]], *, is_kept: bool) -> None:
        """After a crash before the first checkpoint, the same source returns all records again."""
        probe = self._probe
        source = probe.make()
        for split in whole:
            await probe.pieces(source, split, None, 2)
        released = await self._released(source)
        if released:
            raise probe.broken(
                f"read() or close() has acknowledged {released} records, and no checkpoint was completed: after a "
                f"crash they would be missing. on_checkpoint_completed(position) acknowledges them"
            )
        if not is_kept:
            return
        again = {split: flat(await probe.pieces(source, split, None, 2)) for split in whole}
        probe.same(
            again,
            whole,
            "read again after a crash, before which no checkpoint was completed (does read() or close() acknowledge?),",
        )

    async def _with_checkpoints(self, whole: dict[str, list[Record]]) -> None:
        """After a crash the records after the position of the last completed checkpoint are read again."""
        probe = self._probe
        source = probe.make()
        covered = 0
        for split, records in whole.items():
            async with probe.opened(source, split, None) as reader:
                if not _is_notified(reader):
                    return
                first, position = await self._until_middle(source, split, reader)
                begin, done = flat(first), _count(first)
                await self._notify(reader, position)
                await self._notify(
                    reader, position
                )  # of the next checkpoint, without a record between the two
                await self._at_most(source, covered + done, position)
                further = await probe.read(source, split, reader, 2)
            await self._at_most(source, covered + done, position)
            async with probe.opened(source, split, position) as reader:
                rest = await self._to_end(source, split, reader)
                covered += done + _count(rest)
                last = rest[-1].position if rest else position
                probe.same(
                    {split: begin + flat(rest)},
                    {split: records},
                    f"after a crash that followed the checkpoint at position {shown(position)}, record {len(begin)} "
                    f"({0 if further is None else len(further.records)} more were read),",
                )
                await self._notify(reader, last)
                await self._all_of(source, covered)

    async def _until_middle(
        self, source: Source[Any], split: str, reader: Reader[Any]
    ) -> tuple[list[ReadPiece], Position]:
        """Return the chunks up to the first one that has records, and the position after them."""
        pieces: list[ReadPiece] = []
        while (piece := await self._probe.read(source, split, reader, 2)) is not None:
            pieces.append(piece)
            if piece.records:
                break
        return pieces, pieces[-1].position if pieces else None

    async def _to_end(
        self, source: Source[Any], split: str, reader: Reader[Any]
    ) -> list[ReadPiece]:
        """Read to the end, with a checkpoint after each chunk."""
        pieces: list[ReadPiece] = []
        while (piece := await self._probe.read(source, split, reader, 7)) is not None:
            pieces.append(piece)
            await self._notify(reader, piece.position)
            await asyncio.sleep(0)
        return pieces

    async def _notify(self, reader: Reader[Any], position: Position) -> None:
        if position is None:
            return
        for name in _NOTICES:
            await self._probe.in_time(getattr(reader, name)(position), f"{name}()")

    async def _released(self, source: Source[Any]) -> int:
        """Return the number of acknowledged records; 0 if it is not known."""
        if self._acknowledged is None:
            return 0
        found = self._acknowledged(source)
        if isinstance(found, Awaitable):
            return await self._probe.in_time(found, "acknowledged()")
        return found

    async def _at_most(self, source: Source[Any], covered: int, position: Position) -> None:
        released = await self._released(source)
        if released > covered:
            raise self._probe.broken(
                f"{released} records are acknowledged, and the completed checkpoint at position {shown(position)} "
                f"covers {covered}: only what is before the position may be"
            )

    async def _all_of(self, source: Source[Any], covered: int) -> None:
        """Raise if the system does not get all acknowledgements."""
        if self._acknowledged is None:
            return
        released = 0
        for _ in range(_ATTEMPTS):
            if (released := await self._released(source)) == covered:
                return
            await asyncio.sleep(_PAUSE)
        raise self._probe.broken(
            f"{released} records are acknowledged after the checkpoint at the end of a split, and {covered} were read: "
            f"the others are kept for ever"
        )


def _count(pieces: Sequence[ReadPiece]) -> int:
    """Return the number of records, bad ones included."""
    return sum(len(piece.records) + len(piece.rejected) for piece in pieces)


def _is_notified(reader: Reader[Any]) -> bool:
    return any(getattr(type(reader), name) is not getattr(Reader, name) for name in _NOTICES)
