"""Whether two parts are one whole: all rows of all results, in whatever order and files they are."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import aflow as af
from aflow.cli.demo.history.files import RESULTS, HistoryFiles, HistoryRun
from aflow_connectors.files import ParquetSource

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Compared:
    """The rows of a sink."""

    sink: str
    history: int
    live: int
    whole: int
    differences: int
    """Rows of one side that have no equal on the other: those of the whole, and those of both parts together."""


def compare(files: HistoryFiles) -> list[Compared]:
    """The rows of all sinks. Raises ``SourceError`` for files that cannot be read."""
    return [
        _compared(sink, *(rows_in(files.results(where, sink), of) for where in HistoryRun))
        for sink, of in RESULTS.items()
    ]


def rows_in(folder: Path, of: type[R]) -> Counter[R]:
    """The rows of Parquet files, and how often each is there; none if there are no files."""
    if not any(folder.glob("*.parquet")):
        return Counter()
    rows = af.CollectSink[R]()
    flow = af.Flow("rows")
    flow.source(ParquetSource(folder, of=of), name="files").to(rows, name="rows")
    asyncio.run(flow.run())
    return Counter(rows.values)


def _compared(sink: str, history: Counter[R], live: Counter[R], whole: Counter[R]) -> Compared:
    both = history + live
    differences = (both - whole).total() + (whole - both).total()
    return Compared(sink, history.total(), live.total(), whole.total(), differences)
