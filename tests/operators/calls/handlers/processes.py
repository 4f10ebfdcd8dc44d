"""Processes whose handlers wait, for tests: what they do, they do between two pauses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aflow.machines.calls.on_error import FailedCall
from aflow.model.tags import Tag
from aflow.model.time import TimeDomain
from aflow.operators.calls.async_process import (
    AsyncContext,
    AsyncKeyedProcess,
)
from aflow.state.specs import ListState, ValueState
from tests.operators.calls.harness import CallHarness, Pause

ODD = Tag[int]("odd")
FAILED = Tag[FailedCall[Any]]("failed")


class Adding(AsyncKeyedProcess[str, int, str]):
    """Adds up, and waits before and after it has written."""

    total = ValueState("total", of=int)
    seen = ListState("seen", of=int)

    async def process(self, value: int, ctx: AsyncContext[str]) -> list[str]:
        await Pause()
        total = ctx.state(self.total)
        total.set(total.get(0) + value)
        ctx.state(self.seen).add(value)
        if value % 2:
            ctx.side(ODD, value)
        await Pause()
        if value < 0:
            raise ValueError("below zero")
        return [f"{ctx.key}{total.get()}"]


class Ringing(AsyncKeyedProcess[str, Any, Any]):
    """A value is what is done to timers: set those at such moments, delete those at minus such."""

    log = ListState("log", of=str)

    async def process(self, value: list[int], ctx: AsyncContext[str]) -> list[Any]:
        await Pause()
        for at in value:
            if at < 0:
                ctx.delete_event_timer(-at)
            else:
                ctx.set_event_timer(at)
        return [(ctx.key, value, ctx.watermark)]

    async def on_timer(self, at: int, ctx: AsyncContext[str]) -> list[Any]:
        await Pause()
        assert ctx.timer_domain is TimeDomain.EVENT
        if at % 10 == 5:
            ctx.set_event_timer(at - 1)
        return [(ctx.key, at, ctx.watermark)]


Do = Callable[[AsyncContext[str]], Any]


def do(what: Do) -> Do:
    """``what``, and the type of it."""
    return what


class Doing(AsyncKeyedProcess[str, Do, Any]):
    """A value is what is done."""

    value = ValueState("value", of=int)
    count = ValueState("count", of=int)

    async def process(self, value: Do, ctx: AsyncContext[str]) -> list[Any]:
        result = value(ctx)
        await Pause()
        return [result]

    async def on_timer(self, at: int, ctx: AsyncContext[str]) -> list[Any]:
        if at == 13:
            raise ValueError("unlucky")
        await Pause()
        return [(ctx.timer_domain, at, ctx.timestamp)]


class OnBothClocks(AsyncKeyedProcess[str, str, str]):
    """Sets a timer on each clock for "both"."""

    async def process(self, value: str, ctx: AsyncContext[str]) -> list[str]:
        await Pause()
        if value == "both":
            ctx.set_processing_timer(50)
            ctx.set_event_timer(90)
        return [f"{ctx.key} {value}"]

    async def on_timer(self, at: int, ctx: AsyncContext[str]) -> list[str]:
        await Pause()
        assert ctx.timer_domain is not None
        return [f"{ctx.key} {ctx.timer_domain.value} {at}"]


Start = Callable[..., CallHarness]
"""Begins a step: a function, and how."""


def total(step: CallHarness, key: str) -> object:
    return step.state("total", key)
