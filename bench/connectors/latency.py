"""The latency that aflow adds between a source and a sink, beside a loop over the same client.

A bare client sends messages at a modest rate, the program under test relays them from the input to the output of one
system, and another bare client receives them. All are on one event loop. Each delay is from before the send to the
reception; ``latency_added_p50_ms`` is the median of aflow's delays, less that of the loop's.

A loop that does not keep up with the rate has a backlog, and its delays are those of its queue. Such a figure, and one
by which aflow would be much faster than its client, is impossible: both relays are measured again, and if that does not
help, no figure is given.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from itertools import count
from typing import Any, Final, Literal

import aflow as af
from bench.connectors.comparison import temporary_folder
from bench.harness import Budget, Measurement, percentile, run_async

RATE: Final = 200  # messages per second
MESSAGES: Final = 300
CHECKPOINTS: Final = timedelta(milliseconds=100)

#: Time (s) between two messages that are sent until the first one is received, and the most for it and for the rest.
_AGAIN: Final = 0.1
_MOST: Final = 30.0

#: Messages that a relay may have in flight at most, at the median.
_MOST_IN_FLIGHT: Final = 5

#: Time (ms) by which aflow may be faster than the loop, and the share of the delay of the loop.
_FASTER: Final = 1.0
_FASTER_SHARE: Final = 0.5

#: Measurements before the figures are refused.
_ATTEMPTS: Final = 3

Program = Literal["in_aflow", "by_hand"]

_numbers = count()


@dataclass(frozen=True, slots=True)
class Ends:
    """The bare clients of a relay."""

    send: Callable[[int], Awaitable[object]]
    """Sends the message with this number."""
    numbers: AsyncGenerator[int]
    """Yields the numbers of the messages that the relay has passed on."""


def input_and_output(program: Program) -> tuple[str, str]:
    """Return the names of an input and an output that no other relay has."""
    number = next(_numbers)
    return f"from_{program}_{number}", f"to_{program}_{number}"


def added_latency(
    name: str, running: Callable[[Program], AbstractAsyncContextManager[Ends]]
) -> Measurement:
    """Measure both relays, which ``running`` runs within its context, in turn. Each has an input of its own.

    Raises ``SystemExit`` if the figures are impossible each time.
    """
    reason = ""
    for _ in range(_ATTEMPTS):
        theirs, ours = (
            percentile(run_async(_delays(running(program))), 0.5) * 1000
            for program in ("by_hand", "in_aflow")
        )
        reason = reason_against(ours, theirs)
        if not reason:
            return Measurement(
                name,
                {
                    "latency_p50_ms": round(ours, 2),
                    "baseline_latency_p50_ms": round(theirs, 2),
                    "latency_added_p50_ms": round(ours - theirs, 2),
                    "messages": MESSAGES,
                    "verified": True,
                },
                [Budget("latency_added_p50_ms", at_most=2)],
            )
    raise SystemExit(f"{name}: {reason}; no latency was measured")


def reason_against(ours: float, theirs: float) -> str:
    """Return the reason for which medians (ms) of aflow and of the loop are no measurement; "" for good ones."""
    most = _MOST_IN_FLIGHT * 1000 / RATE
    if theirs > most:
        return (
            f"the loop took {theirs:.1f} ms a message, more than {most:g}: it does not keep up with {RATE} messages "
            f"a second"
        )
    if theirs - ours > max(_FASTER, _FASTER_SHARE * theirs):
        return f"aflow took {ours:.2f} ms a message and the loop {theirs:.2f}, which is impossible"
    return ""


@asynccontextmanager
async def flow_between(source: af.Source[Any], sink: af.Sink[Any]) -> AsyncGenerator[None]:
    """Run a flow from ``source`` to ``sink``, with checkpoints."""
    with temporary_folder() as folder:
        flow = af.Flow("relay")
        flow.source(source, name="in").to(sink, name="out")
        checkpointing = af.Checkpointing(storage=folder, every=CHECKPOINTS)
        async with flow.start(checkpointing=checkpointing) as job:
            yield
            await job.cancel()


@asynccontextmanager
async def loop_beside(loop: Coroutine[Any, Any, None]) -> AsyncGenerator[None]:
    """Run a loop that ends by cancellation only."""
    async with asyncio.TaskGroup() as group:
        task = group.create_task(loop)
        yield
        while not task.done():  # a command of redis-py may swallow a cancellation
            task.cancel()
            await asyncio.wait([task], timeout=0.1)


async def _delays(running: AbstractAsyncContextManager[Ends]) -> list[float]:
    """Return the delay (s) of each message. Raises ``TimeoutError`` if one is lost."""
    sent: dict[int, float] = {}
    delays: dict[int, float] = {}
    is_connected = asyncio.Event()

    async def receive(numbers: AsyncGenerator[int]) -> None:
        async with aclosing(numbers):
            async for number in numbers:
                is_connected.set()
                if number >= 0:
                    # Sinks that are at least once may write a message twice: the first one counts.
                    delays.setdefault(number, time.perf_counter() - sent[number])
                if len(delays) == MESSAGES:
                    return

    async with running as ends, asyncio.timeout(_MOST), asyncio.TaskGroup() as group:
        group.create_task(receive(ends.numbers))
        number = -1
        while not is_connected.is_set():  # the relay may not have subscribed yet
            await ends.send(number)
            number -= 1
            await asyncio.sleep(_AGAIN)
        start = time.perf_counter()
        for number in range(MESSAGES):
            await asyncio.sleep(start + number / RATE - time.perf_counter())
            sent[number] = time.perf_counter()
            await ends.send(number)
    return list(delays.values())
