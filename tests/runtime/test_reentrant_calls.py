"""Calls on a job from within its own pipeline: none of them waits for its own caller."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeAlias

import pytest

import aflow as af
from aflow.connect import Batch, Chunk, Position, Reader, Sink, Source, Split, Writer, WriterContext
from aflow.runtime.job import Job
from aflow.testing.virtual_time import virtual_time

Call: TypeAlias = Callable[[Job], Awaitable[object]]


@dataclass
class Probe:
    """Calls a method of the running job once, and keeps the exception."""

    call: Call
    started: asyncio.Future[Job] = field(default_factory=lambda: asyncio.Future())
    errors: list[BaseException] = field(default_factory=list[BaseException])

    async def __call__(self, value: Any = None) -> Any:
        if not self.errors:
            try:
                await self.call(await asyncio.shield(self.started))
            except af.FlowDefinitionError as exc:
                self.errors.append(exc)
            else:
                self.errors.append(AssertionError("it returned"))
        return value


class CallingSink(Sink[int]):
    def __init__(self, probe: Probe, where: str) -> None:
        self.probe, self.where = probe, where

    async def writer(self, context: WriterContext) -> Writer[int]:
        return CallingWriter(self)


class CallingWriter(Writer[int]):
    def __init__(self, sink: CallingSink) -> None:
        self._sink = sink

    async def _at(self, where: str) -> None:
        if where == self._sink.where:
            await self._sink.probe()

    async def write(self, batch: Batch[int]) -> None:
        await self._at("write")

    async def prepare(self, checkpoint: int) -> None:
        await self._at("prepare")

    async def flush(self) -> None:
        await self._at("flush")


class CallingSource(Source[int]):
    def __init__(self, probe: Probe) -> None:
        self.probe = probe

    async def splits(self) -> list[Split]:
        return [Split("one")]

    async def reader(self, split: Split, position: Position | None) -> Reader[int]:
        return CallingReader(self.probe)


class CallingReader(Reader[int]):
    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._read = False

    async def read(self, limit: int) -> Chunk[int] | None:
        if self._read:
            return None
        self._read = True
        await self._probe()
        return Chunk([1], 1)


class Handler(af.AsyncKeyedProcess[int, int, int]):
    def __init__(self, probe: Probe) -> None:
        self._probe = probe

    async def process(self, value: int, ctx: af.AsyncContext[int]) -> list[int]:
        await self._probe()
        return [value]


def flow_of(probe: Probe, place: str) -> af.Flow:
    flow = af.Flow("calls")
    source: Source[int] = CallingSource(probe) if place == "read" else af.IterableSource([1])
    stream = flow.source(source, name="source")
    if place == "call":
        stream = stream.map_async(probe, name="call")
    if place == "handler":
        stream = stream.key_by(lambda n: n).process_async(
            Handler(probe), name="handler", capacity=1
        )
    sink: Sink[int] = CallingSink(probe, place)
    stream.to(af.CallbackSink(probe) if place == "callback" else sink, name="sink")
    return flow


async def savepoint(job: Job) -> None:
    await job.savepoint("never")


async def in_time(job: Job) -> None:
    await asyncio.wait_for(job.checkpoint(), 5)


async def gathered(job: Job) -> None:
    await asyncio.gather(job.checkpoint(), asyncio.sleep(0))


async def from_a_thread(job: Job) -> None:
    loop = asyncio.get_running_loop()
    await asyncio.to_thread(
        lambda: asyncio.run_coroutine_threadsafe(job.checkpoint(), loop).result()
    )


async def run(flow: af.Flow, probe: Probe, storage: Path) -> None:
    settings = af.Checkpointing(storage=storage, every=timedelta(milliseconds=50))
    async with asyncio.timeout(60), flow.start(checkpointing=settings) as job:
        probe.started.set_result(job)
        await job.wait()


PLACES = ["callback", "write", "prepare", "flush", "read", "call", "handler"]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("wait()", Job.wait),
        ("checkpoint()", Job.checkpoint),
        ("savepoint()", savepoint),
    ],
    ids=["wait", "checkpoint", "savepoint"],
)
@virtual_time
async def test_a_call_that_would_wait_for_its_caller_is_refused_and_the_job_continues(
    tmp_path: Path, place: str, name: str, call: Call
) -> None:
    probe = Probe(call)

    await run(flow_of(probe, place), probe, tmp_path)

    (error,) = probe.errors
    assert str(error).startswith(f"{name} of job 'calls' was called from within its pipeline")


@pytest.mark.parametrize("call", [in_time, gathered, from_a_thread])
@pytest.mark.asyncio
async def test_tasks_and_threads_that_the_pipeline_begins_are_within_it(
    tmp_path: Path, call: Call
) -> None:
    probe = Probe(call)

    await run(flow_of(probe, "callback"), probe, tmp_path)

    (error,) = probe.errors
    assert isinstance(error, af.FlowDefinitionError)


@virtual_time
async def test_a_job_that_the_pipeline_runs_may_not_wait_for_it_either(tmp_path: Path) -> None:
    async def run_inner(outer: Job) -> None:
        async def wait(value: int) -> None:
            await outer.wait()

        flow = af.Flow("inner")
        flow.source([1]).to(af.CallbackSink(wait), name="sink")
        try:
            await flow.run()
        except af.OperatorError as exc:
            raise exc.__cause__ or exc from None

    probe = Probe(run_inner)

    await run(flow_of(probe, "callback"), probe, tmp_path)

    (error,) = probe.errors
    assert str(error).startswith("wait() of job 'calls' was called from within")


@virtual_time
async def test_a_task_that_on_event_creates_is_outside_of_the_pipeline(tmp_path: Path) -> None:
    source = af.PushSource[int]()
    flow = af.Flow("events")
    flow.source(source, name="source").to(af.CollectSink[int](), name="sink")
    tasks: list[asyncio.Task[Any]] = []

    def on_event(event: object) -> None:
        if not tasks:
            tasks.append(asyncio.create_task(job.savepoint(tmp_path / "savepoint")))

    settings = af.Checkpointing(storage=tmp_path / "state", every=None)
    async with flow.start(checkpointing=settings, on_event=on_event) as job:
        await job.checkpoint()
        info = await tasks[0]

    assert info.path == str(tmp_path / "savepoint")


@virtual_time
async def test_the_host_may_call_all_of_them(tmp_path: Path) -> None:
    flow, source = af.Flow("host"), af.PushSource[int]()
    flow.source(source, name="source").to(af.CollectSink[int](), name="sink")

    async with flow.start(checkpointing=af.Checkpointing(storage=tmp_path / "state")) as job:
        taken = [await job.checkpoint(), await job.savepoint(tmp_path / "savepoint")]
        source.close()
        await job.wait()

    assert [one.outcome.value for one in taken] == ["completed", "completed"]
