"""The jobs in reactivex, which has no event time, state or checkpoints."""

from __future__ import annotations

import asyncio
import operator
import time
from collections.abc import Coroutine

import reactivex as rx
from reactivex import operators as ops
from reactivex.subject import Subject

from bench.peers.programs.protocol import CALL, Outcome, Run, Task, main
from bench.peers.programs.work import (
    add_one,
    double,
    is_event,
    keep,
    same,
    sent_when_due,
    time_of_sending,
)


def stateless(task: Task) -> Run:
    def run() -> Outcome:
        steps = rx.from_iterable(range(task.records)).pipe(
            ops.map(add_one), ops.filter(keep), ops.map(double), ops.reduce(operator.add, 0)
        )
        return Outcome(steps.run())

    return run


def calls(task: Task) -> Run:
    async def call(number: int) -> int:
        await asyncio.sleep(CALL)
        return double(number)

    async def work() -> int:
        loop = asyncio.get_running_loop()
        done: asyncio.Future[int] = loop.create_future()

        def called(number: int) -> rx.Observable[int]:
            return rx.defer(lambda _: rx.from_future(_started(call(number))))

        rx.from_iterable(range(task.records)).pipe(
            ops.map(called), ops.merge(max_concurrent=task.in_flight), ops.reduce(operator.add, 0)
        ).subscribe(on_next=done.set_result, on_error=done.set_exception)
        return await done

    return lambda: Outcome(asyncio.run(work()), settings="merge(max_concurrent=…)")


def _started(call: Coroutine[object, object, int]) -> asyncio.Future[int]:
    return asyncio.ensure_future(call)


def latency(task: Task) -> Run:
    async def work() -> list[float]:
        delays: list[float] = []
        events: Subject[tuple[int, float]] = Subject()
        events.pipe(
            ops.map(same),
            ops.filter(is_event),
            ops.map(time_of_sending),
        ).subscribe(lambda at: delays.append(time.perf_counter() - at))
        async for event in sent_when_due(task.records):
            events.on_next(event)
        return delays

    return lambda: Outcome.of_delays(asyncio.run(work()), "synchronous calls, no queue")


if __name__ == "__main__":
    main("reactivex", {"stateless": stateless, "calls": calls, "latency": latency})
