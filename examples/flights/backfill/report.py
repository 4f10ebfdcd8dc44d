"""Report at the end of the hand-over: records of each step by computation, and the comparison of the results."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Final

from rich.console import Console
from rich.table import Table

import aflow as af
from flights.backfill.comparison import Compared
from flights.backfill.files import Computation, HistoryFiles
from flights.backfill.history import History

#: Steps of the table, in the order of the pipeline.
_STEPS: Final = (
    "departed",
    "airport hours",
    "worst hours",
    "known aircraft",
    "stretches of aircraft",
    "silence",
    "ask the registry",
    "grounded in a week",
    "plausible",
    "storms",
    "hours near storms",
    "around storms",
)


def show_steps(
    console: Console, history: History, live: af.metrics.JobMetrics, whole: af.metrics.JobMetrics
) -> None:
    """Print the records of each step by computation, and its open state at the hand-over."""
    on_spark = history.records_in
    table = _table("Records into each step", ("Spark", "then live", "all live"), first="step")
    table.add_column("open state")
    for name in _STEPS:
        table.add_row(
            name,
            "" if on_spark is None else f"{on_spark.get(name, 0):,}",
            *(f"{one.steps[name].records_in:,}" for one in (live, whole)),
            history.open_state.get(name, ""),
        )
    console.print(table)


def show_results(console: Console, compared: Sequence[Compared]) -> None:
    """Print the number of rows of each result, and the number of differences."""
    table = _table("Results: rows", ("Spark", "then live", "all live", "differences"), first="")
    for one in compared:
        numbers = one.history, one.live, one.whole, one.differences
        table.add_row(one.sink.replace("_", " "), *(f"{number:,}" for number in numbers))
    console.print(table)


def show_totals(
    console: Console, seconds: dict[str, float], files: HistoryFiles, differences: int
) -> None:
    """Print the durations, the folders, and the number of differences."""
    times = ", ".join(f"{name} {duration:.1f} s" for name, duration in seconds.items())
    folders = ", ".join(computation.value for computation in Computation)
    for line in (
        f"{times}; total {sum(seconds.values()):.1f} s.",
        f"Files: {files.folder}{os.sep}{{{folders}, savepoint}}; "
        f"'aflow savepoint show {files.savepoint}' shows the state that Spark handed over.",
        f"Row for row, Spark and then live against all live: differences: {differences:,}.",
    ):
        console.print(line, soft_wrap=True, markup=False)


def _table(title: str, numbers: Sequence[str], *, first: str) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column(first)
    for heading in numbers:
        table.add_column(heading, justify="right")
    return table
