"""The contract of sources as one check, for authors of connectors."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import Any, Final, Generic, TypeVar

from aflow.api.flow import Flow
from aflow.connect import Position, Reader, Source
from aflow.errors import AflowError, FlowDefinitionError, shown
from aflow.model.time import Timestamp
from aflow.runtime.builtin_connectors.collect_sink import CollectSink
from aflow.testing.disturbance import Disturb, cut, while_cut
from aflow.testing.leftovers import no_leftovers_of_block
from aflow.testing.secret_checks import Secrets
from aflow.testing.source_notice_checks import SourceNoticeCheck
from aflow.testing.source_probe import ReadPiece, Record, SourceProbe, flat
from aflow.testing.time_limit import PATIENCE, TooSlow, check_not_async

S = TypeVar("S", bound=Source[Any])

#: Limits of ``read``, from one record to more than most sources have.
_LIMITS: Final = (1, 2, 7, 1024)

#: The maximum number of positions of a split at which it is opened again; of more, some are chosen.
_MOST_POSITIONS: Final = 25

#: A position of another source.
_FOREIGN: Final = {"not a position": ["of this source"]}


async def check_source(
    make_source: Callable[[], S],
    *,
    expected: Sequence[object] | None = None,
    patience: timedelta = PATIENCE,
    rejected: Sequence[bytes] | None = None,
    acknowledged: Callable[[S], int | Awaitable[int]] | None = None,
    disturb: Disturb | None = None,
    secrets: Sequence[str] = (),
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
    Of a source with watermarks, it checks that they never go back in a split and that no record with a timestamp is
    late. Afterwards no task that it created, no thread and no open file may be left.

    A source that is replayable or ``needs_checkpoints`` must not acknowledge records before the checkpoint that covers
    them: the check reads, closes without a checkpoint, and reads again; then it completes checkpoints, and continues at
    their positions. ``acknowledged(source)``, plain or ``async``, returns the number of records that the external
    system has released; with it the check knows for any source.

    ``rejected`` are the data of all bad records, in order. ``disturb``, plain or ``async``, cuts the connections of the
    source, before and while it reads: it must return the same records. ``secrets`` must not occur in ids, positions,
    bad records, plans, errors, log records or ``repr``; each has at least four characters.
    """
    check_not_async(make_source, "make_source")
    hidden = Secrets(secrets)
    most = None if expected is None else len(expected)
    probe = SourceProbe(make_source, patience, most, hidden)
    with hidden.watched(probe.name):
        check = _SourceCheck[S](probe)
        await check.splits()
        whole = await check.reading(rejected)
        check.values(whole, expected)
        if probe.make().replayable:
            await check.continuing(whole)
            await check.reopening(whole)
            await check.reading_at_once(whole)
        await SourceNoticeCheck(probe, acknowledged).run(whole)
        if disturb is not None:
            await check.disturbing(whole, disturb)
        await check.closing()
        if hidden:
            await check.showing_nothing(hidden)


async def check_discovery(
    make_source: Callable[[], S],
    grow: Callable[[S], Sequence[object] | Awaitable[Sequence[object]]],
    *,
    patience: timedelta = PATIENCE,
) -> None:
    """Raise ``AssertionError`` if a source does not find a split that is created while it is read.

    ``make_source`` makes a source with ``discover_every``, which may be unbounded. ``grow(source)``, plain or
    ``async``, creates one or more splits in the external system, and returns their records, in the order of
    ``splits()``. All records of the new splits must be read from their start; the ids of the others must not change.
    """
    check_not_async(make_source, "make_source")
    probe = SourceProbe(make_source, patience, None, Secrets(()))
    source = make_source()
    if source.discover_every is None:
        raise probe.broken(
            "it declares no discover_every, so that a job lists its splits only once"
        )
    before = await probe.ids(source)
    readers = {split: await probe.reader(source, split, None) for split in before}
    try:
        given = grow(source)
        records = list(
            await probe.in_time(given, "grow()") if isinstance(given, Awaitable) else given
        )
        after = await probe.ids(source)
        missing = [split for split in before if split not in after]
        if missing:
            raise probe.broken(
                f"splits {missing} are missing when splits() is called again; those that are being read stay"
            )
        new = [split for split in after if split not in before]
        if not new:
            raise probe.broken(f"splits() still returns {before} after a split was created")
        await _read_new(probe, source, new, records)
    finally:
        for split, reader in readers.items():
            await probe.close(reader, split)
    if await probe.ids(source) != after:
        raise probe.broken("splits() returns other ids each time; ids must be stable")


