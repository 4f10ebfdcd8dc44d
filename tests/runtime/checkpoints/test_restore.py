"""Jobs that continue from a checkpoint: after a failure, after the program has ended, from a savepoint."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

import pytest

import aflow as af
from aflow.connect import Chunk, Position, Reader, Source, Split
from aflow.runtime.checkpoints.settings import Barriers
from aflow.testing import Crash, Pause, ScriptedSource, run_flow
from aflow.testing.virtual_time import VirtualClock, virtual_time
from tests.runtime.checkpoints.ledger_sink import LedgerSink

SECOND = timedelta(seconds=1)
AT_ONCE = af.restart.FixedDelay(10, timedelta(0))

MODES: dict[str, Barriers] = {
    "aligned": af.checkpoints.Aligned(),
    "alternating": af.checkpoints.Aligned(timeout=timedelta(milliseconds=50)),
    "unaligned": af.checkpoints.Unaligned(),
}


def every_second(folder: Path, barriers: Barriers | None = None) -> af.Checkpointing:
    return af.Checkpointing(
        every=SECOND, storage=folder, barriers=barriers or af.checkpoints.Aligned()
    )


def summing(source: Source[int], sink: af.Sink[int]) -> af.Flow:
    """Running sums of even and odd numbers."""
    flow = af.Flow("sums")
    numbers = flow.source(source, name="numbers").key_by(lambda n: n % 2)
    numbers.fold(int, lambda total, n: total + n, name="sum").to(sink, name="out")
    return flow


def seconds(number: float) -> Pause:
    return Pause(timedelta(seconds=number))


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("mode", MODES)
def test_after_a_failure_nothing_is_lost_and_nothing_doubled(
    tmp_path: Path, mode: str, parallelism: int
) -> None:
    lines: list[int | Pause | Crash] = [
        1,
        3,
        seconds(2.5),
        5,
        7,
        seconds(0.2),
        Crash(),
        9,
        seconds(2),
        11,
        Crash(),
        13,
    ]
    sink = LedgerSink[int]()

    run_flow(
        summing(ScriptedSource[int](*lines), sink),
        parallelism=parallelism,
        checkpointing=every_second(tmp_path, MODES[mode]),
        restart=AT_ONCE,
    )

    assert sink.values == [1, 4, 9, 16, 25, 36, 49]


@pytest.mark.parametrize("parallelism", [1, 2])
def test_at_least_once_nothing_is_lost_after_a_failure(tmp_path: Path, parallelism: int) -> None:
    sink = LedgerSink[list[int]]()
    flow = af.Flow("two")
    fast = flow.source(ScriptedSource(*range(0, 40, 2), seconds(2.5), 40, 42), name="fast")
    slow = flow.source(ScriptedSource(1, seconds(1.5), 3, seconds(1.2), Crash(), 5), name="slow")
    numbers = fast.union(slow).key_by(lambda n: n % 2)
    numbers.fold(list[int], lambda seen, n: [*seen, n], name="seen").to(sink, name="out")
    checkpointing = af.Checkpointing(
        every=SECOND, storage=tmp_path, guarantee=af.checkpoints.ProcessingGuarantee.AT_LEAST_ONCE
    )

    run_flow(flow, parallelism=parallelism, checkpointing=checkpointing, restart=AT_ONCE)

    evens, odds = ([seen for seen in sink.values if seen[0] % 2 == rest] for rest in (0, 1))
    assert set(evens[-1]) == set(range(0, 44, 2))  # some may be there twice
    assert set(odds[-1]) == {1, 3, 5}


def test_another_run_of_the_program_continues_from_the_last_one(tmp_path: Path) -> None:
    sink, settings = LedgerSink[int](), every_second(tmp_path)
    source = ScriptedSource[int](1, 3, seconds(1.5), 5, Crash(), 7)

    with pytest.raises(af.errors.SourceError):
        run_flow(summing(source, sink), checkpointing=settings)
    assert sink.values == [1, 4]

    run_flow(summing(source, sink), checkpointing=settings)
    assert sink.values == [1, 4, 9, 16]


def test_with_restore_nothing_a_job_begins_at_the_beginning(tmp_path: Path) -> None:
    first, second = LedgerSink[int](), LedgerSink[int]()
    run_flow(summing(ScriptedSource(1, 3), first), checkpointing=every_second(tmp_path))

    run_flow(
        summing(ScriptedSource(1, 3), second),
        checkpointing=every_second(tmp_path),
        restore="fresh",
    )

    assert second.values == [1, 4]


def test_a_job_that_had_read_everything_has_nothing_left_to_do(tmp_path: Path) -> None:
    sink, source = LedgerSink[int](), ScriptedSource(1, 3)
    run_flow(summing(source, sink), checkpointing=every_second(tmp_path))

    run_flow(summing(source, sink), checkpointing=every_second(tmp_path))

    assert sink.values == [1, 4]


def test_the_end_of_the_input_commits_records_since_the_last_checkpoint(tmp_path: Path) -> None:
    sink = LedgerSink[int]()

    run_flow(summing(ScriptedSource(1, 3), sink), checkpointing=every_second(tmp_path))

    assert sink.values == [1, 4]
    assert sink.asked == ["recover", "prepare", "commit", "flush"]


def test_checkpoints_continue_after_one_of_two_sources_has_ended(tmp_path: Path) -> None:
    sink, completed = LedgerSink[int](), list[af.checkpoints.CheckpointInfo]()
    flow = af.Flow("two")
    short = flow.source(ScriptedSource(1), name="short")
    long = flow.source(ScriptedSource(seconds(3.5), 2, Crash(), seconds(0.1), 3), name="long")
    joined = short.union(long).key_by(lambda n: 0)
    joined.fold(int, lambda total, n: total + n, name="sum").to(sink, name="out")

    run_flow(
        flow,
        checkpointing=every_second(tmp_path),
        restart=AT_ONCE,
        on_event=lambda event: _keep(event, completed),
    )

    assert len(completed) >= 4  # three while only one source ran, and the last one
    assert sink.values == [1, 3, 6]


def _keep(event: af.JobEvent, kept: list[af.checkpoints.CheckpointInfo]) -> None:
    if (
        isinstance(event, af.checkpoints.CheckpointInfo)
        and event.outcome is af.checkpoints.Outcome.COMPLETED
    ):
        kept.append(event)


def test_open_windows_continue(tmp_path: Path) -> None:
    sink = LedgerSink[tuple[int, int]]()
    flow = af.Flow("windows")
    records = ScriptedSource[int](1_000, 2_000, seconds(1.5), 3_000, Crash(), 14_000, 25_000)
    timed = flow.source(records, name="records").event_time(lambda at: at, name="time")
    windows = timed.key_by(lambda at: "all").window(af.Tumbling(timedelta(seconds=10)))
    counts = windows.fold(int, lambda count, _: count + 1, name="count")
    counts.map(lambda one: (one.window.start, one.value)).to(sink, name="out")

    run_flow(flow, checkpointing=every_second(tmp_path), restart=AT_ONCE)

    assert sink.values == [(0, 3), (10_000, 1), (20_000, 1)]


class Chunked(Source[int]):
    """Returns chunks much larger than a batch, and fails once when the second one is read."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.failed = False

    async def splits(self) -> Sequence[Split]:
        return [Split("all")]

    async def reader(self, split: Split, position: Position | None) -> Reader[int]:
        return _ChunkedReader(self, position if isinstance(position, int) else 0)


