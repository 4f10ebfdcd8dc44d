"""The work that was left when a stop has missed its deadline, as ``StopTimeout`` names it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

import aflow as af
from aflow import Checkpointing, CollectSink, Flow, Job, PushSource
from aflow.checkpoints import DirectoryStorage, Manifest
from aflow.errors import StopTimeout
from aflow.testing.virtual_time import settle, virtual_time

SECOND = timedelta(seconds=1)


async def hanging(_: object) -> None:
    await asyncio.sleep(3600)


async def left_of(job: Job, source: PushSource[int], records: int) -> str:
    """Return the work that a stop with a deadline leaves after so many records."""
    for number in range(records):
        await source.send(number)
        await settle()  # so that each is a batch
    with pytest.raises(StopTimeout) as caught:
        await job.stop(deadline=SECOND)
    return str(caught.value).partition("left: ")[2]


def flow_of(build: Callable[[af.Stream[int]], object]) -> tuple[Flow, PushSource[int]]:
    flow, source = Flow("left"), PushSource[int]()
    build(flow.source(source, name="numbers"))
    return flow, source


@virtual_time
async def test_records_that_wait_for_a_call_are_named_beside_the_calls() -> None:
    flow, source = flow_of(
        lambda numbers: numbers.map_async(hanging, name="asked", capacity=2).to(
            CollectSink[None](), name="out"
        )
    )
    async with flow.start() as job:
        left = await left_of(job, source, 5)

    queued = "1 record queued for 'numbers → asked → out'"
    assert left == f"{queued}, 2 calls of 'asked', 2 records waiting in 'asked'"


@virtual_time
async def test_one_call_and_one_record_are_named_in_the_singular() -> None:
    flow, source = flow_of(
        lambda numbers: numbers.map_async(hanging, name="asked", capacity=1).to(
            CollectSink[None](), name="out"
        )
    )
    async with flow.start() as job:
        assert await left_of(job, source, 2) == "1 call of 'asked', 1 record waiting in 'asked'"


@virtual_time
async def test_records_queued_for_all_subtasks_of_a_task_are_added() -> None:
    flow, source = flow_of(
        lambda numbers: (
            numbers.rebalance(2)
            .map_async(hanging, name="asked", capacity=1)
            .to(CollectSink[None](), name="out")
        )
    )
    async with flow.start() as job:
        left = await left_of(job, source, 8)

    assert left.startswith("4 records queued for 'rebalance #1 → asked → out', 2 calls of 'asked'")


@virtual_time
async def test_records_that_wait_for_a_sink_are_named() -> None:
    flow, source = flow_of(lambda numbers: numbers.to(af.CallbackSink(hanging), name="out"))
    async with flow.start() as job:
        left = await left_of(job, source, 4)

    assert left == "3 records waiting for sink 'out', the writer of sink 'out'"


class Stubborn(af.connect.Source[int]):
    """A source whose reader does not end when it is cancelled the first time."""

    bounded = False
    replayable = False

    async def splits(self) -> list[af.connect.Split]:
        return [af.connect.Split("only")]

    async def reader(self, split: af.connect.Split, position: object) -> af.connect.Reader[int]:
        return StubbornReader()


class StubbornReader(af.connect.Reader[int]):
    async def read(self, limit: int) -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            await asyncio.sleep(3600)


@virtual_time
async def test_a_reader_that_does_not_end_is_named() -> None:
    flow = Flow("left")
    flow.source(Stubborn(), name="numbers").to(CollectSink[int](), name="out")
    async with flow.start() as job:
        await settle()  # so that it reads

        assert await left_of(job, PushSource[int](), 0) == "the reader of source 'numbers'"


@virtual_time
async def test_a_checkpoint_that_is_not_stored_is_named(tmp_path: Path) -> None:
    class Slow(DirectoryStorage):
        async def complete(self, manifest: Manifest) -> None:
            await asyncio.sleep(3600)

    flow, source = flow_of(lambda numbers: numbers.to(CollectSink[int](), name="out"))
    async with flow.start(checkpointing=Checkpointing(storage=Slow(tmp_path), every=None)) as job:
        assert await left_of(job, source, 1) == "final checkpoint 1"


@asynccontextmanager
async def never_open() -> AsyncGenerator[None]:
    await asyncio.sleep(3600)
    yield


async def using(number: int, _: None) -> int:
    return number


@virtual_time
async def test_a_job_that_still_starts_has_its_start_left() -> None:
    flow, _ = flow_of(
        lambda numbers: numbers.map_async(using, name="asked", using=af.Resource(never_open)).to(
            CollectSink[int](), name="out"
        )
    )
    job = flow.start()
    entering = asyncio.create_task(job.__aenter__())
    await settle()

    with pytest.raises(StopTimeout, match="left: the start of the job"):
        await job.stop(deadline=SECOND)
    await asyncio.gather(entering, return_exceptions=True)


@virtual_time
async def test_a_job_without_work_has_nothing_left() -> None:
    flow, _ = flow_of(lambda numbers: numbers.to(CollectSink[int](), name="out"))
    async with flow.start() as job:
        assert job.unfinished_work() == "nothing that is counted"
