"""State that cannot be stored fails with the first record, and not minutes later with the first checkpoint."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import aflow as af
from aflow.runtime.checkpoints.settings import Barriers
from tests.stable_ids import stable

pytestmark = pytest.mark.asyncio


class Model:
    """Not a dataclass, so its fields are unknown."""

    def __init__(self, value: int = 0) -> None:
        self.value = value


@dataclass(frozen=True)
class Total:
    sum: int = 0


class Keeps(af.KeyedProcess[int, Any, Any]):
    state = af.ValueState[Any]("model")

    def process(self, value: Any, ctx: af.Context[int]) -> None:
        ctx.state(self.state).set(value)


class Waits(af.AsyncKeyedProcess[int, Any, Any]):
    async def process(self, value: Any, ctx: Any) -> Iterable[Any]:
        await asyncio.Event().wait()
        return []


async def never(value: Any) -> Any:
    await asyncio.Event().wait()


Step = Callable[[af.Stream[Any]], af.Stream[Any]]

TEN = timedelta(seconds=10)


def keyed(stream: af.Stream[Any]) -> af.KeyedStream[int, Any]:
    return stream.event_time(lambda one: 1000).key_by(lambda one: 1)


STEPS: dict[str, Step] = {
    "process": lambda s: keyed(s).process(Keeps(), name="step"),
    "fold": lambda s: keyed(s).fold(lambda: Model(), lambda a, b: b, name="step"),
    "reduce": lambda s: keyed(s).reduce(lambda a, b: b, name="step"),
    "top": lambda s: keyed(s).top(2, by=lambda one: one.value, name="step"),
    "window": lambda s: keyed(s).window(af.Tumbling(TEN)).apply(lambda all: all, name="step"),
    "window fold": lambda s: (
        keyed(s).window(af.Sliding(TEN, TEN / 2)).fold(Model, lambda a, b: b, name="step")
    ),
    "session": lambda s: keyed(s).window(af.Session(TEN)).apply(lambda all: all, name="step"),
    "count window": lambda s: keyed(s).window(af.Count(5)).apply(lambda all: all, name="step"),
    "calls": lambda s: s.map_async(never, name="step"),
    "handlers": lambda s: keyed(s).process_async(Waits(), name="step"),
    "interval join": lambda s: (
        keyed(s).interval_join(keyed(s), between=(-TEN, TEN)).inner(lambda a, b: a, name="step")
    ),
}


async def sent(
    flow: af.Flow,
    models: af.PushSource[Model],
    settings: af.Checkpointing,
    *,
    parallelism: int = 1,
    count: int = 1,
) -> None:
    """Run ``flow`` until it fails, with models from 0 up to ``count``; it takes no checkpoint."""
    async with flow.start(checkpointing=settings, parallelism=parallelism) as job:
        for number in range(count):
            await models.send(Model(number))
        await job.wait()


@pytest.mark.parametrize("parallelism", [1, 2])
@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
async def test_state_that_cannot_be_stored_fails_the_job_at_its_first_record(
    tmp_path: Path, step: Step, parallelism: int
) -> None:
    models: af.PushSource[Model] = af.PushSource()
    flow = af.Flow("models")
    step(flow.source(models, name="models")).to(af.CollectSink(), name="out")
    settings = af.Checkpointing(storage=tmp_path, every=None)

    with pytest.raises(af.CheckpointError, match=r"step 'step'.*cannot (be stored|store)"):
        await sent(flow, models, settings, parallelism=parallelism)


@pytest.mark.parametrize(
    "barriers",
    [af.checkpoints.Unaligned(), af.checkpoints.Aligned(timeout=timedelta(hours=1))],
    ids=stable,
)
async def test_records_that_could_not_be_overtaken_fail_the_job_at_the_first(
    tmp_path: Path, barriers: Barriers
) -> None:
    models: af.PushSource[Model] = af.PushSource()
    flow = af.Flow("models")
    flow.source(models, name="models").rebalance().map(lambda one: 1).to(
        af.CollectSink(), name="out"
    )
    settings = af.Checkpointing(storage=tmp_path, every=None, barriers=barriers)

    with pytest.raises(af.CheckpointError, match=r"in flight to .* cannot be stored: .*Model"):
        await sent(flow, models, settings, parallelism=2)


async def test_without_checkpoints_nothing_is_checked() -> None:
    flow = af.Flow("models")
    out: af.CollectSink[Any] = af.CollectSink()
    keyed(flow.source([Model(7)], name="models")).reduce(lambda a, b: b, name="step").to(out)

    await flow.run()

    assert [one.value for one in out.values] == [7]


async def test_state_is_checked_even_if_its_first_record_arrives_late(tmp_path: Path) -> None:
    models: af.PushSource[Model] = af.PushSource()
    flow = af.Flow("models")
    late = flow.source(models, name="models").filter(lambda one: one.value >= 40)
    keyed(late).process(Keeps(), name="step").to(af.CollectSink(), name="out")
    settings = af.Checkpointing(storage=tmp_path, every=None)

    with pytest.raises(af.CheckpointError, match=r"'model' of step 'step'"):
        await sent(flow, models, settings, count=41)


def patient() -> af.restart.ExponentialDelay:
    """Return a strategy that never gives up."""
    return af.restart.ExponentialDelay(initial=timedelta(milliseconds=1))


async def test_no_restart_follows_a_type_that_is_not_declared(tmp_path: Path) -> None:
    flow = af.Flow("models")
    keyed(flow.source([Model(1)], name="models")).process(Keeps(), name="step").to(
        af.CollectSink(), name="out"
    )
    settings = af.Checkpointing(storage=tmp_path, every=None)

    job = flow.start(checkpointing=settings, restart=patient())
    with pytest.raises(af.errors.UnstorableState, match="'model' of step 'step'") as caught:
        async with job:
            await job.wait()

    assert job.restarts == []
    assert caught.value.__notes__ == [
        "The job is not restarted: the value would be in the state again"
    ]


async def test_one_restart_follows_a_value_of_another_type_that_is_read_again(
    tmp_path: Path,
) -> None:
    flow = af.Flow("models")
    numbers = flow.source([1, 2, 3], name="numbers", rate=one_by_one())
    models = numbers.map(lambda number: Model() if number == 3 else number)
    keyed(models).process(Keeps(), name="step").to(af.CollectSink(), name="out")
    settings = af.Checkpointing(storage=tmp_path, every=None)

    job = flow.start(checkpointing=settings, restart=patient())
    with pytest.raises(af.errors.UnstorableState, match="'model' of step 'step'"):
        async with job:
            await job.wait()

    assert len(job.restarts) == 1


def one_by_one() -> af.calls.RateLimit[Any]:
    """Let a source emit a record at a time, so that each is the whole state for a moment."""
    return af.calls.RateLimit(1, timedelta(milliseconds=1))


async def test_a_job_continues_without_a_value_of_another_type_that_is_not_read_again(
    tmp_path: Path,
) -> None:
    values: af.PushSource[Any] = af.PushSource()
    flow = af.Flow("models")
    keyed(flow.source(values, name="values")).process(Keeps(), name="step").to(
        af.CollectSink(), name="out"
    )
    settings = af.Checkpointing(storage=tmp_path, every=None)

    async with flow.start(checkpointing=settings, restart=patient()) as job:
        for number in (1, 2):
            await values.send(number)
            while await job.state("step").get(1) != number:  # noqa: ASYNC110 - there is no event for it
                await asyncio.sleep(0)
            await job.checkpoint()
            await values.send(Model())
            while len(job.restarts) < number:
                await asyncio.sleep(0)
                with suppress(af.CheckpointError, af.JobStopped):
                    await job.checkpoint()
            await job.ready()

    assert [type(one.cause) for one in job.restarts] == [af.errors.UnstorableState] * 2


async def test_a_type_from_an_annotation_is_stored_and_restored(tmp_path: Path) -> None:
    out: list[Total] = []

    async def add(*values: int) -> None:
        numbers: af.PushSource[int] = af.PushSource()
        flow = af.Flow("totals")
        keys = flow.source(numbers, name="numbers").key_by(lambda one: 1)
        totals = keys.fold(Total, lambda total, one: Total(total.sum + one), name="sum")
        totals.to(af.CallbackSink(out.append), name="out")
        settings = af.Checkpointing(storage=tmp_path, every=None)
        async with flow.start(checkpointing=settings) as job:
            await numbers.send_many(values)
            await job.stop()

    await add(1, 2)
    await add(3)

    assert out == [Total(1), Total(3), Total(6)]