class _ChunkedReader(Reader[int]):
    def __init__(self, source: Chunked, chunk: int) -> None:
        self._source = source
        self._chunk = chunk

    async def read(self, limit: int) -> Chunk[int] | None:
        if self._chunk == 1 and not self._source.failed:
            await asyncio.sleep(10)
            self._source.failed = True
            raise ConnectionError("gone")
        if self._chunk == 2:
            return None
        start = self._chunk * self._source.size
        self._chunk += 1
        return Chunk(range(start, start + self._source.size), self._chunk)


def test_a_chunk_that_is_larger_than_a_batch_may_be_cut_by_a_checkpoint(tmp_path: Path) -> None:
    sink, flow = LedgerSink[int](delay=0.4), af.Flow("chunks")
    flow.source(Chunked(100), name="chunks").rebalance().to(sink, name="out")

    run_flow(
        flow,
        options=af.Options(batch_records=10, channel_records=10),
        checkpointing=every_second(tmp_path, af.checkpoints.Unaligned()),
        restart=AT_ONCE,
    )

    assert sorted(sink.values) == list(range(200))


def test_the_host_sees_each_restart_and_its_cause(tmp_path: Path) -> None:
    seen = list[af.JobEvent]()
    source = ScriptedSource[int](1, seconds(1.5), Crash(ConnectionError("lost")), 3)

    run_flow(
        summing(source, LedgerSink[int]()),
        checkpointing=every_second(tmp_path),
        restart=af.restart.FixedDelay(1, timedelta(seconds=3)),
        on_event=seen.append,
    )

    restarting = next(event for event in seen if isinstance(event, af.restart.JobRestarted))
    restoring = next(event for event in seen if isinstance(event, af.restart.JobRestored))
    assert "lost" in str(restarting.cause)
    assert (restarting.attempt, restarting.delay_ms) == (1, 3000)
    assert restoring.checkpoint == 1


