"""``SparkSource``: the rows of a DataFrame as records of a live job, against pyarrow reading the same Parquet
files."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aflow as af
from aflow.connect import Batch, Sink, Writer, WriterContext
from aflow_connectors.spark import SparkSource
from bench.harness import Budget, run_async
from bench.spark.trials import medians

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

pq: Any = import_module("pyarrow.parquet")  # which has no types

BUDGETS = [Budget("source_ratio", at_least=0.8)]


def figures(events: DataFrame, folder: Path, rounds: int) -> dict[str, float]:
    """Measure with dicts in both programs; the snapshot is written before."""
    snapshot = folder / "snapshot"
    read = _in_aflow(events, snapshot)
    read()
    times = medians("source", {"pyarrow": _by_hand(snapshot), "aflow": read}, rounds)
    return {"source_ratio": round(times["pyarrow"] / times["aflow"], 3)}


class _Count(Sink[Any], Writer[Any]):
    """Count records, and sum a field so that they are used."""

    def __init__(self) -> None:
        self.count = 0
        self.total = 0

    async def writer(self, context: WriterContext) -> Writer[Any]:
        return self

    def write(self, batch: Batch[Any]) -> None:
        self.count += len(batch)
        self.total += sum(record["price"] for record in batch.values)


def _in_aflow(events: DataFrame, snapshot: Path) -> Callable[[], object]:
    def run() -> object:
        flow, counted = af.Flow("read"), _Count()
        flow.source(SparkSource(events, snapshot=snapshot)).to(counted)
        run_async(flow.run())
        return counted.count, counted.total

    return run


def _by_hand(snapshot: Path) -> Callable[[], object]:
    def run() -> object:
        count = total = 0
        for file in sorted(snapshot.rglob("*.parquet")):
            for batch in pq.ParquetFile(file).iter_batches(batch_size=1024):
                records = batch.to_pylist()
                count += len(records)
                total += sum(record["price"] for record in records)
        return count, total

    return run
