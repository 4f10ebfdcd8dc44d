"""The contract of sinks in jobs that take checkpoints."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from aflow.connect import Committable, Delivery, Sink
from aflow.errors import shown
from aflow.testing.sink_probe import SinkProbe

S = TypeVar("S", bound=Sink[Any])


class SinkCheckpointCheck(Generic[S]):
    """Checks of a sink in jobs with checkpoints. A crash closes a writer before its ``flush``; ``recover`` follows."""

    def __init__(self, probe: SinkProbe[S], records: list[object]) -> None:
        self._probe = probe
        self._records = records
        size = len(records) // 4 or 1
        #: The records before the first checkpoint, between it and the second, up to the third, and after that.
        self._epochs = [records[n * size : (n + 1) * size] for n in range(3)]
        self._epochs.append(records[3 * size :])

    def scenarios(self) -> Sequence[Callable[[], Awaitable[None]]]:
        """Return all checks of sinks with this delivery."""
        scenarios = [self._running]
        if self._probe.delivery is Delivery.AT_LEAST_ONCE:
            return [*scenarios, self._losing_nothing]
        rescaling = [partial(self._rescaling, *steps) for steps in ((1, 1), (2, 1), (1, 3))]
        if self._probe.delivery is Delivery.IDEMPOTENT:
            return [*scenarios, *rescaling]
        return [
            *scenarios,
            *rescaling,
            self._committing,
            self._committing_late,
            self._recovering,
            self._starting_again,
        ]

    async def _running(self) -> None:
        """All records are visible at the end, in order, also with a checkpoint without records."""
        probe = self._probe
        sink = probe.make()
        await probe.recover(sink, [])
        async with probe.all_opened(sink, 1) as (writer,):
            for checkpoint, records in enumerate([*self._epochs, []], start=1):
                await probe.write(writer, records)
                await probe.commit(writer, await probe.prepare(writer, checkpoint))
            await probe.flush(writer)
        await probe.expect(sink, self._records, "at the end of a job with checkpoints")

    async def _losing_nothing(self) -> None:
        probe = self._probe
        sink = probe.make()
        before, lost, *rest = self._epochs
        await probe.recover(sink, [])
        async with probe.all_opened(sink, 1) as (writer,):
            await probe.write(writer, before)
            committables = await probe.prepare(writer, 1)
            await probe.write(writer, lost)
        await probe.recover(sink, committables)
        async with probe.all_opened(sink, 1) as (writer,):
            await probe.write(writer, [one for records in (lost, *rest) for one in records])
            await probe.commit(writer, await probe.prepare(writer, 2))
            await probe.flush(writer)
        seen = await probe.seen(sink)
        missing = [one for one in self._records if one not in seen]
        if missing:
            raise probe.broken(
                f"after a crash and a restart from a checkpoint, {shown(missing)} is missing: "
                f"prepare() returns only when all written records are durable"
            )

    async def _rescaling(self, before: int, after: int) -> None:
        """After a restart with another number of writers each record is visible once, those of a writer in order."""
        probe = self._probe
        sink = probe.make()
        covered, lost, *rest = self._epochs
        again = [one for records in (lost, *rest) for one in records]
        committables: list[Committable] = []
        await probe.recover(sink, [])
        async with probe.all_opened(sink, before) as writers:
            for number, writer in enumerate(writers):
                await probe.write(writer, covered[number::before])
            for writer in writers:
                committables += await probe.prepare(writer, 1)
            for number, writer in enumerate(writers):
                await probe.write(writer, lost[number::before])
        await probe.recover(sink, committables)
        async with probe.all_opened(sink, after) as writers:
            for number, writer in enumerate(writers):
                await probe.write(writer, again[number::after])
            for writer in writers:
                await probe.commit(writer, await probe.prepare(writer, 2))
            for writer in writers:
                await probe.flush(writer)
        how = f"after a crash of {before} writers, continued with {after},"
        shares = [covered[n::before] for n in range(before)] + [
            again[n::after] for n in range(after)
        ]
        self._each_once(await probe.seen(sink), shares, how)

    async def _committing(self) -> None:
        """Prepared records are visible after their commit, and later ones are not."""
        probe = self._probe
        sink = probe.make()
        first, second, *_ = self._epochs
        await probe.recover(sink, [])
        async with probe.all_opened(sink, 1) as (writer,):
            await probe.write(writer, first)
            await probe.expect(sink, [], "before the first checkpoint")
            committables = await probe.prepare(writer, 1)
            await probe.write(writer, second)
            await probe.expect(sink, [], "after prepare() and before commit()")
            await probe.commit(writer, committables)
            await probe.expect(sink, first, "after commit()")
            await probe.commit(writer, committables)
            await probe.expect(sink, first, "after commit() for the second time")
            later = await probe.prepare(writer, 2)
            await probe.expect(sink, first, "after the next prepare()")
            await probe.commit(writer, later)
            await probe.expect(sink, first + second, "after the next commit()")

    async def _committing_late(self) -> None:
        """The output of a checkpoint that failed is committed with the next one."""
        probe = self._probe
        sink = probe.make()
        first, second, *_ = self._epochs
        await probe.recover(sink, [])
        async with probe.all_opened(sink, 1) as (writer,):
            committables: list[Committable] = []
            for checkpoint, records in ((1, first), (2, second)):
                await probe.write(writer, records)
                committables += await probe.prepare(writer, checkpoint)
            await probe.commit(writer, committables)
        await probe.expect(
            sink, first + second, "after commit() of two checkpoints, one after the other,"
        )

    async def _recovering(self) -> None:
        """After a crash exactly the records of the checkpoint are visible, after each of several recoveries."""
        probe = self._probe
        first, second, third, fourth = self._epochs
        for given in ("the second alone", "both"):
            sink = probe.make()
            await probe.recover(sink, [])
            async with probe.all_opened(sink, 1) as (writer,):
                await probe.write(writer, first)
                committed = await probe.prepare(writer, 1)
                await probe.commit(writer, committed)
                await probe.write(writer, second)
                waiting = await probe.prepare(writer, 2)
                await probe.write(writer, third)
                await probe.prepare(writer, 3)
                await probe.write(writer, fourth)
            covering = waiting if given == "the second alone" else committed + waiting
            when = f"after recover() from two checkpoints (with the committables of {given}),"
            for times in ("", " twice"):
                await probe.recover(sink, covering)
                await probe.expect(sink, first + second, when + times)
            async with probe.all_opened(sink, 1) as (writer,):
                await probe.write(writer, third + fourth)
                await probe.commit(writer, await probe.prepare(writer, 4))
                await probe.flush(writer)
            await probe.expect(sink, self._records, f"{when} and continuing to the end,")

    async def _starting_again(self) -> None:
        """No record is visible of a job that crashed before its first checkpoint was complete."""
        probe = self._probe
        sink = probe.make()
        await probe.recover(sink, [])
        async with probe.all_opened(sink, 1) as (writer,):
            await probe.write(writer, self._epochs[0])
            await probe.prepare(writer, 1)
            await probe.write(writer, self._epochs[1])
        await probe.recover(sink, [])
        await probe.expect(sink, [], "after recover() without a checkpoint to continue from")
        async with probe.all_opened(sink, 1) as (writer,):
            await probe.write(writer, self._records)
            await probe.commit(writer, await probe.prepare(writer, 2))
            await probe.flush(writer)
        await probe.expect(sink, self._records, "after a second start")

    def _each_once(self, seen: list[object], shares: list[list[object]], how: str) -> None:
        for share in shares:
            if [one for one in seen if one in share] != share:
                raise self._probe.broken(
                    f"{how} {shown(share)} of one writer is missing, duplicated, or out of order in {shown(seen)}"
                )
        if len(seen) != sum(map(len, shares)):
            raise self._probe.broken(
                f"{how} more records are visible than were written: {shown(seen)}"
            )
