"""Reads of state with a time to live, and of async handlers that run."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import aflow as af
from aflow import Checkpointing, CollectSink, Context, Flow, KeyedProcess, PushSource
from aflow.state.specs import ListState, TtlOn, ValueState
from aflow.testing.virtual_time import settle, virtual_time
from tests.runtime.state.test_state_listing import BACKENDS, options
from tests.sorted_store import sorted_stores

pytestmark = pytest.mark.usefixtures("inline_threads")

#: Seconds.
TTL = 60


class Remembering(KeyedProcess[str, tuple[str, int], int]):
    last: ValueState[int]

    def __init__(self, ttl_on: TtlOn) -> None:
        self.last = ValueState[int]("last", of=int, ttl=timedelta(seconds=TTL), ttl_on=ttl_on)

    def process(self, value: tuple[str, int], ctx: Context[str]) -> Iterator[int]:
        ctx.state(self.last).set(value[1])
        yield value[1]


@pytest.mark.parametrize("disk", BACKENDS)
@pytest.mark.parametrize("ttl_on", TtlOn)
@virtual_time
async def test_reads_do_not_extend_a_life_and_expired_state_is_absent(
    tmp_path: Path, ttl_on: TtlOn, disk: bool
) -> None:
    source = PushSource[tuple[str, int]]()
    flow = Flow("ttl")
    pairs = flow.source(source, name="pairs").key_by(lambda pair: pair[0], name="key")
    pairs.process(Remembering(ttl_on), name="last").to(CollectSink[int](), name="out")
    checkpointing = Checkpointing(storage=tmp_path / "checkpoints", every=None)
    with sorted_stores():
        async with flow.start(
            options=options(tmp_path, disk, resident=1), checkpointing=checkpointing
        ) as job:
            reader = job.state("last")

            async def found() -> list[Any]:
                """Return what each kind of read finds."""
                live = [item async for item in reader.items()]
                stored = [item async for item in reader.items(as_of="checkpoint")]
                one = await reader.get("a"), await reader.get("a", as_of="checkpoint")
                return [live, stored, one]

            await source.send_many([("a", 1), ("b", 2), ("c", 3)])
            await settle()
            await job.checkpoint()
            present = [[("a", 1), ("b", 2), ("c", 3)]] * 2 + [(1, 1)]
            assert await found() == present
            await asyncio.sleep(TTL - 1)
            assert await found() == present
            await asyncio.sleep(2)
            assert await found() == [[], [], (None, None)]


class Slow(af.AsyncKeyedProcess[str, str, str]):
    """Writes its state, then waits until it is let go on."""

    seen = ListState[str]("seen", of=str)

    def __init__(self) -> None:
        self.go = asyncio.Event()

    async def process(self, value: str, ctx: af.AsyncContext[str]) -> list[str]:
        ctx.state(self.seen).add(value)
        await self.go.wait()
        return [value]


@pytest.mark.parametrize("disk", BACKENDS)
@virtual_time
async def test_the_state_of_a_running_handler_is_not_visible_before_its_commit(
    tmp_path: Path, disk: bool
) -> None:
    source = PushSource[str]()
    process = Slow()
    go = process.go
    flow = Flow("slow")
    texts = flow.source(source, name="texts").key_by(lambda text: text[0], name="key")
    texts.process_async(process, name="slow").to(CollectSink[str](), name="out")
    with sorted_stores():
        async with flow.start(options=options(tmp_path, disk, resident=1)) as job:
            reader = job.state("slow")
            await source.send_many(["a1", "b1"])
            await settle()
            before = [item async for item in reader.items()]
            go.set()
            await settle()
            after = [item async for item in reader.items()]
            go.clear()
            await source.send("a2")
            await settle()
            meanwhile = await reader.get("a")
            go.set()

    assert before == []
    assert after == [("a", ["a1"]), ("b", ["b1"])]
    assert meanwhile == ["a1"]
