"""Statistics of checkpoints: durations, records in flight, bytes, and the length of the history."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

import pytest

import aflow as af
from aflow.runtime.checkpoints.directory.storage import DirectoryStorage
from aflow.state.manifest import FileRef
from aflow.state.snapshot import OperatorSnapshot
from aflow.testing import Crash, Pause, ScriptedSource, VirtualClock
from aflow.testing.virtual_time import settle, virtual_time
from tests.runtime.checkpoints.ledger_sink import LedgerSink

HOUR = Pause(timedelta(hours=1))


def virtual() -> af.Options:
    return af.Options(clock=VirtualClock())


class SlowParts(DirectoryStorage):
    """Each part takes four virtual seconds."""

    async def write_part(
        self, checkpoint: int, task: str, subtask: int, steps: Mapping[str, OperatorSnapshot]
    ) -> FileRef:
        await asyncio.sleep(4)
        return await super().write_part(checkpoint, task, subtask, steps)


def slow_sink(delay: float) -> af.Flow:
    """Send eight records, one a batch, to a sink that takes ``delay`` seconds for each."""
    flow = af.Flow("slow sink")
    numbers = flow.source(
        ScriptedSource[int](
            *[x for n in range(8) for x in (n, Pause(timedelta(milliseconds=1)))], HOUR
        ),
        name="numbers",
    )
    numbers.to(LedgerSink[int](delay=delay), name="out")
    return flow


def on_request(
    storage: Path | DirectoryStorage,
    barriers: af.checkpoints.Aligned | af.checkpoints.Unaligned | None = None,
) -> af.Checkpointing:
    return af.Checkpointing(
        every=None, storage=storage, barriers=barriers or af.checkpoints.Aligned()
    )


@virtual_time
async def test_the_time_of_storing_is_separate_from_the_pause(tmp_path: Path) -> None:
    async with slow_sink(0).start(
        options=virtual(), checkpointing=on_request(SlowParts(tmp_path))
    ) as job:
        await asyncio.sleep(1)
        info = await job.checkpoint()
        await job.cancel()

    assert (info.triggered_at, info.duration_ms) == (1000, 4000)
    assert [one.async_ms for one in info.subtasks] == [4000]
    assert [one.sync_ms for one in info.subtasks] == [0]
    assert all(one.bytes > 0 for one in info.subtasks)
    assert info.bytes == sum(one.bytes for one in info.subtasks)
    assert info.bytes == sum(path.stat().st_size for path in (tmp_path / "parts").iterdir())


@virtual_time
async def test_an_aligned_checkpoint_waits_for_the_writer_and_has_nothing_in_flight(
    tmp_path: Path,
) -> None:
    async with slow_sink(10).start(options=virtual(), checkpointing=on_request(tmp_path)) as job:
        await asyncio.sleep(1)
        info = await job.checkpoint()
        await job.cancel()

    assert info.duration_ms is not None
    assert info.duration_ms >= 9000  # at least the batch that is being written
    assert sum(one.in_flight_records + one.in_flight_bytes for one in info.subtasks) == 0
    assert not any(one.unaligned for one in info.subtasks)


@virtual_time
async def test_an_unaligned_checkpoint_tells_how_much_it_has_overtaken(tmp_path: Path) -> None:
    async with slow_sink(10).start(
        options=virtual(), checkpointing=on_request(tmp_path, af.checkpoints.Unaligned())
    ) as job:
        await asyncio.sleep(1)
        info = await job.checkpoint()
        waiting = 8 - job.metrics().steps["out"].records_in
        metrics = job.metrics().checkpoints
        await job.cancel()

    [out] = [one for one in info.subtasks if one.in_flight_records]
    assert out.task == "numbers[0]"  # the sink is chained to it
    assert out.unaligned
    assert 0 < out.in_flight_bytes < out.bytes
    assert out.in_flight_records == 8  # the batch that is being written included
    assert waiting == 0  # a sink counts what it was given
    assert (metrics.completed, metrics.failed) == (1, 0)
    assert (metrics.last_bytes, metrics.last_duration_ms) == (info.bytes, info.duration_ms)
    assert metrics.last_in_flight_records == out.in_flight_records
    assert metrics.last_in_flight_bytes == out.in_flight_bytes


@virtual_time
async def test_of_long_ago_checkpoints_and_restarts_nothing_is_remembered(tmp_path: Path) -> None:
    lines = [x for n in range(150) for x in (n, Pause(timedelta(seconds=1)))]
    flow = af.Flow("long")
    flow.source(ScriptedSource[int](*lines), name="numbers").to(LedgerSink(), name="out")

    async with flow.start(
        options=virtual(),
        checkpointing=af.Checkpointing(every=timedelta(seconds=1), storage=tmp_path),
    ) as job:
        await job.wait()

    assert len(job.checkpoints) == 100
    assert [one.id for one in job.checkpoints] == sorted(one.id for one in job.checkpoints)
    assert job.checkpoints[-1].id >= 149


@virtual_time
async def test_restarts_of_long_ago_are_forgotten_too(tmp_path: Path) -> None:
    flow = af.Flow("crashes")
    flow.source(ScriptedSource[int](*[Crash()] * 150, 1), name="numbers").to(
        LedgerSink(), name="out"
    )

    async with flow.start(
        options=virtual(),
        checkpointing=on_request(tmp_path),
        restart=af.restart.FixedDelay(1000, timedelta(0)),
    ) as job:
        await job.wait()

    assert len(job.restarts) == 100
    assert job.restarts[-1].attempt == 150
    assert job.metrics().restarts == 150


@virtual_time
async def test_counters_begin_anew_with_each_restart(tmp_path: Path) -> None:
    flow = af.Flow("again")
    source = ScriptedSource[int](1, 2, 3, Pause(timedelta(seconds=5)), Crash(), 4)
    flow.source(source, name="numbers").to(LedgerSink(), name="out")

    async with flow.start(
        options=virtual(),
        checkpointing=af.Checkpointing(every=timedelta(seconds=1), storage=tmp_path),
        restart=af.restart.FixedDelay(1, timedelta(0)),
    ) as job:
        await job.wait()

    assert job.metrics().steps["out"].records_in == 1


@virtual_time
async def test_a_restart_finds_a_checkpoint_that_has_left_the_history(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aflow.runtime.checkpoints.statistics._HISTORY", 1)
    source, counts = af.PushSource[int](), list[int]()
    flow = af.Flow("long history")
    checked = flow.source(source, name="numbers").map(lambda number: 1 // number, name="check")
    keyed = checked.key_by(lambda number: number)
    counted = keyed.fold(int, lambda count, _: count + 1, name="count")
    counted.to(af.CallbackSink(counts.append), name="out")
    restart = af.restart.FixedDelay(1, timedelta(seconds=1))
    start = af.checkpoints.StartFrom.FRESH
    async with flow.start(
        checkpointing=on_request(tmp_path / "own"), restart=restart, restore=start
    ) as job:
        await source.send(1)
        await settle()
        await job.checkpoint()
        await job.savepoint(tmp_path / "savepoint")  # the only one in the history
        await source.send(0)
        await asyncio.sleep(2)
        await job.ready()
        await source.send(1)

    assert counts == [1, 2]
