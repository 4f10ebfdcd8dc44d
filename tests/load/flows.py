"""Flows and loads of the tests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import aflow as af
from aflow.connect import Sink

SECOND = timedelta(seconds=1)


def doubling(sink: Sink[int] | None = None) -> af.Flow:
    """Return a flow of one step between the source ``numbers`` and the sink ``out``."""
    flow = af.Flow("doubling")
    numbers = flow.source([0], name="numbers")
    numbers.map(lambda n: 2 * n, name="double").to(sink or af.CollectSink[int](), name="out")
    return flow


def calling(call: Callable[[int], Awaitable[int]], capacity: int = 10) -> af.Flow:
    """Return a flow with a call for each record."""
    flow = af.Flow("calling")
    numbers = flow.source([0], name="numbers")
    numbers.map_async(call, capacity=capacity, name="call").to(af.CollectSink[int](), name="out")
    return flow


async def after_50_ms(n: int) -> int:
    await asyncio.sleep(0.05)
    return n
