"""The jobs by hand: loops, dicts, and workers of asyncio."""

from __future__ import annotations

import asyncio
import json
import time

from bench.events import HandWritten, make_events
from bench.peers.programs.protocol import CALL, Outcome, Run, Task, main
from bench.peers.programs.work import (
    add_one,
    double,
    is_event,
    keep,
    rows_in,
    same,
    sent_when_due,
    time_of_sending,
)


def stateless(task: Task) -> Run:
    """A loop."""

    def run() -> Outcome:
        total = 0
        for number in range(task.records):
            more = add_one(number)
            if keep(more):
                total += double(more)
        return Outcome(total)

    return run


def keyed_window(task: Task) -> Run:
    """A dict for each window."""
    events = make_events(task.records)

    def run() -> Outcome:
        program = HandWritten()
        program.add(events)
        return Outcome(program.finish())

    return run


def files(task: Task) -> Run:
    """The same from and to files, with ``json`` of the standard library."""

    def run() -> Outcome:
        program = HandWritten()
        with open(task.events, "rb") as lines:
            program.add([json.loads(line) for line in lines])
        with (task.place / "rows.jsonl").open("w") as out:
            for row in program.finish():
                out.write(json.dumps(row) + "\n")
        return Outcome(rows_in(task.place))

    return run


def calls(task: Task) -> Run:
    """As many workers as calls at once."""

    async def work() -> int:
        numbers, total = iter(range(task.records)), 0

        async def worker() -> None:
            nonlocal total
            for number in numbers:
                await asyncio.sleep(CALL)
                total += double(number)

        async with asyncio.TaskGroup() as group:
            for _ in range(task.in_flight):
                group.create_task(worker())
        return total

    return lambda: Outcome(asyncio.run(work()))


def latency(task: Task) -> Run:
    """A queue between a sender and a worker."""

    async def work() -> list[float]:
        queue: asyncio.Queue[tuple[int, float]] = asyncio.Queue(1024)
        delays: list[float] = []

        async def send() -> None:
            async for event in sent_when_due(task.records):
                await queue.put(event)

        async def receive() -> None:
            while len(delays) < task.records:
                event = same(await queue.get())
                if is_event(event):
                    delays.append(time.perf_counter() - time_of_sending(event))

        async with asyncio.TaskGroup() as group:
            group.create_task(send())
            group.create_task(receive())
        return delays

    return lambda: Outcome.of_delays(asyncio.run(work()))


if __name__ == "__main__":
    main(
        "",
        {
            "stateless": stateless,
            "keyed_window": keyed_window,
            "files": files,
            "calls": calls,
            "latency": latency,
        },
    )
