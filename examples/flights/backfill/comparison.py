"""Comparison of the results of two parts with those of the whole, as multisets of rows."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import aflow as af
from aflow_connectors.files import ParquetSource
from flights.backfill.files import RESULTS, Computation, HistoryFiles

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Compared:
    """Numbers of rows of a sink."""

    sink: str
    history: int
    live: int
    whole: int
    differences: int
    """Rows of the two parts without an equal row of the whole, and rows of the whole without one of the parts."""


def compare(files: HistoryFiles) -> list[Compared]:
    """Compare the rows of all sinks. Raises ``SourceError`` for files that cannot be read."""
    return [
        _compared(sink, *(rows_in(files.results(one, sink), of) for one in Computation))
        for sink, of in RESULTS.items()
    ]


def rows_in(folder: Path, of: type[R]) -> Counter[R]:
    """Return the rows of Parquet files with their counts; empty if there are no files."""
    if not any(folder.glob("*.parquet")):
        return Counter()
    rows = af.CollectSink[R]()
    flow = af.Flow("rows")
    flow.source(ParquetSource(folder, of=of), name="files").to(rows, name="rows")
    asyncio.run(flow.run())
    return Counter(rows.values)


def _compared(sink: str, history: Counter[R], live: Counter[R], whole: Counter[R]) -> Compared:
    parts = history + live
    differences = (parts - whole).total() + (whole - parts).total()
    return Compared(sink, history.total(), live.total(), whole.total(), differences)