def test_when_the_budget_is_spent_the_host_gets_the_cause_and_why_it_is_over(
    tmp_path: Path,
) -> None:
    source = ScriptedSource[int](1, Crash(), Crash(), Crash())

    with pytest.raises(af.errors.SourceError, match="a crash of the script") as caught:
        run_flow(
            summing(source, LedgerSink[int]()),
            checkpointing=every_second(tmp_path),
            restart=af.restart.FixedDelay(2, timedelta(0)),
        )

    assert "not restarted" in "".join(caught.value.__notes__)


def test_a_job_without_checkpoints_may_be_restarted_too_and_begins_at_the_beginning() -> None:
    sink = af.CollectSink[int]()

    run_flow(summing(ScriptedSource(1, Crash(), 3), sink), restart=AT_ONCE)

    assert sink.values == [1, 1, 4]


def test_an_error_of_the_pipeline_is_not_retried(tmp_path: Path) -> None:
    restarts = list[af.JobEvent]()
    run_flow(summing(ScriptedSource(1), LedgerSink()), checkpointing=every_second(tmp_path))

    with pytest.raises(af.RestoreError, match="key groups"):
        run_flow(
            summing(ScriptedSource(1), LedgerSink()),
            options=af.Options(key_groups=64),
            checkpointing=every_second(tmp_path),
            restart=AT_ONCE,
            on_event=restarts.append,
        )

    assert not any(isinstance(event, af.restart.JobRestarted) for event in restarts)


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 1), (2, 3)])
@virtual_time
async def test_a_savepoint_can_be_gone_on_from_with_another_parallelism(
    tmp_path: Path, before: int, after: int
) -> None:
    sink, source = LedgerSink[int](), ScriptedSource[int](*range(20), seconds(60), *range(20, 40))
    settings = every_second(tmp_path / "first")
    async with summing(source, sink).start(parallelism=before, checkpointing=settings) as job:
        await asyncio.sleep(1.5)
        info = await job.savepoint(tmp_path / "sp")
        await job.cancel()
    assert info.path == str(tmp_path / "sp")

    await summing(source, sink).run(
        parallelism=after,
        checkpointing=every_second(tmp_path / "second"),
        restore=tmp_path / "sp",
    )

    once = LedgerSink[int]()
    await summing(ScriptedSource[int](*range(40)), once).run(
        checkpointing=every_second(tmp_path / "third")
    )
    assert sorted(sink.values) == sorted(once.values)


@virtual_time
async def test_a_savepoint_commits_nothing_since_no_failure_falls_back_upon_it(
    tmp_path: Path,
) -> None:
    sink, source = LedgerSink[int](), ScriptedSource[int](1, 3, seconds(60))
    settings = af.Checkpointing(every=None, storage=tmp_path / "checkpoints")

    async with summing(source, sink).start(checkpointing=settings) as job:
        await asyncio.sleep(1)
        await job.savepoint(tmp_path / "sp")
        await asyncio.sleep(1)
        seen = list(sink.values)
        await job.checkpoint()
        await asyncio.sleep(1)

        assert seen == []
        assert sink.values == [1, 4]
        await job.cancel()


