"""Cost of the coroutine runner without work: batches, and records, through the event loop of the worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from aflow_connectors.spark.dataframe.columns import RowsIn, RowsOut
from aflow_connectors.spark.dataframe.schema import DeclaredColumns, declared
from aflow_connectors.spark.executor.bridge import BridgeInput, BridgeOutput, bridged
from bench.harness import Budget
from bench.spark.trials import medians

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BUDGETS = [Budget("pass_through_ratio", at_least=0.7)]


def figures(events: DataFrame, rounds: int) -> dict[str, float]:
    """Measure both against a ``mapInArrow`` that returns its input."""
    schema = declared(events.schema, owner="bench")
    times = medians(
        "pass through",
        {
            "bare": _counted(events, _identity),
            "batches": _counted(events, _in_event_loop),
            "records": _counted(events, partial(_as_records, events.columns, schema)),
        },
        rounds,
    )
    return {
        "pass_through_ratio": round(times["bare"] / times["batches"], 3),
        "pass_through_records_ratio": round(times["bare"] / times["records"], 3),
    }


def _counted(
    events: DataFrame, function: Callable[[Iterator[Any]], Iterator[Any]]
) -> Callable[[], object]:
    frame: Any = events

    def run() -> object:
        # Every column is used, since Spark does not read unused ones.
        passed = frame.mapInArrow(function, events.schema)
        return passed.selectExpr("count(who)", "sum(at)", "sum(price)").collect()

    return run


def _identity(batches: Iterator[Any]) -> Iterator[Any]:
    yield from batches


def _in_event_loop(batches: Iterator[Any]) -> Iterator[Any]:
    return bridged(batches, _pass_on)


def _as_records(names: list[str], schema: DeclaredColumns, batches: Iterator[Any]) -> Iterator[Any]:
    rows_in: RowsIn[Any] = RowsIn(names, owner="bench")
    rows_out = RowsOut(schema, owner="bench")
    blocks = (rows_in.records(batch) for batch in batches)
    for records in bridged(blocks, _pass_on):
        yield rows_out.batch(records)


async def _pass_on(inbox: BridgeInput[Any], outbox: BridgeOutput[Any]) -> None:
    while (batch := await inbox.take()) is not None:
        await outbox.put(batch)
