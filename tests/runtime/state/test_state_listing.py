"""The host lists the keys of a step while the job runs."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from contextlib import aclosing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import aflow as af
from aflow import CollectSink, Context, Flow, KeyedProcess, PushSource, ValueState
from aflow.backends import InMemory, OnDisk
from aflow.errors import FlowDefinitionError, JobStopped, OperatorError
from aflow.runtime import state_query
from aflow.runtime.job import Job
from aflow.state.disk.rocksdb import RocksdbStore, rocksdb_installed
from aflow.state.memory import MemoryBackend
from aflow.state.readable_state import SCANNED, KeySelection
from aflow.testing.virtual_time import settle, virtual_time
from tests.sorted_store import sorted_stores

Pair = tuple[Any, int]

BACKENDS = [pytest.param(False, id="memory"), pytest.param(True, id="disk")]


def sums(source: PushSource[Pair]) -> Flow:
    flow = Flow("sums")
    pairs = flow.source(source, name="pairs").key_by(lambda pair: pair[0], name="key")
    pairs.fold(int, lambda total, pair: total + pair[1], name="sum").to(
        CollectSink[int](), name="out"
    )
    return flow


def options(folder: Path, disk: bool, resident: int = 10) -> af.Options:
    state = OnDisk(folder=folder, resident=resident) if disk else InMemory()
    return af.Options(state=state)


async def listed(job: Job, **arguments: Any) -> list[Pair]:
    return [item async for item in job.state("sum").items(**arguments)]


@pytest.mark.parametrize("disk", BACKENDS)
@virtual_time
async def test_keys_are_listed_in_order_with_a_limit_a_prefix_and_from_a_key_on(
    tmp_path: Path, disk: bool
) -> None:
    source = PushSource[Pair]()
    users = [f"user {n:03}" for n in range(200)]
    with sorted_stores():
        async with sums(source).start(options=options(tmp_path, disk), parallelism=3) as job:
            await source.send_many([(key, n) for n, key in enumerate(users)])
            await source.send_many([("group 1", 1), (("a", 1), 1), (("a", 2), 2), (("b", 1), 3)])
            await settle()

            everything = await listed(job)
            assert len(everything) == 204
            assert [item for item in everything if str(item[0]).startswith("user")] == [
                (key, n) for n, key in enumerate(users)
            ]
            assert await listed(job, prefix="user ", limit=2) == [("user 000", 0), ("user 001", 1)]
            assert await listed(job, after="user 197") == [("user 198", 198), ("user 199", 199)]
            assert await listed(job, prefix="user 19", after="user 198") == [("user 199", 199)]
            assert await listed(job, prefix="nobody") == []
            assert await listed(job, prefix=("a",)) == [(("a", 1), 1), (("a", 2), 2)]


@pytest.mark.parametrize("disk", BACKENDS)
@virtual_time
async def test_pages_continue_after_their_last_key(tmp_path: Path, disk: bool) -> None:
    source = PushSource[Pair]()
    with sorted_stores():
        async with sums(source).start(options=options(tmp_path, disk), parallelism=2) as job:
            await source.send_many([(n, 1) for n in range(100)])
            await settle()
            reader = job.state("sum")

            page = await reader.page(limit=30)
            pages = [page]
            while page.more:
                page = await reader.page(limit=30, after=page.items[-1][0])
                pages.append(page)

            assert [len(page.items) for page in pages] == [30, 30, 30, 10]
            keys = [key for page in pages for key, _ in page.items]
            assert keys == sorted(range(100), key=str)
            assert (await reader.page(limit=100)).more is False


@pytest.mark.parametrize("disk", BACKENDS)
@virtual_time
async def test_a_listing_beside_records_has_each_key_that_is_there_throughout_once(
    tmp_path: Path, disk: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(state_query, "SELECTED", 100)  # several passes over the keys
    source = PushSource[Pair]()
    before = [f"{n * 7919 % 1009:04}" for n in range(500)]
    with sorted_stores():
        async with sums(source).start(options=options(tmp_path, disk), parallelism=2) as job:
            await source.send_many([(key, 1) for key in before])
            await settle()
            found: list[Pair] = []
            sent = 0
            async for item in job.state("sum").items():
                found.append(item)
                if len(found) % 10 == 0:
                    # New keys before and after the present one, and updates of others, evict keys from memory.
                    await source.send_many(
                        [(f"new {sent}", 1), (f"0000 {sent}", 1), (before[sent % 500], 1)]
                    )
                    sent += 1
                    await asyncio.sleep(0)

            keys = [key for key, _ in found]
            assert keys == sorted(set(keys))
            assert set(before) <= set(keys)
            assert sent > 40
            assert all(1 <= value <= 2 for _, value in found)


class Cleared(KeyedProcess[str, Pair, int]):
    """Removes the state of a key at a negative number."""

    last = ValueState[int]("last", of=int)

    def process(self, value: Pair, ctx: Context[str]) -> Iterator[int]:
        if value[1] < 0:
            ctx.state(self.last).clear()
        else:
            ctx.state(self.last).set(value[1])
        yield value[1]


@pytest.mark.parametrize("disk", BACKENDS)
@virtual_time
async def test_keys_without_state_any_more_are_not_listed(tmp_path: Path, disk: bool) -> None:
    source = PushSource[Pair]()
    flow = Flow("cleared")
    pairs = flow.source(source, name="pairs").key_by(lambda pair: str(pair[0]), name="key")
    pairs.process(Cleared(), name="clear").to(CollectSink[int](), name="out")
    with sorted_stores():
        async with flow.start(options=options(tmp_path, disk, resident=2)) as job:
            await source.send_many([(f"{n:03}", n) for n in range(100)])
            await source.send_many([(f"{n:03}", -1) for n in range(95)])
            await settle()
            reader = job.state("clear")

            items = [item async for item in reader.items()]
            page = await reader.page(limit=2)

        assert items == [(f"{n:03}", n) for n in range(95, 100)]
        assert [key for key, _ in page.items] == ["095", "096"]
        assert page.more


@pytest.mark.parametrize("disk", BACKENDS)
@virtual_time
async def test_a_listing_lets_the_loop_run_after_a_few_hundred_keys_or_a_few_reads(
    tmp_path: Path, disk: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes = 0
    work: Counter[tuple[str, int]] = Counter()
    add, read = KeySelection.add, MemoryBackend.read

    def counted_add(selection: KeySelection, keys: Sequence[Hashable]) -> None:
        work["scanned", passes] += len(keys)
        add(selection, keys)

    def counted_read(backend: MemoryBackend, name: str, key: Hashable) -> object:
        work["read", passes] += 1
        return read(backend, name, key)

    async def count_passes() -> None:
        nonlocal passes
        while True:
            await asyncio.sleep(0)
            passes += 1

    monkeypatch.setattr(KeySelection, "add", counted_add)
    monkeypatch.setattr(MemoryBackend, "read", counted_read)
    source = PushSource[Pair]()
    with sorted_stores():
        async with sums(source).start(options=options(tmp_path, disk), parallelism=2) as job:
            await source.send_many([(n, 1) for n in range(3000)])
            await settle()
            counting = asyncio.create_task(count_passes())
            keys = len(await listed(job))
            counting.cancel()

    assert keys == 3000
    assert sum(count for (what, _), count in work.items() if what == "scanned") >= 3000
    # The loop may run the counter before and after a piece.
    for (what, _), count in work.items():
        assert count <= 2 * (SCANNED if what == "scanned" else state_query.READ)


@virtual_time
async def test_values_of_a_listing_are_read_a_few_at_a_time() -> None:
    source = PushSource[Pair]()
    async with sums(source).start() as job:
        await source.send_many([(f"{n:04}", 1) for n in range(500)])
        await settle()
        old = 0
        async for item in job.state("sum").items():
            old += item[1] == 1
            if old == state_query.READ:  # the first of a piece, after those of 1, 2, 4, … keys
                await source.send_many([(f"{n:04}", 1) for n in range(500)])
                await settle()

        assert old == 2 * state_query.READ - 1


@virtual_time
async def test_values_that_take_long_are_read_one_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(state_query, "_LONG", -1.0)
    source = PushSource[Pair]()
    async with sums(source).start() as job:
        await source.send_many([(n, 1) for n in range(10)])
        await settle()
        seen: list[int] = []
        async for item in job.state("sum").items():
            seen.append(item[1])
            await source.send_many([(n, 1) for n in range(10)])
            await settle()

    assert seen == list(range(1, 11))


@virtual_time
async def test_a_listing_ends_with_an_error_when_the_job_restarts_or_ends() -> None:
    source = PushSource[Pair]()
    restart = af.restart.FixedDelay(3, timedelta(seconds=1))
    async with sums(source).start(restart=restart) as job:
        await source.send_many([(f"{n:04}", 1) for n in range(500)])
        await settle()
        items = job.state("sum").items()
        await anext(items)
        await source.send(("wrong", "number"))  # type: ignore[arg-type]
        await settle()
        with pytest.raises(JobStopped, match="job 'sums' is restarting"):
            [item async for item in items]
        await job.ready()
        await source.send_many([(f"{n:04}", 1) for n in range(500)])
        await settle()
        items = job.state("sum").items()
        await anext(items)
        await source.send(("wrong", "number"))  # type: ignore[arg-type]
        await settle()
        await job.ready()
        with pytest.raises(JobStopped, match="restarted during the listing"):
            [item async for item in items]
        items = job.state("sum").items()
    with pytest.raises(JobStopped, match="job 'sums' is finished"):
        await anext(items)


@pytest.mark.skipif(not rocksdb_installed(), reason="needs rocksdict")
@virtual_time
async def test_a_listing_that_is_left_or_cancelled_keeps_nothing_of_the_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    views = 0
    view = RocksdbStore.view

    def counted(store: RocksdbStore) -> Any:
        nonlocal views
        views += 1
        return view(store)

    monkeypatch.setattr(RocksdbStore, "view", counted)
    source = PushSource[Pair]()
    async with sums(source).start(options=options(tmp_path, disk=True)) as job:
        await source.send_many([(n, 1) for n in range(2000)])
        await settle()
        async with aclosing(job.state("sum").items()) as items:
            await anext(items)
        task = asyncio.create_task(job.state("sum").page(limit=500))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len((await job.state("sum").page(limit=500)).items) == 500

    assert views == 0  # a view is an open iterator
    assert not any(tmp_path.iterdir())


class Uncopyable:
    """A value that cannot be copied."""

    def __deepcopy__(self, memo: object) -> Uncopyable:
        raise TypeError("no copy")


@virtual_time
async def test_a_value_that_cannot_be_copied_is_an_error_that_names_it() -> None:
    source = PushSource[Pair]()
    flow = Flow("copies")
    pairs = flow.source(source, name="pairs").key_by(lambda pair: pair[0], name="key")
    pairs.fold(Uncopyable, lambda total, pair: total, name="sum").to(CollectSink[Any](), name="out")
    async with flow.start() as job:
        await source.send(("a", 1))
        await settle()
        with pytest.raises(
            OperatorError, match=r"state of key 'a' of step 'sum' cannot be read: .*no copy"
        ):
            await job.state("sum").get("a")
        with pytest.raises(OperatorError, match="no copy"):
            await job.state("sum").page()


@virtual_time
async def test_a_value_of_a_fold_is_a_copy() -> None:
    source = PushSource[Pair]()
    flow = Flow("copies")

    def added(numbers: list[list[int]], pair: Pair) -> list[list[int]]:
        return [*numbers, [pair[1]]]

    pairs = flow.source(source, name="pairs").key_by(lambda pair: pair[0], name="key")
    pairs.fold(list[list[int]], added, name="sum").to(CollectSink[Any](), name="out")
    async with flow.start() as job:
        await source.send(("a", 1))
        await settle()
        (await job.state("sum").get("a"))[0].append(99)

        assert await job.state("sum").get("a") == [[1]]


@virtual_time
async def test_none_is_a_value_and_no_state_is_none() -> None:
    source = PushSource[Pair]()
    flow = Flow("nothing")

    def nothing(total: None, pair: Pair) -> None:
        return None

    pairs = flow.source(source, name="pairs").key_by(lambda pair: pair[0], name="key")
    pairs.fold(lambda: None, nothing, name="sum").to(CollectSink[None](), name="out")
    async with flow.start() as job:
        await source.send((None, 1))
        await settle()
        reader = job.state("sum")

        assert (await reader.entry(None)).exists
        assert not (await reader.entry("b")).exists
        assert [item async for item in reader.items()] == [(None, None)]


@virtual_time
async def test_wrong_arguments_are_refused() -> None:
    async with sums(PushSource[Pair]()).start() as job:
        reader = job.state("sum")
        for limit in (0, -1, True, 1.5, None):
            with pytest.raises(FlowDefinitionError, match="limit is a number of keys from 1 on"):
                await reader.page(limit=limit)  # type: ignore[arg-type]
        with pytest.raises(FlowDefinitionError, match="as_of is 'live' or 'checkpoint', not 'now'"):
            await reader.get("a", as_of="now")  # type: ignore[arg-type]
        with pytest.raises(FlowDefinitionError, match=r"no record has such a key: .*mutable"):
            await reader.page(after=[1])  # type: ignore[arg-type]
        with pytest.raises(FlowDefinitionError, match=r"no record has such a key: .*surrogate"):
            await reader.page(prefix="\ud800")
        with pytest.raises(FlowDefinitionError, match="prefix is text or a tuple, not 5"):
            await reader.page(prefix=5)  # type: ignore[arg-type]
        with pytest.raises(
            FlowDefinitionError, match=r"step 'out' \(to\) has no state that can be read"
        ):
            await job.state("out").page()
        with pytest.raises(
            FlowDefinitionError, match=r"step 'pairs' \(source\) has no state that can be read"
        ):
            await job.state("pairs").get("a")
        with pytest.raises(
            FlowDefinitionError, match="no state named 'totals'; it has: 'accumulator'"
        ):
            await job.state("sum", "totals").get("a")


@virtual_time
async def test_a_step_that_has_ended_before_the_job_has_no_state() -> None:
    flow = Flow("two")
    ended: list[Pair] = [("a", 1)]
    for name, source in (("ended", ended), ("open", PushSource[Pair]())):
        pairs = flow.source(source, name=name).key_by(lambda pair: pair[0], name=f"key {name}")
        pairs.fold(int, lambda total, pair: total + pair[1], name=f"sum of {name}").to(
            CollectSink[int](), name=f"out of {name}"
        )
    async with flow.start() as job:
        await settle()
        with pytest.raises(JobStopped, match="step 'sum of ended' of job 'two' has ended"):
            await job.state("sum of ended").get("a")
        with pytest.raises(JobStopped, match="has ended"):
            await job.state("sum of ended").page()
        assert await job.state("sum of open").get("a") is None


@virtual_time
async def test_a_key_of_another_type_than_the_declared_one_is_refused() -> None:
    source = PushSource[Pair]()
    flow = Flow("typed")
    pairs = flow.source(source, name="pairs").key_by(lambda pair: int(pair[0]), name="key", of=int)
    pairs.fold(int, lambda total, pair: total + pair[1], name="sum").to(
        CollectSink[int](), name="out"
    )
    async with flow.start() as job:
        await source.send((1, 1))
        await settle()
        with pytest.raises(
            FlowDefinitionError, match="'1' is no key of step 'sum': its keys are of type int"
        ):
            await job.state("sum").get("1")
        assert await job.state("sum").get(1) == 1


@pytest.mark.asyncio
async def test_state_is_refused_on_another_event_loop() -> None:
    async with sums(PushSource[Pair]()).start() as job:
        loop = asyncio.get_running_loop()
        with pytest.raises(FlowDefinitionError, match="run_coroutine_threadsafe"):
            await asyncio.to_thread(asyncio.run, _get(job))
        future = await asyncio.to_thread(asyncio.run_coroutine_threadsafe, _get(job), loop)
        assert await asyncio.wrap_future(future) is None


async def _get(job: Job) -> Any:
    return await job.state("sum").get("a")
