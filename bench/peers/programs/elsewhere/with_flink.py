"""The jobs in PyFlink: a local cluster of one task slot, functions in the Python process that Flink starts.

Results are written by the last function when it is closed: collecting them by the client costs more than the job.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

from pyflink.common import Configuration, Duration, Time, Types, WatermarkStrategy
from pyflink.common.watermark_strategy import TimestampAssigner
from pyflink.datastream import AsyncDataStream, StreamExecutionEnvironment
from pyflink.datastream.connectors.file_system import FileSource, StreamFormat
from pyflink.datastream.functions import (
    AggregateFunction,
    AsyncFunction,
    FilterFunction,
    ProcessWindowFunction,
)
from pyflink.datastream.window import TumblingEventTimeWindows
from pyflink.java_gateway import get_gateway

from bench.events import DISORDER, WINDOW, make_events
from bench.peers.programs.protocol import CALL, Outcome, Run, Task, main
from bench.peers.programs.work import add, add_one, double, keep, merged, nothing, rows_in

_SETTINGS = "parallelism 1, Python functions in a process of their own"


class Last(FilterFunction):
    """Keeps all records and writes them, or their sum, to a file at the end."""

    def __init__(self, folder: str, *, adds: bool) -> None:
        self.folder = folder
        self.adds = adds

    def open(self, runtime_context: Any) -> None:
        self.total, self.rows = 0, []

    def filter(self, value: Any) -> bool:
        if self.adds:
            self.total += value
        else:
            self.rows.append(value)
        return False

    def close(self) -> None:
        some = [self.total] if self.adds else self.rows
        with open(f"{self.folder}/{uuid4().hex}.jsonl", "w") as out:
            out.writelines(json.dumps(list(one) if not self.adds else one) + "\n" for one in some)


class _Totals(AggregateFunction):
    def create_accumulator(self) -> tuple[int, int]:
        return nothing()

    def add(self, value: Any, accumulator: tuple[int, int]) -> tuple[int, int]:
        return add(accumulator, value)

    def get_result(self, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator

    def merge(self, acc_a: tuple[int, int], acc_b: tuple[int, int]) -> tuple[int, int]:
        return merged(acc_a, acc_b)


class _Row(ProcessWindowFunction):
    def process(self, key: str, context: Any, elements: Any) -> Any:
        for count, total in elements:
            yield key, context.window().start, count, total


class _EventTime(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value["ts"])


class _Call(AsyncFunction):
    async def async_invoke(self, value: int) -> list[int]:
        await asyncio.sleep(CALL)
        return [double(value)]


def _environment(**settings: str) -> StreamExecutionEnvironment:
    configuration = Configuration()
    configuration.set_string("python.executable", sys.executable)
    configuration.set_string("python.client.executable", sys.executable)
    configuration.set_string("rest.port", "0")
    for name, value in settings.items():
        configuration.set_string(name, value)
    environment = StreamExecutionEnvironment.get_execution_environment(configuration)
    environment.set_parallelism(1)
    return environment


def _sum(environment: StreamExecutionEnvironment, numbers: Any, task: Task) -> int:
    numbers.filter(Last(task.folder, adds=True)).print()
    environment.execute(task.job)
    return sum(json.loads(line) for file in task.place.glob("*.jsonl") for line in file.open())


def stateless(task: Task) -> Run:
    numbers = list(range(task.records))

    def run() -> Outcome:
        environment = _environment()
        given = environment.from_collection(numbers, Types.LONG())
        steps = given.map(add_one, Types.LONG()).filter(keep).map(double, Types.LONG())
        return Outcome(_sum(environment, steps, task), settings=_SETTINGS)

    return run


def _windowed(events: Any) -> Any:
    late = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(DISORDER))
    return (
        events.assign_timestamps_and_watermarks(late.with_timestamp_assigner(_EventTime()))
        .key_by(lambda event: event["key"], Types.STRING())
        .window(TumblingEventTimeWindows.of(Time.milliseconds(WINDOW)))
        .aggregate(_Totals(), _Row(), Types.PICKLED_BYTE_ARRAY(), Types.PICKLED_BYTE_ARRAY())
    )


def keyed_window(task: Task) -> Run:
    events = make_events(task.records)

    def run() -> Outcome:
        environment = _environment()
        rows = _windowed(environment.from_collection(events))
        rows.filter(Last(task.folder, adds=False)).print()
        environment.execute(task.job)
        return Outcome(rows_in(task.place), settings=_SETTINGS)

    return run


def _from_file(task: Task, **settings: str) -> Outcome:
    environment = _environment(**settings)
    lines = FileSource.for_record_stream_format(
        StreamFormat.text_line_format(), Path(task.events).as_uri()
    ).build()
    given = environment.from_source(lines, WatermarkStrategy.no_watermarks(), "lines")
    rows = _windowed(given.map(json.loads))
    rows.filter(Last(task.folder, adds=False)).print()
    environment.execute(task.job)
    how = "; ".join((_SETTINGS, *(f"{name}={value}" for name, value in settings.items())))
    return Outcome(rows_in(task.place), settings=how)


def files(task: Task) -> Run:
    return lambda: _from_file(task)


def checkpoints(task: Task) -> Run:
    settings = {
        "execution.checkpointing.interval": "1s",
        "execution.checkpointing.dir": (task.place / "checkpoints").as_uri(),
    }
    return lambda: _from_file(task, **settings)


def calls(task: Task) -> Run:
    numbers = list(range(task.records))

    def run() -> Outcome:
        environment = _environment()
        given = environment.from_collection(numbers, Types.LONG())
        results = AsyncDataStream.unordered_wait(
            given, _Call(), Time.seconds(60), task.in_flight, Types.LONG()
        )
        return Outcome(_sum(environment, results, task), settings=_SETTINGS)

    return run


if __name__ == "__main__":
    os.environ.setdefault("_JAVA_OPTIONS", "-Xmx2g")
    get_gateway()  # the JVM
    main(
        "apache-flink",
        {
            "stateless": stateless,
            "keyed_window": keyed_window,
            "files": files,
            "calls": calls,
            "checkpoints": checkpoints,
        },
    )