async def _read_new(
    probe: SourceProbe, source: Source[Any], new: list[str], records: list[object]
) -> None:
    """Raise unless the splits ``new`` begin with ``records``."""
    found: list[object] = []
    for split in new:
        async with probe.opened(source, split, None) as reader:
            while len(found) < len(records):
                try:
                    piece = await probe.read(source, split, reader, 7)
                except TooSlow:
                    break  # an unbounded source waits for more
                if piece is None:
                    break
                found += [value for value, _ in piece.records]
    if found != records:
        raise probe.broken(
            f"the new splits {new} give {shown(found)} ({len(found)} records) instead of {shown(records)} "
            f"({len(records)} records): a split that is found later is read from its start"
        )


class _SourceCheck(Generic[S]):
    def __init__(self, probe: SourceProbe) -> None:
        self._probe = probe

    async def splits(self) -> None:
        probe = self._probe
        source = probe.make()
        if not source.bounded:
            raise FlowDefinitionError(
                f"check_source reads to the end, and this {probe.name} is unbounded; make a bounded one"
            )
        first = await probe.ids(source)
        again = await probe.ids(source)
        if len(set(first)) < len(first):
            raise probe.broken(f"splits() names a split twice: {first}")
        if first != again:
            raise probe.broken(f"splits() returns {first} and then {again}; ids must be stable")

    async def reading(self, rejected: Sequence[bytes] | None) -> dict[str, list[Record]]:
        """Return the records of each split, which are the same for all limits."""
        probe = self._probe
        found: dict[int, dict[str, list[Record]]] = {}
        bad: dict[int, list[bytes]] = {}
        for limit in _LIMITS:
            source = probe.make()
            pieces = {
                split: await probe.pieces(source, split, None, limit)
                for split in await probe.ids(source)
            }
            found[limit] = {split: flat(some) for split, some in pieces.items()}
            bad[limit] = [
                raw for some in pieces.values() for piece in some for raw in piece.rejected
            ]
        whole = found[_LIMITS[-1]]
        if probe.make().emits_watermarks and any(whole.values()) and not probe.has_watermarks:
            raise probe.broken(
                "it declares emits_watermarks, and no chunk has a watermark; omit emits_watermarks"
            )
        for limit in _LIMITS[:-1]:
            probe.same(found[limit], whole, f"reading at most {limit} at a time")
            self._same_rejected(bad[limit], bad[_LIMITS[-1]], f"reading at most {limit} at a time")
        if rejected is not None:
            self._same_rejected(bad[_LIMITS[-1]], list(rejected), "reading to the end")
        return whole

    def values(self, whole: dict[str, list[Record]], expected: Sequence[object] | None) -> None:
        values = [value for records in whole.values() for value, _ in records]
        if expected is None:
            if not values:
                raise self._probe.broken("it returns no record, so nothing was checked")
        elif values != list(expected):
            raise self._probe.broken(
                f"it returns {shown(values)} ({len(values)} records), expected was {shown(list(expected))} "
                f"({len(expected)} records)"
            )

    async def continuing(self, whole: dict[str, list[Record]]) -> None:
        """A reader that is opened at the position of a chunk returns the following records."""
        probe = self._probe
        for limit in (1, 7):
            for split, records in whole.items():
                done = 0
                pieces = await probe.pieces(probe.make(), split, None, limit)
                chosen = range(0, len(pieces), -(-len(pieces) // _MOST_POSITIONS) or 1)
                for index, piece in enumerate(pieces):
                    done += len(piece.records)
                    if index in chosen or index == len(pieces) - 1:
                        rest = flat(await probe.pieces(probe.make(), split, piece.position, 1024))
                        probe.same(
                            {split: rest},
                            {split: records[done:]},
                            f"continuing at position {shown(piece.position)}, after record {done},",
                        )

    async def reopening(self, whole: dict[str, list[Record]]) -> None:
        """Consecutive readers of one chunk each continue each other."""
        probe = self._probe
        for split, records in whole.items():
            found: list[Record] = []
            position: Position | None = None
            source = probe.make()
            for _ in range(_MOST_POSITIONS):
                async with probe.opened(source, split, position) as reader:
                    piece = await probe.read(source, split, reader, 2)
                if piece is None:
                    break
                found += piece.records
                position = piece.position
            else:
                found += flat(await probe.pieces(source, split, position, 1024))
            probe.same({split: found}, {split: records}, "with a new reader for each chunk")

    async def reading_at_once(self, whole: dict[str, list[Record]]) -> None:
        """Readers of different splits that alternate are independent, and each has its own watermarks."""
        probe = self._probe
        source = probe.make()
        found: dict[str, list[Record]] = {split: [] for split in whole}
        watermarks: dict[str, Timestamp | None] = dict.fromkeys(whole)
        readers = {split: await probe.reader(source, split, None) for split in whole}
        try:
            reading = dict(readers)
            while reading:
                for split, reader in list(reading.items()):
                    piece = await probe.read(source, split, reader, 1)
                    if piece is None:
                        del reading[split]
                    else:
                        found[split] += piece.records
                        watermarks[split] = probe.advanced(split, watermarks[split], piece)
        finally:
            for split, reader in readers.items():
                await probe.close(reader, split)
        probe.same(found, whole, "reading all splits at once")

    async def disturbing(self, whole: dict[str, list[Record]], disturb: Disturb) -> None:
        """While connections are cut, a reader waits and then returns the same records."""
        probe = self._probe
        source = probe.make()
        found: dict[str, list[Record]] = {}
        try:
            for split in whole:
                await cut(disturb)
                async with probe.opened(source, split, None) as reader:
                    pieces = await self._first_disturbed(source, split, reader, disturb)
                    pieces += await probe.rest(source, split, reader, 7)
                found[split] = flat(pieces)
        except AflowError as exc:
            raise probe.broken(
                f"with cut connections it fails ({exc}) instead of waiting and connecting again"
            ) from exc
        probe.same(found, whole, "while connections are cut,")

    async def _first_disturbed(
        self, source: Source[Any], split: str, reader: Reader[Any], disturb: Disturb
    ) -> list[ReadPiece]:
        """Return the first chunks: connections are cut before the first, while it is read, and before the second."""
        pieces: list[ReadPiece] = []
        await cut(disturb)
        for _ in range(2):
            piece = await while_cut(self._probe.read(source, split, reader, 2), disturb)
            if piece is None:
                break
            pieces.append(piece)
        return pieces

    async def closing(self) -> None:
        probe = self._probe
        for when, reads in (("before the first read", 0), ("after a read", 1)):
            async with (
                no_leftovers_of_block(f"{probe.name}: a reader closed {when}"),
                probe.first() as (source, split, reader),
            ):
                for _ in range(reads):
                    await probe.read(source, split, reader, 1)
        async with (
            no_leftovers_of_block(f"{probe.name}: a reader closed after a read was cancelled"),
            probe.first() as (source, split, reader),
        ):
            await self._cancelled_read(source, split, reader)
        async with no_leftovers_of_block(f"{probe.name}: a reader closed at the end"):
            source = probe.make()
            for split in await probe.ids(source):
                await probe.pieces(source, split, None, 1024)

    async def showing_nothing(self, secrets: Secrets) -> None:
        """Neither a plan nor the error for a position of another source shows a secret."""
        probe = self._probe
        flow = Flow("check")
        source = probe.make()
        records = flow.source(source, name="in")
        records.to(CollectSink[Any](), name="out")
        if source.dead_letters is not None:
            records.side(source.dead_letters).to(CollectSink[Any](), name="bad")
        secrets.check(probe.name, "the plan of a flow", flow.plan())
        source = probe.make()
        for split in await probe.ids(source):
            try:
                async with probe.opened(source, split, _FOREIGN) as reader:
                    probe.hide("repr() of a reader", reader)
                    await probe.read(source, split, reader, 1)
            except Exception as exc:
                secrets.check_error(probe.name, exc)

    async def _cancelled_read(self, source: Source[Any], split: str, reader: Reader[Any]) -> None:
        try:
            async with asyncio.timeout(0):  # cancels as soon as the read has to wait
                while await self._probe.read(source, split, reader, 1024) is not None:
                    pass
        except TimeoutError:
            pass  # the cancellation that is checked

    def _same_rejected(self, found: list[bytes], wanted: list[bytes], how: str) -> None:
        if found != wanted:
            raise self._probe.broken(
                f"{how} the bad records are {shown(found)} ({len(found)}) instead of {shown(wanted)} ({len(wanted)})"
            )