@virtual_time
async def test_a_stop_without_drain_leaves_windows_to_the_next_run(tmp_path: Path) -> None:
    sink, pushed = LedgerSink[int](), af.PushSource[int]()

    def build(source: Source[int]) -> af.Flow:
        flow = af.Flow("windows")
        timed = flow.source(source, name="records").event_time(lambda at: at, name="time")
        windows = timed.key_by(lambda at: "all").window(af.Tumbling(timedelta(seconds=10)))
        counts = windows.fold(int, lambda count, _: count + 1, name="count")
        counts.map(lambda one: one.value, name="value").to(sink, name="out")
        return flow

    async with build(pushed).start(checkpointing=every_second(tmp_path)) as job:
        await pushed.send(1000)
        await pushed.send(2000)
        await job.stop()
    assert sink.values == []

    later = af.PushSource[int]()
    async with build(later).start(checkpointing=every_second(tmp_path)) as job:
        await later.send(3000)
        await job.stop(drain=True)
    assert sink.values == [3]


@virtual_time
async def test_a_savepoint_needs_a_job_with_checkpointing(tmp_path: Path) -> None:
    async with summing(ScriptedSource(seconds(9)), LedgerSink()).start() as job:
        with pytest.raises(af.FlowDefinitionError, match="checkpointing=Checkpointing"):
            await job.savepoint(tmp_path / "sp")
        await job.cancel()


@virtual_time
async def test_a_job_that_has_ended_takes_no_savepoint(tmp_path: Path) -> None:
    async with summing(ScriptedSource(1), LedgerSink()).start(
        checkpointing=every_second(tmp_path / "checkpoints")
    ) as job:
        await job.wait()

        with pytest.raises(af.JobStopped, match="is not running"):
            await job.savepoint(tmp_path / "sp")


def test_two_live_jobs_cannot_share_a_folder(tmp_path: Path) -> None:
    @virtual_time
    async def both() -> None:
        first = summing(ScriptedSource(seconds(60)), LedgerSink())
        async with first.start(checkpointing=every_second(tmp_path)) as job:
            with pytest.raises(af.CheckpointError, match=str(tmp_path)):
                await summing(ScriptedSource(1), LedgerSink()).run(
                    checkpointing=every_second(tmp_path)
                )
            await job.cancel()

    both()


def test_state_that_cannot_be_stored_fails_the_job_and_says_which(tmp_path: Path) -> None:
    flow = af.Flow("objects")
    things = flow.source(ScriptedSource[int](1, seconds(5)), name="numbers").key_by(lambda n: n)
    things.fold(object, lambda held, _: held, name="things").to(LedgerSink(), name="out")

    with pytest.raises(af.CheckpointError, match=r"step 'things'.*declare of="):
        run_flow(flow, checkpointing=every_second(tmp_path))


def test_state_without_a_place_in_the_pipeline_is_not_dropped_unasked(tmp_path: Path) -> None:
    def build(name: str) -> af.Flow:
        flow = af.Flow("sums")
        keyed = flow.source(ScriptedSource(1, 2), name="numbers").key_by(lambda n: n % 2)
        keyed.fold(int, lambda total, n: total + n, name=name).to(LedgerSink(), name="out")
        return flow

    run_flow(build("old"), checkpointing=every_second(tmp_path))

    with pytest.raises(af.RestoreError, match=r"(?s)old.*allow_dropped_state=True"):
        run_flow(build("new"), checkpointing=every_second(tmp_path))
    asyncio.run(build("new").run(checkpointing=every_second(tmp_path), allow_dropped_state=True))


