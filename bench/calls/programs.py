"""Programs by hand that make a call for each of many values, so many at a time, and keep what the calls give.

They do what an engineer would write for the one job: no state that outlives them, no policy for failures, no deadlines.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence

CallOne = Callable[[int], Awaitable[int]]


async def workers(values: Iterable[int], call: CallOne, in_flight: int) -> list[int]:
    """Coroutines that share an iterator; results in the order of completion."""
    results: list[int] = []
    left = iter(values)

    async def work() -> None:
        keep = results.append
        for value in left:
            keep(await call(value))

    async with asyncio.TaskGroup() as group:
        for _ in range(in_flight):
            group.create_task(work())
    return results


async def workers_in_order(values: Sequence[int], call: CallOne, in_flight: int) -> list[int]:
    """Coroutines that share an iterator, and put each result into its place."""
    results = [0] * len(values)
    left = enumerate(values)

    async def work() -> None:
        for place, value in left:
            results[place] = await call(value)

    async with asyncio.TaskGroup() as group:
        for _ in range(in_flight):
            group.create_task(work())
    return results


async def task_for_each(values: Iterable[int], call: CallOne, in_flight: int) -> list[int]:
    """A task for each value, with a semaphore that bounds tasks and not only calls."""
    results: list[int] = []
    room = asyncio.Semaphore(in_flight)

    async def one(value: int) -> None:
        results.append(await call(value))
        room.release()

    async with asyncio.TaskGroup() as group:
        for value in values:
            await room.acquire()
            group.create_task(one(value))
    return results


async def gathered(values: Sequence[int], call: CallOne, in_flight: int) -> list[int]:
    """``gather`` for as many as may be under way, and then for the next ones; results in order."""
    results: list[int] = []
    for begin in range(0, len(values), in_flight):
        results += await asyncio.gather(*map(call, values[begin : begin + in_flight]))
    return results


async def one_by_one(values: Iterable[int], call: CallOne) -> list[int]:
    """A plain loop."""
    return [await call(value) for value in values]


async def waiting(answer: Callable[[], Awaitable[None]], times: int, in_flight: int) -> int:
    """Coroutines that wait for so many answers each, one after the other, and only count them; how many came."""
    answers = 0

    async def wait() -> None:
        nonlocal answers
        for _ in range(times):
            await answer()
            answers += 1

    async with asyncio.TaskGroup() as group:
        for _ in range(in_flight):
            group.create_task(wait())
    return answers
