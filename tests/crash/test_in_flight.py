"""Records in flight are processed, wherever their step is in the next attempt."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import pytest

import aflow as af
from aflow.testing import ScriptedSource, VirtualClock, run_flow, settle, virtual_time
from tests.runtime.checkpoints.ledger_sink import LedgerSink

Row: TypeAlias = tuple[int, int]

KEYS = 3


def in_order(splits: int, count: int, sink: af.Sink[Row]) -> af.Flow:
    """Something of each number, and of those of its key before it, in their order; through exchanges of both kinds.

    All numbers of a key are in one split.
    """
    flow = af.Flow("in order")
    scripts = {
        f"split {split}": [n for n in range(count) if _key(n) % splits == split]
        for split in range(splits)
    }
    numbers = flow.source(ScriptedSource.of_splits(scripts), name="numbers")
    keyed = numbers.map(_same, name="same").key_by(_key)
    keyed.fold(lambda: (0, 0), _next, name="folded").rebalance().to(sink, name="out")
    return flow


def expected(count: int) -> list[Row]:
    rows: list[Row] = [(0, 0)] * KEYS
    every: list[Row] = []
    for n in range(count):
        rows[_key(n)] = _next(rows[_key(n)], n)
        every.append(rows[_key(n)])
    return sorted(every)


def _key(n: int) -> int:
    return n % KEYS


def _same(n: int) -> int:
    return n


def _next(so_far: Row, n: int) -> Row:
    return _key(n), (so_far[1] * 31 + n) % 1_000_003


def checkpointing(folder: Path) -> af.Checkpointing:
    return af.Checkpointing(every=None, storage=folder, barriers=af.checkpoints.Unaligned())


def where_in_flight(flow: af.Flow, parallelism: int, options: af.Options, folder: Path) -> set[str]:
    """Run until everything is full, take a checkpoint and crash; the tasks to which records were in flight."""

    async def main() -> set[str]:
        job = flow.start(
            parallelism=parallelism,
            options=replace(options, clock=VirtualClock()),
            checkpointing=checkpointing(folder),
        )
        async with job:
            await settle()
            info = await job.checkpoint()
            await job.cancel()
        return {one.task.partition("[")[0] for one in info.subtasks if one.in_flight_records}

    return virtual_time.run(main)


@pytest.mark.parametrize(
    ("before", "after"),
    [(1, 1), (2, 1), (3, 1), (1, 3), (3, 2)],
    ids=lambda parallelism: str(parallelism),
)
@pytest.mark.parametrize("chaining", [True, False], ids=["then chained", "then unchained"])
def test_records_in_flight_are_all_there_and_in_order_when_the_next_attempt_has_other_tasks(
    before: int, after: int, chaining: bool, tmp_path: Path
) -> None:
    count, sink = 12_000, LedgerSink[Row](delay=1.0)
    unchained = af.Options(chaining=False, batch_records=64, channel_records=64)

    in_flight = where_in_flight(in_order(1, count, sink), before, unchained, tmp_path)
    sink.delay = 0.0
    run_flow(
        in_order(1, count, sink),
        parallelism=after,
        options=af.Options(chaining=chaining),
        checkpointing=checkpointing(tmp_path),
    )

    assert in_flight >= {"folded"}
    assert sorted(sink.values) == expected(count)


@pytest.mark.parametrize("chaining", [True, False], ids=["then chained", "then unchained"])
def test_records_of_a_key_keep_their_order_when_their_split_moves_to_another_subtask(
    chaining: bool, tmp_path: Path
) -> None:
    count, sink = 30_000, LedgerSink[Row](delay=1.0)
    deep = af.Options(chaining=False, batch_records=16, channel_records=1024)

    in_flight = where_in_flight(in_order(3, count, sink), 2, deep, tmp_path)
    sink.delay = 0.0
    run_flow(
        in_order(3, count, sink),
        parallelism=3,
        options=replace(deep, chaining=chaining),
        checkpointing=checkpointing(tmp_path),
    )

    assert in_flight >= {"folded"}
    assert sorted(sink.values) == expected(count)


@pytest.mark.parametrize("wait", [0.5, 5.0, 500.0])
def test_a_checkpoint_amid_restored_records_in_flight_loses_none(
    wait: float, tmp_path: Path
) -> None:
    count, sink = 12_000, LedgerSink[Row](delay=1.0)
    unchained = af.Options(chaining=False, batch_records=64, channel_records=64)
    where_in_flight(in_order(1, count, sink), 2, unchained, tmp_path)

    async def amid() -> None:
        flow, options = in_order(1, count, sink), af.Options(clock=VirtualClock())
        async with flow.start(checkpointing=checkpointing(tmp_path), options=options) as job:
            asked = asyncio.create_task(job.checkpoint())
            await asyncio.sleep(wait)
            await job.cancel()
            await asyncio.wait([asked])
            asked.exception()

    virtual_time.run(amid)
    sink.delay = 0.0
    run_flow(in_order(1, count, sink), checkpointing=checkpointing(tmp_path))

    assert sorted(sink.values) == expected(count)