@virtual_time
async def test_after_a_savepoint_from_elsewhere_checkpoints_need_only_add_changes(
    tmp_path: Path,
) -> None:
    sink, source = LedgerSink[int](), ScriptedSource[int](*range(20), seconds(60), 20)
    first = af.Checkpointing(every=None, storage=tmp_path / "first")
    async with summing(source, sink).start(checkpointing=first) as job:
        await asyncio.sleep(1)
        await job.savepoint(tmp_path / "sp")
        await job.cancel()

    second = af.Checkpointing(every=None, storage=tmp_path / "second")
    async with summing(source, sink).start(
        checkpointing=second, restore=tmp_path / "sp", parallelism=2
    ) as job:
        info = await job.checkpoint()
        await job.cancel()
    by_key = [one for one in info.subtasks if one.task.startswith("sum")]
    assert not all(one.complete for one in by_key)  # a subtask without keys stores all of nothing

    async with summing(source, sink).start(checkpointing=second) as job:
        await job.wait()
    assert max(sink.values) == 110  # 0 + 2 + … + 20: nothing of the savepoint is missing


def test_new_input_for_a_job_that_had_come_to_its_end_is_not_late(tmp_path: Path) -> None:
    sink = LedgerSink[tuple[int, int]]()

    def build(*days: Sequence[int]) -> af.Flow:
        flow = af.Flow("days")
        scripts = {f"day {number}": day for number, day in enumerate(days)}
        source = ScriptedSource.of_splits(scripts)
        timed = flow.source(source, name="days").event_time(lambda at: at, name="time")
        windows = timed.key_by(lambda at: "all", name="all").window(af.Tumbling(SECOND))
        counts = windows.fold(int, lambda count, _: count + 1, name="count")
        counts.map(lambda one: (one.window.start, one.value), name="row").to(sink, name="out")
        return flow

    run_flow(build([1000, 1500, 2000]), checkpointing=every_second(tmp_path))
    run_flow(build([1000, 1500, 2000], [3000, 3500]), checkpointing=every_second(tmp_path))

    assert sink.values == [(1000, 2), (2000, 1), (3000, 2)]


@virtual_time
async def test_an_iteration_over_results_continues_through_a_restart(tmp_path: Path) -> None:
    results = af.ResultSink[int]()
    flow = af.Flow("followed")
    flow.source(ScriptedSource[int](1, seconds(2.5), 2, Crash(), 3), name="numbers").to(
        results, name="out"
    )

    settings, options = every_second(tmp_path), af.Options(clock=VirtualClock())
    async with flow.start(checkpointing=settings, restart=AT_ONCE, options=options) as job:
        seen = [value async for value in job.results(results)]

    assert seen == [1, 2, 2, 3]  # results since the last checkpoint are repeated


@virtual_time
async def test_a_checkpoint_that_fails_the_job_shows_the_cause(tmp_path: Path) -> None:
    flow = af.Flow("objects")
    things = flow.source(ScriptedSource[int](1, seconds(60)), name="numbers").key_by(lambda n: n)
    things.fold(object, lambda held, _: held, name="things").to(LedgerSink(), name="out")

    async def ask() -> None:
        settings = af.Checkpointing(every=None, storage=tmp_path)
        async with flow.start(checkpointing=settings) as job:
            await asyncio.sleep(1)
            await job.checkpoint()

    with pytest.raises(af.CheckpointError, match=r"step 'things'.*declare of="):
        await ask()


@pytest.mark.parametrize("parallelism", [1, 2])
def test_a_checkpoint_that_is_older_than_its_timeout_does_not_wait_for_a_slow_sink(
    tmp_path: Path, parallelism: int
) -> None:
    sink, seen = LedgerSink[int](delay=5.0), list[af.JobEvent]()
    barriers = af.checkpoints.Aligned(timeout=timedelta(milliseconds=500))

    run_flow(
        summing(af.IterableSource(range(60)), sink),
        parallelism=parallelism,
        options=af.Options(batch_records=10, channel_records=10),
        checkpointing=every_second(tmp_path, barriers),
        on_event=seen.append,
    )

    taken = [event for event in seen if isinstance(event, af.checkpoints.CheckpointInfo)][:-1]
    assert (
        max(info.duration_ms or 0 for info in taken) < 6_000
    )  # one write, and not all that are queued
    assert any(one.in_flight_records for info in taken for one in info.subtasks)
