"""The jobs in PySpark, as batches. Its windows count and add in the JVM: no Python function is called."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, cast

import pandas as pd
from pyspark.sql import SparkSession, functions

from bench.events import WINDOW
from bench.peers.programs.protocol import CALL, Outcome, Run, Task, main
from bench.peers.programs.work import add_one, double, keep, rows_in

_SCHEMA = "key string, ts long, value long"


def _session() -> SparkSession:
    session = (
        SparkSession.builder.master("local[1]")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "1")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
    session.range(1).collect()
    return session


def _sum(numbers: Any) -> int:
    return int(numbers.agg(functions.sum("n")).first()[0])


def stateless(task: Task) -> Run:
    session = _session()

    def run() -> Outcome:
        add = functions.udf(add_one, "long")
        kept = functions.udf(keep, "boolean")
        twice = functions.udf(double, "long")
        numbers = session.range(task.records)
        steps = numbers.select(add("id").alias("n")).where(kept("n")).select(twice("n").alias("n"))
        return Outcome(
            _sum(steps),
            settings="local[1]; udf for each function",
        )

    return run


def files(task: Task) -> Run:
    session = _session()

    def run() -> Outcome:
        events = session.read.schema(_SCHEMA).json(task.events)
        start = (functions.col("ts") - functions.col("ts") % WINDOW).alias("start")
        rows = events.groupBy("key", start).agg(
            functions.count("*").alias("count"), functions.sum("value").alias("total")
        )
        rows.write.json(f"{task.folder}/rows")
        found = [
            (row["key"], row["start"], row["count"], row["total"])
            for row in rows_in(task.place, "part-*.json")
        ]
        return Outcome(found, settings="local[1]; groupBy in the JVM, a batch")

    return run


def calls(task: Task) -> Run:
    session = _session()

    def run() -> Outcome:
        capacity = task.in_flight

        async def call(number: int) -> int:
            await asyncio.sleep(CALL)
            return double(number)

        async def gather(numbers: list[int]) -> list[int]:
            return await asyncio.gather(*map(call, numbers))

        def call_all(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
            for batch in batches:
                numbers = [int(number) for number in cast("Any", batch)["id"]]
                for begin in range(0, len(numbers), capacity):
                    some: Any = asyncio.run(gather(numbers[begin : begin + capacity]))
                    yield pd.DataFrame({"n": some})

        results = session.range(0, task.records, 1, 1).mapInPandas(call_all, "n long")
        return Outcome(_sum(results), settings="local[1]; asyncio.gather in mapInPandas")

    return run


if __name__ == "__main__":
    main("pyspark", {"stateless": stateless, "files": files, "calls": calls})
