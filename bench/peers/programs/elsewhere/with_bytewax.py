"""The jobs in bytewax: one worker, batches of 1,000 records where the source decides it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import bytewax.operators as op
import bytewax.operators.windowing as windows
from bytewax.connectors.files import FileSink, FileSource
from bytewax.dataflow import Dataflow
from bytewax.inputs import DynamicSource, StatelessSourcePartition
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.testing import TestingSink, TestingSource, run_main

from bench.events import WINDOW, make_events
from bench.peers.programs.protocol import CALL, Outcome, Run, Task, main
from bench.peers.programs.work import (
    DISORDER_TIME,
    EPOCH,
    WINDOW_TIME,
    add,
    add_one,
    double,
    due,
    is_event,
    keep,
    merged,
    nothing,
    rows_in,
    same,
    time_of,
    time_of_sending,
)

BATCH = 1_000


class Sum(DynamicSink):
    """Adds all records."""

    def __init__(self) -> None:
        self.total = 0

    def build(self, step_id: str, worker_index: int, worker_count: int) -> StatelessSinkPartition:
        return _Adder(self)


class _Adder(StatelessSinkPartition):
    def __init__(self, sink: Sum) -> None:
        self._sink = sink

    def write_batch(self, items: list[int]) -> None:
        self._sink.total += sum(items)


def _windowed(events: Any) -> Any:
    keyed = op.key_on("key", events, lambda event: event["key"])
    out = windows.fold_window(
        "totals",
        keyed,
        # Its own clock adds the time of the machine to the watermark, so a slow one drops records as late.
        windows.EventClock(
            time_of,
            wait_for_system_duration=DISORDER_TIME,
            now_getter=lambda: EPOCH,
            to_system_utc=lambda _: None,
        ),
        windows.TumblingWindower(length=WINDOW_TIME, align_to=EPOCH),
        nothing,
        add,
        merged,
    )
    return op.map("row", out.down, _row)


def _row(item: Any) -> tuple[str, int, int, int]:
    key, (window, (count, total)) = item
    return key, window * WINDOW, count, total


def stateless(task: Task) -> Run:
    def run() -> Outcome:
        flow, total = Dataflow("stateless"), Sum()
        numbers = op.input("in", flow, TestingSource(range(task.records), batch_size=BATCH))
        more = op.map("add", numbers, add_one)
        op.output("out", op.map("double", op.filter("keep", more, keep), double), total)
        run_main(flow)
        return Outcome(total.total, settings=f"batches of {BATCH}")

    return run


def keyed_window(task: Task) -> Run:
    events = make_events(task.records)

    def run() -> Outcome:
        flow, rows = Dataflow("keyed_window"), []
        given = op.input("in", flow, TestingSource(events, batch_size=BATCH))
        op.output("out", _windowed(given), TestingSink(rows))
        run_main(flow)
        return Outcome(rows, settings=f"batches of {BATCH}")

    return run


def _from_file(task: Task, **how: Any) -> list[list[Any]]:
    out = task.place / "rows.jsonl"
    out.touch()
    flow = Dataflow("files")
    lines = op.input("in", flow, FileSource(Path(task.events), batch_size=BATCH))
    rows = _windowed(op.map("parse", lines, json.loads))
    keyed = op.map("format", rows, lambda row: (row[0], json.dumps(row)))
    op.output("out", keyed, FileSink(out))
    run_main(flow, **how)
    return rows_in(task.place)


def files(task: Task) -> Run:
    return lambda: Outcome(_from_file(task), settings=f"batches of {BATCH}")


def checkpoints(task: Task) -> Run:
    def run() -> Outcome:
        state = task.place / "recovery"
        state.mkdir()
        init_db_dir(state, 1)
        recovery = RecoveryConfig(str(state))
        rows = _from_file(task, epoch_interval=timedelta(seconds=1), recovery_config=recovery)
        return Outcome(rows, settings=f"batches of {BATCH}; snapshots in SQLite")

    return run


def calls(task: Task) -> Run:
    """Bytewax awaits nothing: a user gathers the calls of a batch in a loop of one's own, and waits for the slowest."""

    def run() -> Outcome:
        with asyncio.Runner() as runner:

            async def call(number: int) -> int:
                await asyncio.sleep(CALL)
                return double(number)

            async def gather(numbers: list[int]) -> list[int]:
                return await asyncio.gather(*map(call, numbers))

            def call_all(numbers: list[int]) -> Iterable[int]:
                return runner.run(gather(numbers))

            flow, total = Dataflow("calls"), Sum()
            source = TestingSource(range(task.records), batch_size=task.in_flight)
            numbers = op.input("in", flow, source)
            op.output("out", op.flat_map_batch("call", numbers, call_all), total)
            run_main(flow)
        return Outcome(total.total, settings="asyncio.gather for each batch of as many")

    return run


class _Ticks(DynamicSource):
    def __init__(self, records: int) -> None:
        self.records = records

    def build(self, step_id: str, worker_index: int, worker_count: int) -> StatelessSourcePartition:
        return _Ticking(self.records)


class _Ticking(StatelessSourcePartition):
    def __init__(self, records: int) -> None:
        self._events = due(records)
        self._next = next(self._events, None)

    def next_batch(self) -> list[tuple[int, float]]:
        if self._next is None:
            raise StopIteration
        some, now = [], time.perf_counter()
        while self._next is not None and self._next[1] <= now:
            some.append(self._next)
            self._next = next(self._events, None)
        return some

    def next_awake(self) -> datetime | None:
        if self._next is None:
            return None
        wait = max(0.0, self._next[1] - time.perf_counter())
        return datetime.now(UTC) + timedelta(seconds=wait)


def latency(task: Task) -> Run:
    def run() -> Outcome:
        delays: list[float] = []

        def arrive(at: float) -> float:
            delays.append(time.perf_counter() - at)
            return at

        flow = Dataflow("latency")
        events = op.input("in", flow, _Ticks(task.records))
        all_of_them = op.filter("all", op.map("same", events, same), is_event)
        times = op.map("time", all_of_them, time_of_sending)
        op.output("out", op.map("arrive", times, arrive), TestingSink([]))
        run_main(flow)
        return Outcome.of_delays(delays)

    return run


if __name__ == "__main__":
    main(
        "bytewax",
        {
            "stateless": stateless,
            "keyed_window": keyed_window,
            "files": files,
            "calls": calls,
            "latency": latency,
            "checkpoints": checkpoints,
        },
    )
