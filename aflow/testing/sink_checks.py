"""The contract of sinks as one check, for authors of connectors."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Generic, TypeVar

from aflow.connect import Delivery, Sink
from aflow.errors import FlowDefinitionError, shown
from aflow.testing.leftovers import no_leftovers_of_block
from aflow.testing.secret_checks import Secrets
from aflow.testing.sink_adversity_checks import SinkAdversityCheck
from aflow.testing.sink_checkpoint_checks import SinkCheckpointCheck
from aflow.testing.sink_probe import SinkProbe, Visible
from aflow.testing.time_limit import PATIENCE, check_not_async

S = TypeVar("S", bound=Sink[Any])


async def check_sink(
    make_sink: Callable[[], S],
    visible: Visible[S],
    records: Sequence[object],
    *,
    patience: timedelta = PATIENCE,
    disturb: Callable[[], object] | None = None,
    secrets: Sequence[str] = (),
) -> None:
    """Raise ``AssertionError`` if a sink breaks the contract of ``aflow.connect``; the message names the breach.

    ``make_sink`` makes a sink for a new, empty destination, many times; ``visible(sink)``, plain or ``async``, returns
    its visible records. It is called once for each sink, several times if the sink is transactional. ``records`` are at
    least six different values. No call may take longer than ``patience`` of loop time.

    Records must be visible after ``flush``, in order, and their batches unchanged. A writer that is closed without
    flush may show a prefix of its records, and the sink can be opened again. Writers of two subtasks are independent.
    ``close`` is possible after a cancelled write. An idempotent sink shows each record once, also if it was written
    twice.

    With checkpoints, no record may be missing after a crash and a restart. A sink that is not ``AT_LEAST_ONCE`` must
    show each record once, also after a restart with more or fewer writers. A transactional sink shows no record before
    ``commit``, no more after a second one, and after ``recover`` exactly the records that its checkpoint covers. It
    raises ``SinkError`` or ``RestoreError`` for a committable that it has not prepared.

    ``disturb``, plain or ``async``, cuts the connections of the sink, before and during writes and commits: records
    must be as visible as without. ``secrets`` must not occur in committables, plans, errors, log records or ``repr``;
    each has at least four characters.

    Afterwards no task, thread or open file may be left.
    """
    if len(records) < 6 or any(records.count(one) > 1 for one in records):
        raise FlowDefinitionError(
            f"check_sink needs at least six records that are all different, not {shown(list(records))}"
        )
    check_not_async(make_sink, "make_sink")
    hidden = Secrets(secrets)
    probe = SinkProbe(make_sink, visible, patience, hidden)
    with hidden.watched(probe.name):
        check = _SinkCheck(probe, list(records))
        # Without a check for leftovers: a library may open a resource at its first use and keep it.
        await check.writing()
        for scenario in (
            *check.scenarios(),
            *SinkCheckpointCheck(probe, list(records)).scenarios(),
            *_adversity(SinkAdversityCheck(probe, list(records)), probe, disturb, hidden),
        ):
            async with no_leftovers_of_block(probe.name):
                await scenario()


def _adversity(
    check: SinkAdversityCheck[S],
    probe: SinkProbe[S],
    disturb: Callable[[], object] | None,
    secrets: Secrets,
) -> Iterator[Callable[[], Awaitable[None]]]:
    """Yield the checks under adversity that are possible."""
    if probe.delivery is Delivery.TRANSACTIONAL:
        yield check.refusing
    if disturb is not None:
        yield partial(check.disturbed, disturb)
    if secrets:
        yield partial(check.showing_nothing, secrets)


class _SinkCheck(Generic[S]):
    """Checks of a sink in jobs without checkpoints."""

    def __init__(self, probe: SinkProbe[S], records: list[object]) -> None:
        self._probe = probe
        self._records = records

    def scenarios(self) -> Sequence[Callable[[], Awaitable[None]]]:
        """Return all checks."""
        scenarios = [
            self.writing,
            self._writing_nothing,
            self._failing,
            self._opening_again,
            self._cancelling,
            self._two_writers,
        ]
        if self._probe.delivery is Delivery.IDEMPOTENT:
            scenarios.append(self._writing_again)
        return scenarios

    async def writing(self) -> None:
        """Records are visible after ``flush``, in order."""
        probe = self._probe
        sink = probe.make()
        async with probe.opened(sink) as writer:
            await probe.write(writer, self._records)
            await probe.flush(writer)
            seen = await probe.seen(sink)
        if seen != self._records:
            raise probe.broken(
                f"after flush() {shown(seen)} ({len(seen)} records) is visible instead of the written records: "
                f"{shown(self._records)} ({len(self._records)} records)"
            )

    async def _writing_nothing(self) -> None:
        probe = self._probe
        sink = probe.make()
        async with probe.opened(sink) as writer:
            await probe.flush(writer)
        seen = await probe.seen(sink)
        if seen:
            raise probe.broken(f"no record was written, and {shown(seen)} is visible")

    async def _failing(self) -> None:
        probe = self._probe
        sink = probe.make()
        async with probe.opened(sink) as writer:
            await probe.write(writer, self._records)
        seen = await probe.seen(sink)
        if seen != self._records[: len(seen)]:
            raise probe.broken(
                f"after close() without flush() {shown(seen)} is visible, not a prefix of the written records"
            )

    async def _opening_again(self) -> None:
        """After a failure the same sink is opened again; output of the failed attempt may be visible too."""
        probe = self._probe
        sink = probe.make()
        half = self._records[: len(self._records) // 2]
        async with probe.opened(sink) as writer:
            await probe.write(writer, half)
        async with probe.opened(sink) as writer:
            await probe.write(writer, self._records)
            await probe.flush(writer)
        seen = await probe.seen(sink)
        before = seen[: -len(self._records)]
        if seen[-len(self._records) :] != self._records or before != half[: len(before)]:
            raise probe.broken(
                f"opened again after a failure, {shown(seen)} is visible, which does not end with the records "
                f"written then: {shown(self._records)}"
            )

    async def _writing_again(self) -> None:
        """Records that are written again replace those of the first run."""
        probe = self._probe
        sink = probe.make()
        for _ in range(2):
            async with probe.opened(sink) as writer:
                await probe.write(writer, self._records)
                await probe.flush(writer)
        await probe.expect(
            sink, self._records, "after the same records were written again to an idempotent sink,"
        )

    async def _cancelling(self) -> None:
        probe = self._probe
        async with probe.opened(probe.make()) as writer:
            try:
                async with asyncio.timeout(0):  # cancels as soon as a write has to wait
                    await probe.write(writer, self._records)
            except TimeoutError:
                pass  # the cancellation that is checked

    async def _two_writers(self) -> None:
        probe = self._probe
        sink = probe.make()
        halves = self._records[::2], self._records[1::2]
        async with (
            probe.opened(sink, subtask=0, parallelism=2) as first,
            probe.opened(sink, subtask=1, parallelism=2) as second,
        ):
            for record in range(len(halves[0])):
                await probe.write(first, halves[0][record : record + 1])
                await probe.write(second, halves[1][record : record + 1])
            await probe.flush(first)
            await probe.flush(second)
        seen = await probe.seen(sink)
        for half in halves:
            if [one for one in seen if one in half] != half:
                raise probe.broken(
                    f"of two writers, one wrote {shown(half)}, and {shown(seen)} is visible: its records are missing, "
                    f"duplicated, or out of order"
                )
        if len(seen) != len(self._records):
            raise probe.broken(
                f"two writers wrote {len(self._records)} records, {shown(seen)} is visible"
            )
