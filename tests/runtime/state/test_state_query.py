"""The host reads the state of a key while the job runs."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

import aflow as af
from aflow import CollectSink, Context, Flow, KeyedProcess, ListState, PushSource, ValueState
from aflow.backends import InMemory, OnDisk
from aflow.errors import FlowDefinitionError, JobStopped
from aflow.testing.virtual_time import settle, virtual_time

Pair = tuple[str, int]


class Remember(KeyedProcess[str, Pair, int]):
    last = ValueState[int]("last", of=int)
    all = ListState[int]("all", of=int)

    def process(self, value: Pair, ctx: Context[str]) -> Iterator[int]:
        ctx.state(self.last).set(value[1])
        ctx.state(self.all).add(value[1])
        yield value[1]


def totals(source: PushSource[Pair]) -> Flow:
    flow = Flow("totals")
    pairs = flow.source(source, name="pairs").key_by(lambda pair: pair[0], name="key")
    pairs.fold(int, lambda total, pair: total + pair[1], name="sum").to(
        CollectSink[int](), name="sums"
    )
    pairs.process(Remember(), name="remember").to(CollectSink[int](), name="out")
    return flow


@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("disk", [False, True], ids=["memory", "disk"])
@virtual_time
async def test_the_state_of_any_key_is_read_in_the_subtask_that_has_it(
    tmp_path: Path, parallelism: int, disk: bool
) -> None:
    source = PushSource[Pair]()
    state = OnDisk(folder=tmp_path, resident=3) if disk else InMemory()
    options = af.Options(state=state)
    async with totals(source).start(options=options, parallelism=parallelism) as job:
        await source.send_many([(f"user {n % 20}", n) for n in range(100)])
        await settle()

        found = [await job.state("sum").get(f"user {n}") for n in range(20)]
        last = [await job.state("remember", "last").get(f"user {n}") for n in range(20)]
        values = await job.state("remember", "all").get("user 7")

        assert found == [sum(range(n, 100, 20)) for n in range(20)]
        assert last == [80 + n for n in range(20)]
        assert values == [7, 27, 47, 67, 87]
        assert await job.state("sum").get("nobody") is None


@virtual_time
async def test_a_list_that_was_read_is_a_copy() -> None:
    source = PushSource[Pair]()
    async with totals(source).start() as job:
        await source.send(("a", 1))
        await settle()
        state = job.state("remember", "all")
        (await state.get("a")).append(99)

        assert await state.get("a") == [1]


@virtual_time
async def test_state_cannot_be_read_between_a_failure_and_the_restart_and_after_the_end() -> None:
    source = PushSource[Pair]()
    restart = af.restart.FixedDelay(3, timedelta(seconds=1))
    async with totals(source).start(restart=restart) as job:
        state = job.state("sum")
        await source.send(("a", "wrong"))  # type: ignore[arg-type]
        await settle()
        with pytest.raises(JobStopped, match="job 'totals' is restarting"):
            await state.get("a")
        await job.ready()
        assert await state.get("a") is None
    with pytest.raises(JobStopped, match="job 'totals' is finished"):
        await state.get("a")


@virtual_time
async def test_wrong_questions_are_refused() -> None:
    async with totals(PushSource[Pair]()).start() as job:
        with pytest.raises(FlowDefinitionError, match=r"no step 'totals'; its steps are 'pairs', "):
            job.state("totals")
        with pytest.raises(FlowDefinitionError, match="has the states 'last', 'all'; name one"):
            await job.state("remember").get("a")
        with pytest.raises(FlowDefinitionError, match="'first'"):
            await job.state("remember", "first").get("a")
        with pytest.raises(
            FlowDefinitionError, match=r"step 'sums' \(to\) has no state that can be read"
        ):
            await job.state("sums").get("a")
        with pytest.raises(FlowDefinitionError, match="is the key of no record"):
            await job.state("sum").get([1])  # type: ignore[arg-type]
