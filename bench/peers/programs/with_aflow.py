"""The jobs in aflow."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import aflow as af
from aflow.connect import Batch, Sink, Writer, WriterContext
from aflow_connectors.files import JsonLinesSink, JsonLinesSource
from bench.events import make_events
from bench.peers.programs.protocol import CALL, Outcome, Run, Task, main
from bench.peers.programs.work import (
    DISORDER_TIME,
    WINDOW_TIME,
    Totals,
    add,
    add_one,
    double,
    is_event,
    keep,
    nothing,
    rows_in,
    same,
    sent_when_due,
    time_of_sending,
)


class Sum(Sink[int]):
    """Adds all records."""

    def __init__(self) -> None:
        self.total = 0

    async def writer(self, context: WriterContext) -> Writer[int]:
        return _Adder(self)


class _Adder(Writer[int]):
    def __init__(self, sink: Sum) -> None:
        self._sink = sink

    def write(self, batch: Batch[int]) -> None:
        self._sink.total += sum(batch.values)


def _windows(events: af.Stream[Any], /) -> af.Stream[Any]:
    return (
        events.event_time(lambda event: event["ts"], max_delay=DISORDER_TIME)
        .key_by(lambda event: event["key"])
        .window(af.Tumbling(WINDOW_TIME))
        .fold(nothing, add, name="totals")
        .map(_row)
    )


def _row(window: af.Windowed[str, Totals]) -> tuple[str, int, int, int]:
    return (window.key, window.window.start, *window.value)


def stateless(task: Task) -> Run:
    def run() -> Outcome:
        flow, total = af.Flow("stateless"), Sum()
        flow.source(range(task.records)).map(add_one).filter(keep).map(double).to(total)
        asyncio.run(flow.run())
        return Outcome(total.total)

    return run


def keyed_window(task: Task) -> Run:
    events = make_events(task.records)

    def run() -> Outcome:
        flow, rows = af.Flow("keyed-window"), af.CollectSink[Any]()
        flow.source(events).pipe(_windows).to(rows)
        asyncio.run(flow.run())
        return Outcome(rows.values)

    return run


def _from_file(task: Task, start: Callable[[af.Flow], Any], settings: str) -> Run:
    def run() -> Outcome:
        flow = af.Flow("files")
        out: JsonLinesSink[Any] = JsonLinesSink(task.place / "rows", overwrite=True)
        flow.source(JsonLinesSource(Path(task.events))).pipe(_windows).to(out)
        asyncio.run(start(flow))
        return Outcome(rows_in(task.place / "rows", "part-*.jsonl"), settings=settings)

    return run


def files(task: Task) -> Run:
    return _from_file(task, lambda flow: flow.run(), "")


def checkpoints(task: Task) -> Run:
    settings = af.Checkpointing(storage=task.place / "checkpoints", every=timedelta(seconds=1))
    return _from_file(
        task,
        lambda flow: flow.run(checkpointing=settings),
        "exactly once: output is part of the checkpoints",
    )


def calls(task: Task) -> Run:
    async def call(number: int) -> int:
        await asyncio.sleep(CALL)
        return double(number)

    def run() -> Outcome:
        flow, total = af.Flow("calls"), Sum()
        numbers = flow.source(range(task.records))
        numbers.map_async(call, ordered=False, capacity=task.in_flight).to(total)
        asyncio.run(flow.run())
        return Outcome(total.total)

    return run


def latency(task: Task) -> Run:
    async def work() -> list[float]:
        delays: list[float] = []
        flow, source = af.Flow("latency"), af.PushSource[tuple[int, float]]()
        (
            flow.source(source)
            .map(same)
            .filter(is_event)
            .map(time_of_sending)
            .to(af.CallbackSink(lambda at: delays.append(time.perf_counter() - at)))
        )
        async with flow.start() as job:
            async for event in sent_when_due(task.records):
                await source.send(event)
            source.close()
            await job.wait()
        return delays

    return lambda: Outcome.of_delays(asyncio.run(work()))


if __name__ == "__main__":
    main(
        "aflow-streams",
        {
            "stateless": stateless,
            "keyed_window": keyed_window,
            "files": files,
            "calls": calls,
            "latency": latency,
            "checkpoints": checkpoints,
        },
    )
