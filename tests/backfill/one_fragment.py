"""One fragment by itself: input arrives, and output is accepted, when the test allows it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack
from contextvars import Context
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar, TypeVarTuple, Unpack

import aflow as af
from aflow.backfill.blocks import ExchangedRows, ExitBatch, Inbox, InputRows, Outbox
from aflow.backfill.fragment_planner import plan_fragments
from aflow.backfill.fragment_run import FragmentResult, Partition, run_fragment
from aflow.backfill.fragments import Fragment
from aflow.backfill.portable_fragment import portable_copy
from aflow.testing import VirtualClock
from aflow.testing.leftovers import no_leftovers
from aflow.testing.virtual_time import VirtualTimeLoop
from tests.backfill.items import Item, Items, at_of

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


async def at_once() -> None:
    """No wait."""


async def never() -> None:
    """Endless wait."""
    await asyncio.Event().wait()


async def after_a_while() -> None:
    """Wait of a second."""
    await asyncio.sleep(1)


@dataclass
class Rows:
    """An inbox; ``wait`` is awaited before each block, and ``end`` before the end."""

    blocks: list[InputRows]
    wait: Callable[[], Awaitable[None]] = at_once
    end: Callable[[], Awaitable[None]] = at_once
    taken: int = 0
    """Rows taken from it."""

    async def take(self) -> InputRows | None:
        if not self.blocks:
            await self.end()
            return None
        await self.wait()
        block = self.blocks.pop(0)
        self.taken += len(block.times if isinstance(block, ExchangedRows) else block)
        return block


@dataclass
class Results:
    """An outbox; ``wait`` is awaited before each acceptance."""

    wait: Callable[[], Awaitable[None]] = at_once
    values: list[Any] = field(default_factory=list[Any])
    put_at: list[float] = field(default_factory=list[float])

    async def put(self, exit_batch: ExitBatch, /) -> None:
        await self.wait()
        self.values += exit_batch.batch.values
        self.put_at.append(asyncio.get_running_loop().time())


def fragments(build: Callable[[Items], af.Stream[Any]]) -> tuple[Fragment, ...]:
    """Fragments of a flow, as executors receive them."""
    flow = af.Flow("one")
    items = flow.source(list[Item](), name="items").event_time(at_of, name="time")
    build(items).to(af.CollectSink[Any](), name="out")
    return tuple(map(portable_copy, plan_fragments(flow.graph).fragments))


def source_rows(items: list[Item], size: int = 10) -> list[InputRows]:
    return [items[at : at + size] for at in range(0, len(items), size)]


def keyed_rows(items: list[Item], size: int = 10) -> list[InputRows]:
    return [
        ExchangedRows(
            inputs=[0] * len(some),
            times=[item.at for item in some],
            keys=[item.key for item in some],
            values=list(some),
        )
        for some in (items[at : at + size] for at in range(0, len(items), size))
    ]


async def run_one(
    fragment: Fragment, inbox: Inbox, outbox: Outbox, *, batch: int = 64, together: int = 64
) -> FragmentResult:
    options = af.Options(clock=VirtualClock(), batch_records=batch)
    return await run_fragment(
        fragment, Partition(), inbox, outbox, options=options, together=together
    )


class CountingLoop(VirtualTimeLoop):
    """Event loop that records its alarms."""

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[Ts]], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        handle = super().call_at(when, callback, *args, context=context)
        self.__dict__.setdefault("alarms", []).append(handle)
        return handle


def leaving_nothing(main: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Run ``main``, which must leave neither tasks nor alarms."""

    async def watched() -> T:
        async with AsyncExitStack() as stack:
            stack.enter_context(no_leftovers("the fragment"))
            stack.push_async_callback(asyncio.sleep, 0)
            stack.callback(partial(_check_alarms, asyncio.get_running_loop()))
            return await main()
        raise AssertionError("nothing above swallows an error")

    with asyncio.Runner(loop_factory=CountingLoop) as runner:
        return runner.run(watched())


def _check_alarms(loop: asyncio.AbstractEventLoop) -> None:
    alarms: list[asyncio.TimerHandle] = loop.__dict__.get("alarms", [])
    left = [one for one in alarms if not one.cancelled() and one.when() > loop.time()]
    assert not left, f"left: {left}"
