"""A sink that collects all values."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import aflow as af
from aflow.connect import WriterContext
from aflow.errors import RestoreError, SinkError
from aflow.model.batch import Batch
from aflow.runtime.builtin_connectors import CollectSink
from aflow.testing import Crash, Pause, ScriptedSource
from aflow.testing.virtual_time import virtual_time
from tests.runtime.builtin_connectors.helpers import writer_of


def seconds(n: int) -> timedelta:
    return timedelta(seconds=n)


@pytest.mark.asyncio
async def test_values_and_timestamps_are_kept_in_step() -> None:
    sink = CollectSink[str]()
    writer = await writer_of(sink)

    waits = [writer.write(Batch(["a", "b"], [1, 2])), writer.write(Batch(["c"]))]

    assert sink.values == ["a", "b", "c"]
    assert sink.timestamps == [1, 2, None]
    assert waits == [None, None]


@pytest.mark.asyncio
async def test_all_subtasks_and_later_jobs_write_to_the_same_lists() -> None:
    sink = CollectSink[int]()
    for subtask in (0, 1, 0):
        writer = await writer_of(sink, subtask=subtask, parallelism=2)
        writer.write(Batch([subtask]))
        await writer.flush()
        await writer.close()

    assert sink.values == [0, 1, 0]


def context(subtask: int = 0, *, name: str = "out", parallelism: int = 1) -> WriterContext:
    return WriterContext(name, subtask=subtask, parallelism=parallelism, checkpoints=True)


@pytest.mark.asyncio
async def test_a_restart_removes_the_values_of_each_writer_after_the_checkpoint() -> None:
    sink = CollectSink[str]()
    await sink.recover("out", [])
    first, second = [await sink.writer(context(n, parallelism=2)) for n in range(2)]
    first.write(Batch(["a1"], [1]))
    second.write(Batch(["b1", "b2"]))
    marks = [await first.prepare(1)]
    first.write(Batch(["a2"]))
    marks.append(await second.prepare(1))
    second.write(Batch(["b3"]))
    held = sink.values

    await sink.recover("out", marks)

    assert held == ["a1", "b1", "b2"]
    assert sink.timestamps == [1, None, None]


@pytest.mark.asyncio
async def test_a_second_crash_before_the_next_checkpoint_takes_back_the_second_attempt_alone() -> (
    None
):
    sink = CollectSink[int]()
    await sink.recover("out", [])
    writer = await sink.writer(context())
    writer.write(Batch([1, 2]))
    mark = await writer.prepare(1)
    for again in range(3):
        await sink.recover("out", [mark])
        writer = await sink.writer(context())
        writer.write(Batch([3, 4, 5 + again]))
    later = await writer.prepare(2)
    writer.write(Batch([99]))

    await sink.recover("out", [later])

    assert sink.values == [1, 2, 3, 4, 7]


@pytest.mark.asyncio
async def test_values_of_many_writers_are_kept_when_fewer_continue() -> None:
    sink = CollectSink[int]()
    await sink.recover("out", [])
    marks: list[object] = []
    for subtask in range(3):
        writer = await sink.writer(context(subtask, parallelism=3))
        writer.write(Batch([subtask]))
        marks.append(await writer.prepare(1))
    await sink.recover("out", marks)
    writer = await sink.writer(context())
    writer.write(Batch([3]))
    mark = await writer.prepare(2)
    writer.write(Batch([4]))

    await sink.recover("out", [mark])

    assert sink.values == [0, 1, 2, 3]


@pytest.mark.asyncio
async def test_an_attempt_that_failed_before_its_first_checkpoint_is_taken_back() -> None:
    sink = CollectSink[int]()
    (await writer_of(sink)).write(Batch([1]))  # a job without checkpoints
    await sink.recover("out", [])
    (await sink.writer(context())).write(Batch([2]))

    await sink.recover("out", [])

    assert sink.values == [1]


@pytest.mark.asyncio
async def test_a_new_job_appends_to_the_values_of_one_with_checkpoints() -> None:
    sink = CollectSink[int]()
    for job in range(3):
        await sink.recover("out", [])
        writer = await sink.writer(context())
        writer.write(Batch([job]))
        await writer.commit(await writer.prepare(1))

    assert sink.values == [0, 1, 2]


@pytest.mark.asyncio
async def test_a_checkpoint_of_another_process_covers_nothing_that_was_written_in_this_one() -> (
    None
):
    elsewhere = CollectSink[int]()
    await elsewhere.recover("out", [])
    there = await elsewhere.writer(context())
    there.write(Batch([1, 2, 3]))
    mark = await there.prepare(1)
    sink = CollectSink[int]()
    await sink.recover("out", [mark])
    (await sink.writer(context())).write(Batch([4, 5]))

    await sink.recover("out", [mark])

    assert sink.values == []


@pytest.mark.asyncio
async def test_steps_that_share_a_sink_take_back_their_own_values() -> None:
    sink = CollectSink[str]()
    marks: dict[str, object] = {}
    for name in ("a", "b"):
        await sink.recover(name, [])
    for name in ("a", "b"):
        writer = await sink.writer(context(name=name))
        writer.write(Batch([f"{name}1"]))
        marks[name] = await writer.prepare(1)
        writer.write(Batch([f"{name}2"]))

    await sink.recover("a", [marks["a"]])

    assert sink.values == ["a1", "b1", "b2"]


@pytest.mark.asyncio
async def test_a_list_that_was_changed_from_outside_cannot_be_cut() -> None:
    sink = CollectSink[int]()
    await sink.recover("out", [])
    (await sink.writer(context())).write(Batch([1]))
    sink.values.clear()

    with pytest.raises(SinkError, match=r"^sink 'out': the values of the CollectSink were changed"):
        await sink.recover("out", [])


@pytest.mark.asyncio
async def test_a_list_that_was_emptied_between_two_jobs_is_no_obstacle() -> None:
    sink = CollectSink[int]()
    for job in range(2):
        await sink.recover("out", [])
        writer = await sink.writer(context())
        writer.write(Batch([job]))
        await writer.commit(await writer.prepare(1))
        sink.values.clear()
        sink.timestamps.clear()

    assert sink.values == []


@pytest.mark.asyncio
@pytest.mark.parametrize("committable", [{"checkpoint": 1}, (1, 2), 7], ids=repr)
async def test_a_committable_of_another_sink_is_an_error_that_shows_it(committable: object) -> None:
    with pytest.raises(
        RestoreError, match=r"'out', a CollectSink, cannot continue from .*another kind"
    ):
        await CollectSink[int]().recover("out", [committable])


class TwoJobs:
    """Two flows into one sink."""

    def __init__(self) -> None:
        self.sink = CollectSink[str]()
        self.first, self.second = af.Flow("first"), af.Flow("second")

    def add(self, flow: af.Flow, *script: Any) -> None:
        flow.source(ScriptedSource(*script), name="source").to(self.sink)


@virtual_time
async def test_a_second_job_is_refused_while_one_runs_or_waits_for_its_restart(
    tmp_path: Path,
) -> None:
    jobs = TwoJobs()
    jobs.add(jobs.first, "a1", "a2", Pause(seconds(10)), Crash(), "a3")
    jobs.add(jobs.second, "b1")
    storage, restart = (
        af.Checkpointing(storage=tmp_path),
        af.restart.FixedDelay(1, delay=seconds(10)),
    )

    async with jobs.first.start(checkpointing=storage, restart=restart) as job:
        for at in (5, 10):  # while it runs, and while it waits
            await asyncio.sleep(at)
            with pytest.raises(SinkError, match="belongs to job 'first', which is running"):
                await jobs.second.run()
        await job.wait()

    assert jobs.sink.values == ["a1", "a2", "a3"]


@virtual_time
async def test_a_job_with_checkpoints_is_refused_while_one_without_runs(tmp_path: Path) -> None:
    jobs = TwoJobs()
    jobs.add(jobs.first, "a1", Pause(seconds(10)), "a2")
    jobs.add(jobs.second, "b1")

    async with jobs.first.start() as job:
        await asyncio.sleep(5)
        with pytest.raises(SinkError, match="belongs to job 'first', which is running"):
            await jobs.second.run(checkpointing=af.Checkpointing(storage=tmp_path))
        await job.wait()

    assert jobs.sink.values == ["a1", "a2"]


@virtual_time
async def test_a_second_job_may_follow_the_first_one() -> None:
    jobs = TwoJobs()
    jobs.add(jobs.first, "a")
    jobs.add(jobs.second, "b")

    await jobs.first.run()
    await jobs.second.run()

    assert jobs.sink.values == ["a", "b"]
