"""A call for each row of a DataFrame, one in a hundred slow, against ``asyncio.gather`` for each batch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from aflow_connectors.spark import map_async
from aflow_connectors.spark.dataframe.arrow import pa
from bench.harness import Budget
from bench.spark.trials import medians

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BUDGETS = [
    Budget("enrichment_times_gather", at_least=8),
    Budget("enrichment_of_limit", at_least=0.8),
]

#: Concurrent tasks, and calls of each: 1,000 in total.
TASKS, CALLS = 2, 500
FAST, SLOW = 0.005, 0.2
#: One call in this number is slow.
ONE_IN = 100


def figures(session: SparkSession, records: int, rounds: int) -> dict[str, float]:
    """Measure; the limit is the rate of 1,000 calls in flight if nothing else takes time."""
    rows = session.range(0, records, 1, TASKS)
    # A batch has as many rows as there are concurrent calls, so gather has the same number in flight.
    few = session.range(0, records // 10, 1, TASKS)
    ours = medians(
        "enrichment",
        {"map_async": _summed(map_async(rows, call, schema="n long", capacity=CALLS))},
        rounds,
    )
    by_batch = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = session.conf.get(by_batch)
    session.conf.set(by_batch, str(CALLS))
    try:
        frame: Any = few
        theirs = medians(
            "gather", {"gather": _summed(frame.mapInArrow(gathered, "n long"))}, rounds
        )
    finally:
        session.conf.set(by_batch, str(before))
    rate, gather = records / ours["map_async"], records / 10 / theirs["gather"]
    limit = TASKS * CALLS / (FAST + (SLOW - FAST) / ONE_IN)
    return {
        "enrichment_per_s": round(rate),
        "enrichment_times_gather": round(rate / gather, 1),
        "enrichment_of_limit": round(rate / limit, 3),
    }


async def call(row: dict[str, int]) -> dict[str, int]:
    """Call a service that is slow at times."""
    n = row["id"]
    await asyncio.sleep(SLOW if n % ONE_IN == 0 else FAST)
    return {"n": n}


def gathered(batches: Iterator[Any]) -> Iterator[Any]:
    """Call by hand: all calls in flight end with their batch."""
    loop = asyncio.new_event_loop()

    async def all_of(numbers: list[int]) -> list[dict[str, int]]:
        return await asyncio.gather(*(call({"id": n}) for n in numbers))

    try:
        for batch in batches:
            done = loop.run_until_complete(all_of(batch.column("id").to_pylist()))
            yield pa.RecordBatch.from_pylist(done, pa.schema([("n", pa.int64())]))
    finally:
        loop.close()


def _summed(frame: DataFrame) -> Callable[[], object]:
    return lambda: frame.selectExpr("count(n)", "sum(n)").collect()
