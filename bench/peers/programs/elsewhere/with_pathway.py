"""The jobs in pathway. Its windows count and add in Rust: no Python function is called for each record."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pathway as pw

from bench.events import WINDOW, make_events
from bench.peers.programs.protocol import CALL, Outcome, Run, Task, main
from bench.peers.programs.work import add_one, double, due, keep, rows_in


class Number(pw.Schema):
    """A number."""

    n: int


class Event(pw.Schema):
    """An event of the keyed jobs."""

    key: str
    ts: int
    value: int


class Tick(pw.Schema):
    """An event of the job ``latency``."""

    n: int
    at: float


class _Numbers(pw.io.python.ConnectorSubject):
    def __init__(self, records: int) -> None:
        super().__init__()
        self.records = records

    def run(self) -> None:
        for number in range(self.records):
            self.next(n=number)


class _Events(pw.io.python.ConnectorSubject):
    def __init__(self, events: Any) -> None:
        super().__init__()
        self.events = events

    def run(self) -> None:
        for event in self.events:
            self.next(**event)


class _Ticks(pw.io.python.ConnectorSubject):
    def __init__(self, records: int) -> None:
        super().__init__()
        self.records = records

    def run(self) -> None:
        for number, at in due(self.records):
            if (wait := at - time.perf_counter()) > 0:
                time.sleep(wait)
            self.next(n=number, at=at)


def _same(number: int) -> int:
    return number


def _is_number(number: int) -> bool:
    return number >= 0


def _same_time(at: float) -> float:
    return at


def _run() -> None:
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)


def _sum(table: Any) -> int:
    """Run, and return the sum of column ``n``."""
    total = 0

    def add(key: Any, row: dict[str, Any], time: int, is_addition: bool) -> None:
        nonlocal total
        total += row["n"] if is_addition else -row["n"]

    pw.io.subscribe(table, on_change=add)
    _run()
    return total


def stateless(task: Task) -> Run:
    def run() -> Outcome:
        numbers = pw.io.python.read(_Numbers(task.records), schema=Number)
        more = numbers.select(n=pw.apply(add_one, pw.this.n))
        kept = more.filter(pw.apply(keep, pw.this.n))
        return Outcome(_sum(kept.select(n=pw.apply(double, pw.this.n))))

    return run


def _windowed(events: Any) -> Any:
    windows = events.windowby(
        events.ts, window=pw.temporal.tumbling(duration=WINDOW), instance=events.key
    )
    return windows.reduce(
        key=pw.this._pw_instance,
        start=pw.this._pw_window_start,
        count=pw.reducers.count(),
        total=pw.reducers.sum(pw.this.value),
    )


def keyed_window(task: Task) -> Run:
    events = make_events(task.records)

    def run() -> Outcome:
        rows: dict[Any, tuple[str, int, int, int]] = {}

        def change(key: Any, row: dict[str, Any], time: int, is_addition: bool) -> None:
            if is_addition:
                rows[key] = (row["key"], row["start"], row["count"], row["total"])

        pw.io.subscribe(
            _windowed(pw.io.python.read(_Events(events), schema=Event)), on_change=change
        )
        _run()
        return Outcome(
            list(rows.values()), settings="reducers in Rust; results are updated, not final"
        )

    return run


def files(task: Task) -> Run:
    def run() -> Outcome:
        out = task.place / "rows.jsonl"
        events = pw.io.jsonlines.read(task.events, schema=Event, mode="static")
        pw.io.jsonlines.write(_windowed(events), str(out))
        _run()
        rows = [
            (row["key"], row["start"], row["count"], row["total"])
            for row in rows_in(task.place)
            if row["diff"] > 0
        ]
        return Outcome(rows, settings="mode=static; parser and reducers in Rust")

    return run


def calls(task: Task) -> Run:
    @pw.udf(executor=pw.udfs.async_executor(capacity=task.in_flight))
    async def call(number: int) -> int:
        await asyncio.sleep(CALL)
        return double(number)

    def run() -> Outcome:
        numbers = pw.io.python.read(_Numbers(task.records), schema=Number)
        return Outcome(
            _sum(numbers.select(n=call(pw.this.n))), settings="async_executor(capacity=…)"
        )

    return run


def latency(task: Task) -> Run:
    def run() -> Outcome:
        delays: list[float] = []

        def arrive(row: dict[str, Any], **_: object) -> None:
            delays.append(time.perf_counter() - row["at"])

        ticks = pw.io.python.read(_Ticks(task.records), schema=Tick, autocommit_duration_ms=10)
        same = ticks.select(n=pw.apply(_same, pw.this.n), at=pw.this.at)
        kept = same.filter(pw.apply(_is_number, pw.this.n))
        pw.io.subscribe(kept.select(at=pw.apply(_same_time, pw.this.at)), on_change=arrive)
        _run()
        return Outcome.of_delays(delays, "autocommit_duration_ms=10")

    return run


if __name__ == "__main__":
    main(
        "pathway",
        {
            "stateless": stateless,
            "keyed_window": keyed_window,
            "files": files,
            "calls": calls,
            "latency": latency,
        },
    )
