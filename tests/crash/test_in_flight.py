"""Records in flight go on, wherever their step is in the next attempt."""

from __future__ import annotations

from pathlib import Path
from typing import TypeAlias

import pytest

import aflow as af
from aflow.testing import ScriptedSource, VirtualClock, run_flow, settle, virtual_time
from tests.runtime.checkpoints.ledger_sink import LedgerSink

Row: TypeAlias = tuple[int, int]

#: More than writers and channels take, so that all of them are full at the checkpoint.
NUMBERS = 12_000


def in_order(sink: af.Sink[Row]) -> af.Flow:
    """Something of each number, and of those of its key before it, in their order; through exchanges of both kinds."""
    flow = af.Flow("in order")
    numbers = flow.source(ScriptedSource[int](*range(NUMBERS)), name="numbers")
    keyed = numbers.map(_same, name="same").key_by(_key)
    keyed.fold(lambda: (0, 0), _next, name="folded").rebalance().to(sink, name="out")
    return flow


def expected() -> list[Row]:
    rows: list[Row] = [(0, 0)] * 3
    every: list[Row] = []
    for n in range(NUMBERS):
        rows[_key(n)] = _next(rows[_key(n)], n)
        every.append(rows[_key(n)])
    return sorted(every)


def _key(n: int) -> int:
    return n % 3


def _same(n: int) -> int:
    return n


def _next(so_far: Row, n: int) -> Row:
    return _key(n), (so_far[1] * 31 + n) % 1_000_003


def options(*, chaining: bool) -> af.Options:
    return af.Options(clock=VirtualClock(), chaining=chaining, batch_records=64, channel_records=64)


def checkpointing(folder: Path) -> af.Checkpointing:
    return af.Checkpointing(every=None, storage=folder, barriers=af.Unaligned())


@pytest.mark.parametrize(
    ("before", "after"),
    [(1, 1), (2, 1), (3, 1), (1, 3), (3, 2)],
    ids=lambda parallelism: str(parallelism),
)
@pytest.mark.parametrize("chaining", [True, False], ids=["then chained", "then unchained"])
def test_records_in_flight_are_all_there_and_in_order_when_the_next_attempt_has_other_tasks(
    before: int, after: int, chaining: bool, tmp_path: Path
) -> None:
    sink = LedgerSink[Row](delay=1.0)

    async def checkpoint_and_crash() -> dict[str, int]:
        job = in_order(sink).start(
            parallelism=before,
            options=options(chaining=False),
            checkpointing=checkpointing(tmp_path),
        )
        async with job:
            await settle()
            info = await job.checkpoint()
            await job.cancel()
        return {one.task: one.in_flight_records for one in info.subtasks}

    in_flight = virtual_time.run(checkpoint_and_crash)
    sink.delay = 0.0
    run_flow(
        in_order(sink),
        parallelism=after,
        options=af.Options(chaining=chaining),
        checkpointing=checkpointing(tmp_path),
    )

    assert {task.partition("[")[0] for task, records in in_flight.items() if records} >= {"folded"}
    assert sorted(sink.values) == expected()
